//! Which cluster answers: asked before anybody can be trusted, and believed only with a proof.
//!
//! In: an address, a token, perhaps the hash of a key. Out: the authority of the cluster. Nothing secret is sent on the way.

use std::time::Duration;

use api::bootstrap_token::{CLUSTER_INFO, KUBECONFIG, SIGNATURE_PREFIX, Token};
use api::value::ValueExt as _;
use client::http::{Client, ClientError, Method};
use client::kubeconfig::Access;
use serde_json::{Value, json};

use super::{JoinError, Wish};
use crate::kubeconfig::ClusterInfo;

/// How long the server may take to sign with a token that was just made.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);

/// Learns the authority.
pub(super) async fn discover(wish: &Wish<'_>, token: &Token) -> Result<ClusterInfo, JoinError> {
    let begun = tokio::time::Instant::now();
    loop {
        let map = description(wish.server).await?;
        match judge(&map, wish, token) {
            // The token may be newer than the signature: both come from the server, one a moment after the other.
            Err(JoinError::UnknownToken { .. }) if begun.elapsed() < PATIENCE => tokio::time::sleep(PAUSE).await,
            judged => return judged,
        }
    }
}

/// What the server says of its cluster, to everybody.
async fn description(address: &str) -> Result<Value, JoinError> {
    let (namespace, name) = CLUSTER_INFO;
    let anybody = json!({"server": format!("https://{address}"), "insecure-skip-tls-verify": true});
    let mut client = Client::new(Access::from_parts(&anybody, &Value::Null)?.into());
    let asked = client.json(Method::GET, &format!("/api/v1/namespaces/{namespace}/configmaps/{name}"), None).await;
    let no = |why: String| JoinError::NoDescription { address: address.to_owned(), why };
    match asked {
        Ok((200, map)) => Ok(map),
        Ok((code, body)) => Err(no(format!("{code}: {}", body.text("message")))),
        Err(ClientError::Connect { why, .. }) => Err(JoinError::Unreachable { address: address.to_owned(), why }),
        Err(error) => Err(no(error.to_string())),
    }
}

/// Whether a description is believed.
pub(super) fn judge(map: &Value, wish: &Wish<'_>, token: &Token) -> Result<ClusterInfo, JoinError> {
    let entry = |key: &str| map.at("data").get(key).and_then(Value::as_str);
    let no = |why: String| JoinError::NoDescription { address: wish.server.to_owned(), why };
    let text = entry(KUBECONFIG).ok_or_else(|| no("it is empty".to_owned()))?;
    let said = ClusterInfo::parse(text).map_err(|error| no(error.to_string()))?;
    // Whatever it says of itself: this is where we found it.
    let info = ClusterInfo { server: format!("https://{}", wish.server), ..said };
    let id = token.id().to_owned();
    let signature = entry(&format!("{SIGNATURE_PREFIX}{id}"));
    let is_signed = signature.is_some_and(|signature| token.signed(text, signature));
    if let Some(want) = wish.ca_hash {
        let want = want.to_ascii_lowercase();
        // A CA beside the one that was named is believed only if who knows the token said so: anybody could have added it.
        return match info.pinned(&want).map_err(|error| no(error.to_string()))? {
            Some(_) if is_signed => Ok(info),
            Some(pinned) => Ok(pinned),
            None => {
                let have = info.ca_hash().map_err(|error| no(error.to_string()))?;
                Err(JoinError::OtherAuthority { have, want })
            }
        };
    }
    match signature {
        Some(_) if is_signed => Ok(info),
        _ if wish.believe => {
            tracing::warn!("CA not verified: no CA hash given");
            Ok(info)
        }
        Some(_) => Err(JoinError::Forged { id }),
        None => Err(JoinError::UnknownToken { id }),
    }
}
