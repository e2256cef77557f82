//! The evidence of `waypost doctor --security`: roles, Pods, tokens, settings of the server, certificates, webhooks.
//!
//! In: a kubeconfig. Out: [`Evidence`]. What the user may not read is unmeasured. Only Secrets with tokens are read.

use std::sync::Arc;
use std::time::Duration;

use api::bootstrap_token;
use api::value::ValueExt as _;
use base64::Engine as _;
use client::http::Client;
use client::kubeconfig::Access;
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use rest::pki::{validity, validity_of_der};
use serde_json::{Value, json};

use cli::api_client::{ApiClient, ApiFlags};
use cli::doctor::security::{Certificate, Evidence, LEGACY_TYPE, Pods, Rbac};
use cli::doctor::{Measured, Unmeasured};
use cli::kubeconfig::Kubeconfig;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1";

/// Timeout of a TLS handshake with a node, which may not be reachable from here.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// Concurrent handshakes.
const CONCURRENCY: usize = 32;

/// Reads the evidence.
///
/// # Errors
/// When there is no kubeconfig, or the server does not respond.
pub(super) async fn gather(flags: &ApiFlags) -> anyhow::Result<Evidence> {
    let found = flags.kubeconfig()?;
    let mut api = flags.client()?;
    // Any response shows that the server is reachable: later errors are about permissions.
    api.code("/version").await?;
    Ok(Evidence {
        now: Timestamp::now(),
        rbac: rbac(&mut api).await.map_err(unreadable),
        pods: pods(&mut api).await.map_err(unreadable),
        tokens: tokens(&mut api).await.map_err(unreadable),
        metrics: metrics(&mut api).await.map_err(unreadable),
        anonymous: anonymous(&found).await.map_err(unreadable),
        webhooks: webhooks(&mut api).await.map_err(unreadable),
        certificates: certificates(&found, flags, &mut api).await?,
    })
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn unreadable(error: anyhow::Error) -> Unmeasured {
    Unmeasured { why: format!("{error:#}"), how: "use the kubeconfig of an administrator".to_owned() }
}

async fn rbac(api: &mut ApiClient) -> anyhow::Result<Rbac> {
    Ok(Rbac {
        cluster_roles: api.list(&format!("{RBAC}/clusterroles")).await?,
        roles: api.list(&format!("{RBAC}/roles")).await?,
        cluster_bindings: api.list(&format!("{RBAC}/clusterrolebindings")).await?,
        bindings: api.list(&format!("{RBAC}/rolebindings")).await?,
    })
}

async fn pods(api: &mut ApiClient) -> anyhow::Result<Pods> {
    Ok(Pods { namespaces: api.list("/api/v1/namespaces").await?, pods: api.list("/api/v1/pods").await? })
}

async fn tokens(api: &mut ApiClient) -> anyhow::Result<Vec<Value>> {
    let mut out = Vec::new();
    for kind in [LEGACY_TYPE, bootstrap_token::TYPE] {
        out.extend(api.list(&format!("/api/v1/secrets?fieldSelector=type%3D{}", kind.replace('/', "%2F"))).await?);
    }
    Ok(out)
}

async fn metrics(api: &mut ApiClient) -> anyhow::Result<String> {
    match api.text("/metrics").await? {
        (200, text) => Ok(text),
        (code, _) => anyhow::bail!("the API answers {code} for /metrics"),
    }
}

async fn anonymous(found: &Kubeconfig) -> anyhow::Result<u16> {
    ApiClient::new(Client::new(Arc::new(found.anonymous_access()?))).code("/api").await
}

async fn webhooks(api: &mut ApiClient) -> anyhow::Result<Vec<Value>> {
    let mut out = Vec::new();
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        for mut one in api.list(&format!("{WEBHOOKS}/{}s", kind.to_lowercase())).await? {
            // Items of a list have no kind.
            one["kind"] = json!(kind);
            out.push(one);
        }
    }
    Ok(out)
}

/// The certificates of the kubeconfig, of the server, and of nodes.
async fn certificates(found: &Kubeconfig, flags: &ApiFlags, api: &mut ApiClient) -> anyhow::Result<Vec<Certificate>> {
    let server = api.server();
    let own = Client::new(flags.access()?);
    let presented = own.presented(HANDSHAKE_TIMEOUT).await.map_err(anyhow::Error::from);
    let presented = presented.map(|chain| chain.first().and_then(|der| validity_of_der(der)));
    let mut out = Vec::new();
    if server.starts_with("https://") {
        out.push(Certificate {
            object: format!("certificate of the API server {server}"),
            ends: presented.map_err(unreadable).and_then(|found| known(found, "it cannot be read")),
            fix: "restart the server: it renews its certificate when it ends soon".to_owned(),
            optional: false,
        });
    }
    let file = |entry: &Value, field: &str| pem(entry, field).map(|pem| known(validity(&pem), "it cannot be read"));
    let of_file = |what: &str, ends, fix: &str| Certificate {
        object: format!("{what} in {}", found.origin),
        ends,
        fix: fix.to_owned(),
        optional: false,
    };
    let ca = file(found.cluster(), "certificate-authority");
    out.extend(ca.map(|ends| {
        of_file("certificate authority", ends, "restart the server, which renews it, and copy its kubeconfig")
    }));
    let client = file(found.user(), "client-certificate");
    out.extend(client.map(|ends| of_file("client certificate", ends, "restart the server, and copy its kubeconfig")));
    let nodes = api.optional("/api/v1/nodes").await;
    let serving = stream::iter(nodes).map(|node| async move { node_certificate(&node).await });
    out.extend(serving.buffered(CONCURRENCY).collect::<Vec<_>>().await.into_iter().flatten());
    Ok(out)
}

fn known(found: Option<(Timestamp, Timestamp)>, why: &str) -> Measured<Timestamp> {
    let unknown = || Unmeasured { why: why.to_owned(), how: "openssl x509 -noout -enddate shows it".to_owned() };
    found.map(|(_, ends)| ends).ok_or_else(unknown)
}

/// A certificate of a kubeconfig, inline or in a file; none if it is missing or unreadable.
fn pem(entry: &Value, field: &str) -> Option<String> {
    let bytes = match entry.text(&format!("{field}-data")) {
        "" if entry.text(field).is_empty() => return None,
        "" => std::fs::read(entry.text(field)).ok()?,
        data => base64::engine::general_purpose::STANDARD.decode(data).ok()?,
    };
    String::from_utf8(bytes).ok()
}

/// The serving certificate of a node's agent. It is only read: not verified, and no credentials are sent.
async fn node_certificate(node: &Value) -> Option<Certificate> {
    let port = node.at("status.daemonEndpoints.kubeletEndpoint.Port").as_u64()?;
    let addresses = node.items("status.addresses").iter();
    let address = addresses.filter(|one| one.text("type") == "InternalIP").map(|one| one.text("address")).next()?;
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    let name = node.text("metadata.name");
    Some(Certificate {
        object: format!("serving certificate of Node {name}"),
        ends: presented_expiry(&format!("https://{host}:{port}")).await,
        fix: format!("restart waypost on {name}: its agent requests a new one; kubectl get csr shows what waits"),
        optional: true,
    })
}

/// The expiry of the certificate that a server presents.
async fn presented_expiry(server: &str) -> Measured<Timestamp> {
    let config = json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
    });
    let unreachable = |error: &dyn std::fmt::Display| Unmeasured {
        why: error.to_string(),
        how: "run `waypost doctor --security` where the nodes can be reached".to_owned(),
    };
    let access = Access::from_value(&config, server).map_err(|error| unreachable(&error))?;
    let chain =
        Client::new(Arc::new(access)).presented(HANDSHAKE_TIMEOUT).await.map_err(|error| unreachable(&error))?;
    known(chain.first().and_then(|der| validity_of_der(der)), "it cannot be read")
}
