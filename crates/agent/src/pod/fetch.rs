//! Reads what a Pod refers to from the API: ConfigMaps, Secrets, service account tokens.

use std::collections::BTreeMap;
use std::fs;

use api::value::ValueExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::requests::{ApiError, Verb, find};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::data_dir::PodDir;
use crate::downward::Known;
use crate::environment::{ConfigError, Given, Kind, Objects};
use crate::machine::Machine;
use crate::sandbox;
use crate::volumes;
use crate::volumes::payload::{Payload, TokenWish, payload, tokens};

/// Objects of the Pod's namespace; `None` for those that do not exist.
///
/// # Errors
/// When the API request fails.
pub async fn objects(machine: &Machine, namespace: &str, wanted: &[(Kind, String)]) -> Result<Objects, ApiError> {
    let mut out = Objects::new();
    for (kind, name) in wanted {
        if out.contains_key(&(*kind, name.clone())) {
            continue;
        }
        let path = format!("/api/v1/namespaces/{namespace}/{}/{name}", kind.plural());
        let found = find(&*machine.api, &path).await?;
        out.insert((*kind, name.clone()), found);
    }
    Ok(out)
}

/// Addresses of a Pod that its status may not show yet.
#[must_use]
pub fn known(machine: &Machine, pod: &Value) -> Known {
    let dir = machine.dir.pod(pod.text("metadata.uid"));
    let addresses = match sandbox::find(&dir, pod.flag("spec.hostNetwork")) {
        Some(addresses) => addresses,
        None => pod.items("status.podIPs").iter().filter_map(|ip| ip.text("ip").parse().ok()).collect(),
    };
    Known { addresses, host: machine.host.clone() }
}

/// The files of every volume that has files. With a Pod directory, tokens there that need no renewal are reused.
///
/// # Errors
/// When the API request fails.
pub async fn payloads(
    machine: &Machine,
    pod: &Value,
    dir: Option<&PodDir>,
) -> Result<BTreeMap<String, Result<Payload, ConfigError>>, ApiError> {
    let namespace = pod.text("metadata.namespace");
    let objects = objects(machine, namespace, &volumes::references(pod)).await?;
    let given =
        Given { pod: Some(pod), known: known(machine, pod), objects, capacity: machine.capacity, ..Given::default() };
    let mut out = BTreeMap::new();
    for volume in pod.items("spec.volumes") {
        let name = volume.text("name");
        let mut got: Vec<(TokenWish, String)> = Vec::new();
        for request in tokens(volume) {
            let token = match dir.and_then(|dir| good_token(dir, volume, &request)) {
                Some(token) => token,
                None => request_token(machine, pod, &request).await?,
            };
            got.push((request, token));
        }
        let token = |request: &TokenWish| got.iter().find(|(own, _)| own == request).map(|(_, token)| token.clone());
        if let Some(files) = payload(volume, &given, &token) {
            out.insert(name.to_owned(), files);
        }
    }
    Ok(out)
}

/// An existing token with at least a fifth of its lifetime left.
fn good_token(dir: &PodDir, volume: &Value, request: &TokenWish) -> Option<String> {
    let part = volume.items("projected.sources").iter().find(|part| {
        part.has("serviceAccountToken") && part.text("serviceAccountToken.audience") == request.audience
    })?;
    let path = dir.volume(volume.text("name")).join(part.text("serviceAccountToken.path"));
    let token = fs::read_to_string(path).ok()?;
    (Timestamp::now().as_second() < renewal(&token)?).then_some(token)
}

/// When a token is renewed, in seconds since the epoch: by its own claims, because a server may grant a shorter lifetime than requested.
fn renewal(token: &str) -> Option<i64> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let (issued, end) = (claims["iat"].as_i64()?, claims["exp"].as_i64()?);
    Some(issued.saturating_add(end.saturating_sub(issued) / 5 * 4))
}

async fn request_token(machine: &Machine, pod: &Value, request: &TokenWish) -> Result<String, ApiError> {
    let account = match pod.text("spec.serviceAccountName") {
        "" => "default",
        name => name,
    };
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", pod.text("metadata.namespace"));
    // Bound to the Pod; the NodeRestriction rules allow nodes no other token.
    let secured = json!({
        "apiVersion": "v1", "kind": "Pod", "name": pod.text("metadata.name"), "uid": pod.text("metadata.uid"),
    });
    let mut spec = json!({"expirationSeconds": request.seconds, "boundObjectRef": secured});
    if !request.audience.is_empty() {
        spec["audiences"] = json!([request.audience]);
    }
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let answer = machine.api.request(Verb::Create, &path, Some(&request)).await?;
    Ok(answer.text("status.token").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_at_80_percent_of_its_lifetime() {
        let token = |claims: &Value| format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims.to_string()));
        assert_eq!(renewal(&token(&json!({"iat": 1000, "exp": 2000}))), Some(1800));
        for odd in ["", "x", "a.b.c", &token(&json!({"iat": 1000})), &token(&json!([]))] {
            assert_eq!(renewal(odd), None, "{odd}");
        }
    }
}
