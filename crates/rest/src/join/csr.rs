//! Creates a CertificateSigningRequest and waits for the certificate.
//!
//! In: a key and names. Out: a certificate, once the request is approved: by the server for the certificates of a node, by an administrator
//! otherwise.

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
/// The interval at which the request is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time until a warning is logged that manual approval is required.
const APPROVAL_WARNING: Duration = Duration::from_secs(10);
/// The timeout for approval.
const APPROVAL_TIMEOUT: Duration = Duration::from_secs(900);

/// The names in the serving certificate of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Serving {
    /// The name of the node.
    pub node: String,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
}

/// A client certificate of the node.
pub(super) async fn client(client: &mut Client, key: &OwnKey, node: &str) -> Result<String, JoinError> {
    let request = key.request(&user_of(node), NODES, &[], &[])?;
    obtain(client, NODE_CLIENT, "client auth", &request).await
}

/// A serving certificate of the agent.
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
    let made =
        checked("creating a CertificateSigningRequest", client.json(Method::POST, REQUESTS, Some(&object)).await?)?;
    let name = made.text("metadata.name").to_owned();
    let (started, mut warned) = (Instant::now(), false);
    loop {
        let answer = client.json(Method::GET, &format!("{REQUESTS}/{name}"), None).await?;
        let now = checked("reading a CertificateSigningRequest", answer)?;
        if let Some(pem) = certificate(&name, &now)? {
            return Ok(pem);
        }
        if started.elapsed() > APPROVAL_TIMEOUT {
            return Err(JoinError::NotApproved { name });
        }
        if started.elapsed() > APPROVAL_WARNING && !std::mem::replace(&mut warned, true) {
            tracing::warn!(csr = name, "waiting for approval: run `kubectl certificate approve {name}`");
        }
        // Most requests are approved at once: polling is simpler than a watch.
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn checked(what: &'static str, (code, body): (u16, Value)) -> Result<Value, JoinError> {
    if (200..300).contains(&code) {
        return Ok(body);
    }
    Err(JoinError::Refused { what, code, message: body.text("message").to_owned() })
}

/// The certificate; `None` while the request is pending.
fn certificate(name: &str, request: &Value) -> Result<Option<String>, JoinError> {
    let refusal = request.items("status.conditions").iter().find(|it| [DENIED, FAILED].contains(&it.text("type")));
    if let Some(refusal) = refusal {
        return Err(JoinError::Denied { name: name.to_owned(), message: refusal.text("message").to_owned() });
    }
    let pem = STANDARD.decode(request.text("status.certificate")).unwrap_or_default();
    Ok(String::from_utf8(pem).ok().filter(|pem| !pem.is_empty()))
}
