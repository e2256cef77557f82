//! Discovery: reads cluster-info without authentication, and verifies it.
//!
//! In: an address, a token, optionally the hash of the CA's key. Out: the CA of the cluster. No secret is sent.

use std::time::Duration;

use api::bootstrap_token::{CLUSTER_INFO, KUBECONFIG, SIGNATURE_PREFIX, Token};
use api::value::ValueExt as _;
use client::http::{Client, ClientError, Method};
use client::kubeconfig::Access;
use serde_json::{Value, json};

use super::{JoinError, JoinOptions};
use crate::kubeconfig::ClusterInfo;

/// How long the server may take to publish cluster-info, and to sign it with a new token.
const SIGNATURE_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Discovers the CA.
pub(super) async fn discover(options: &JoinOptions<'_>, token: &Token) -> Result<ClusterInfo, JoinError> {
    let started = tokio::time::Instant::now();
    loop {
        let verified = match cluster_info(options.server).await? {
            Published::Yes(map) => verify(&map, options, token),
            Published::NotYet(error) if started.elapsed() >= SIGNATURE_TIMEOUT => return Err(error),
            Published::NotYet(_) => {
                tokio::time::sleep(POLL_INTERVAL).await;
                continue;
            }
        };
        match verified {
            // The server signs shortly after it has created the token.
            Err(JoinError::UnknownToken { .. }) if started.elapsed() < SIGNATURE_TIMEOUT => {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            verified => return verified,
        }
    }
}

/// Whether there is cluster-info. The server publishes it shortly after it has created the first token.
enum Published {
    Yes(Value),
    NotYet(JoinError),
}

/// The ConfigMap cluster-info.
async fn cluster_info(address: &str) -> Result<Published, JoinError> {
    let (namespace, name) = CLUSTER_INFO;
    let insecure = json!({"server": format!("https://{address}"), "insecure-skip-tls-verify": true});
    let mut client = Client::new(Access::from_parts(&insecure, &Value::Null)?.into());
    let response = client.json(Method::GET, &format!("/api/v1/namespaces/{namespace}/configmaps/{name}"), None).await;
    let no = |why: String| JoinError::NoClusterInfo { address: address.to_owned(), why };
    match response {
        Ok((200, map)) => Ok(Published::Yes(map)),
        Ok((404, body)) => Ok(Published::NotYet(no(format!("404: {}", body.text("message"))))),
        Ok((code, body)) => Err(no(format!("{code}: {}", body.text("message")))),
        Err(ClientError::Connect { why, .. }) => {
            Err(JoinError::Unreachable { address: address.to_owned(), why: why.to_string() })
        }
        Err(error) => Err(no(error.to_string())),
    }
}

/// Verifies cluster-info.
pub(super) fn verify(map: &Value, options: &JoinOptions<'_>, token: &Token) -> Result<ClusterInfo, JoinError> {
    let entry = |key: &str| map.at("data").get(key).and_then(Value::as_str);
    let no = |why: String| JoinError::NoClusterInfo { address: options.server.to_owned(), why };
    let text = entry(KUBECONFIG).ok_or_else(|| no("no kubeconfig in it".to_owned()))?;
    let parsed = ClusterInfo::parse(text).map_err(|error| no(error.to_string()))?;
    // The address that was given, not the one in cluster-info.
    let info = ClusterInfo { server: format!("https://{}", options.server), ..parsed };
    let id = token.id().to_owned();
    let signature = entry(&format!("{SIGNATURE_PREFIX}{id}"));
    let is_signed = signature.is_some_and(|signature| token.signed(text, signature));
    if let Some(want) = options.ca_hash {
        let want = want.to_ascii_lowercase();
        // Further CAs beside the pinned one are trusted only if the token signed them.
        return match info.pinned(&want).map_err(|error| no(error.to_string()))? {
            Some(_) if is_signed => Ok(info),
            Some(pinned) => Ok(pinned),
            None => {
                let have = info.ca_hash().map_err(|error| no(error.to_string()))?;
                Err(JoinError::CaMismatch { have, want })
            }
        };
    }
    match signature {
        Some(_) if is_signed => Ok(info),
        _ if options.skip_ca_verification => {
            tracing::warn!("CA not verified: no CA hash given");
            Ok(info)
        }
        Some(_) => Err(JoinError::BadSignature { id }),
        None => Err(JoinError::UnknownToken { id }),
    }
}
