//! Asking the cluster's authority for a certificate, and waiting for it.
//!
//! In: a key and names. Out: a certificate, once somebody has granted the request: the server itself for what a node may have, people for
//! everything else, who are told how.

use std::net::IpAddr;
use std::time::Duration;

use api::kinds::certificatesigningrequest::{DENIED, FAILED, NODE_CLIENT, NODE_SERVING};
use api::value::ValueExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::http::{Client, Method};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{JoinError, NODES, user_of};
use crate::pki::OwnKey;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// How often is asked whether the certificate is there.
const PAUSE: Duration = Duration::from_millis(200);
/// After so long people are told that they have to decide.
const AUTOMATIC: Duration = Duration::from_secs(10);
/// How long they may take.
const PATIENCE: Duration = Duration::from_secs(900);

/// Under which names an agent serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Serving {
    /// The name of the node.
    pub node: String,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
}

/// A certificate with which the node is a client of the API.
pub(super) async fn client(client: &mut Client, key: &OwnKey, node: &str) -> Result<String, JoinError> {
    let request = key.request(&user_of(node), NODES, &[], &[])?;
    obtain(client, NODE_CLIENT, "client auth", &request).await
}

/// A certificate under which the agent of the node serves.
pub(super) async fn serving(client: &mut Client, key: &OwnKey, names: &Serving) -> Result<String, JoinError> {
    let dns = [names.node.clone()];
    let request = key.request(&user_of(&names.node), NODES, &dns, &names.ips)?;
    obtain(client, NODE_SERVING, "server auth", &request).await
}

async fn obtain(client: &mut Client, signer: &str, usage: &str, request: &str) -> Result<String, JoinError> {
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "node-csr-"},
        "spec": {"request": STANDARD.encode(request), "signerName": signer, "usages": ["digital signature", usage]},
    });
    let made = checked("a request for a certificate", client.json(Method::POST, REQUESTS, Some(&object)).await?)?;
    let name = made.text("metadata.name").to_owned();
    let (begun, mut told) = (Instant::now(), false);
    loop {
        let answer = client.json(Method::GET, &format!("{REQUESTS}/{name}"), None).await?;
        let now = checked("reading a request for a certificate", answer)?;
        if let Some(pem) = judge(&name, &now)? {
            return Ok(pem);
        }
        if begun.elapsed() > PATIENCE {
            return Err(JoinError::Undecided { name });
        }
        if begun.elapsed() > AUTOMATIC && !std::mem::replace(&mut told, true) {
            tracing::warn!(
                "the request {name} for a certificate waits for somebody to grant it: `kubectl certificate approve {name}`"
            );
        }
        // A request is decided at once, or by people: looking a few times a second is cheaper than a watch.
        tokio::time::sleep(PAUSE).await;
    }
}

fn checked(what: &'static str, (code, body): (u16, Value)) -> Result<Value, JoinError> {
    if (200..300).contains(&code) {
        return Ok(body);
    }
    Err(JoinError::Refused { what, code, message: body.text("message").to_owned() })
}

/// The certificate, if it is there; nothing when nobody has decided.
fn judge(name: &str, request: &Value) -> Result<Option<String>, JoinError> {
    let refusal = request.items("status.conditions").iter().find(|it| [DENIED, FAILED].contains(&it.text("type")));
    if let Some(refusal) = refusal {
        return Err(JoinError::Denied { name: name.to_owned(), message: refusal.text("message").to_owned() });
    }
    let pem = STANDARD.decode(request.text("status.certificate")).unwrap_or_default();
    Ok(String::from_utf8(pem).ok().filter(|pem| !pem.is_empty()))
}
