//! Starvation: two accounts that load a server as much as they can, and clients that must not be affected.
//!
//! In: the data directory of a running server that knows the [`node_tokens`]. Out: the latency of every request of the nodes and of the
//! administrator; a request that fails, is rejected or takes longer than [`REQUEST_TIMEOUT`] ends the caller with a panic. The attackers have
//! threads of their own, so that a measurement waits for the server and not for the load beside it.

mod attack;
mod bystanders;
mod flood;
mod slow;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::http::{Client, Method};
use client::kubeconfig::Access;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;

pub use attack::{Attack, Outcome};
pub use bystanders::Samples;

/// How long one request of a node or of the administrator may take: as long as a kubelet waits for the answer to a renewal.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The nodes that renew their Leases.
pub const NODES: usize = 50;
/// Objects whose list is larger than what the kernel buffers for a connection, and their size in bytes.
const LARGE: usize = 60;
const LARGE_SIZE: usize = 100_000;
/// Pods that the administrator lists.
const PODS: usize = 50;

const NAMESPACE: &str = "flood";
const CONFIG_MAPS: &str = "/api/v1/namespaces/flood/configmaps";
const SERVICES: &str = "/api/v1/namespaces/flood/services";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/flood";
const JSON: &str = "application/json";

/// A server that is prepared for the attack.
pub struct Scenario {
    home: PathBuf,
    admin: Client,
    /// Tokens of the ServiceAccounts `slow` and `fast`.
    slow: String,
    fast: String,
}

/// The token file that gives each node a credential.
#[must_use]
pub fn node_tokens() -> String {
    (0..NODES).map(|node| format!("{0},system:node:{0},,system:nodes\n", node_name(node))).collect()
}

fn node_name(number: usize) -> String {
    format!("n{number}")
}

/// A client of the server of an administrator's kubeconfig, with a bearer token instead of the certificate.
///
/// # Panics
/// When the kubeconfig cannot be used.
#[must_use]
pub fn client_with_token(kubeconfig: &Path, token: &str) -> Client {
    let bytes = std::fs::read(kubeconfig).expect("a kubeconfig");
    let (mut config, _) = api::yaml::from_yaml(&bytes).expect("YAML");
    config["users"][0]["user"] = json!({"token": token});
    Client::new(Arc::new(Access::from_value(&config, "starvation").expect("a kubeconfig that can be used")))
}

impl Scenario {
    /// Creates the accounts, their rights by RBAC, and the objects to list: these numbers of Services, Pods, and large ConfigMaps.
    ///
    /// # Panics
    /// When the server refuses something.
    #[must_use]
    pub fn prepare(home: &Path, services: usize) -> Self {
        raise_file_limit();
        let admin = Client::from_kubeconfig(&home.join("kubeconfig")).expect("a kubeconfig that can be used");
        let mut client = admin.another();
        let (slow, fast) = runtime(1).block_on(async {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
            post(&mut client, "/api/v1/namespaces", &namespace).await;
            let tokens = (account(&mut client, "slow").await, account(&mut client, "fast").await);
            grant(&mut client).await;
            for number in 0..services {
                post(&mut client, SERVICES, &service(number)).await;
            }
            for number in 0..PODS {
                post(&mut client, "/api/v1/namespaces/flood/pods", &pod(number)).await;
            }
            for number in 0..LARGE {
                post(&mut client, CONFIG_MAPS, &config_map(&format!("large-{number}"), &"x".repeat(LARGE_SIZE))).await;
            }
            tokens
        });
        Self { home: home.to_owned(), admin, slow, fast }
    }

    /// A client with a token.
    fn client(&self, token: &str) -> Client {
        client_with_token(&self.home.join("kubeconfig"), token)
    }
}

/// A runtime with this number of threads.
fn runtime(threads: usize) -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    runtime.expect("a runtime")
}

/// Every slow reader and watch has its own connection.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("a higher limit of open files");
}

/// Sends a request that must succeed in time, and returns its body.
async fn succeed(client: &mut Client, method: Method, path: &str, body: Bytes) -> Bytes {
    let content_type = (!body.is_empty()).then_some(JSON);
    let answer = timeout(REQUEST_TIMEOUT, client.bytes(method.clone(), path, content_type, body)).await;
    let answer = answer.unwrap_or_else(|_| panic!("{method} {path}: no answer within {REQUEST_TIMEOUT:?}"));
    let (code, bytes) = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    assert!(matches!(code, 200 | 201), "{method} {path}: {code} {}", String::from_utf8_lossy(&bytes));
    bytes
}

async fn post(client: &mut Client, path: &str, object: &Value) -> Value {
    let bytes = succeed(client, Method::POST, path, object.to_string().into()).await;
    serde_json::from_slice(&bytes).expect("JSON")
}

/// Creates a ServiceAccount; returns a token for it.
async fn account(client: &mut Client, name: &str) -> String {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    post(client, &path, &account).await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = post(client, &format!("{path}/{name}/token"), &request).await;
    issued["status"]["token"].as_str().expect("a token").to_owned()
}

/// A Role for both accounts.
async fn grant(client: &mut Client) {
    let group = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": "flood"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps", "services"], "verbs": ["*"]}],
    });
    post(client, &format!("{RBAC}/roles"), &role).await;
    let subject = |name: &str| json!({"kind": "ServiceAccount", "namespace": NAMESPACE, "name": name});
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": "flood"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "flood"},
        "subjects": [subject("slow"), subject("fast")],
    });
    post(client, &format!("{RBAC}/rolebindings"), &binding).await;
}

fn service(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("service-{number}")},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    })
}

fn pod(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{number}")},
        "spec": {"nodeName": node_name(number % NODES), "containers": [{"name": "c", "image": "i"}]},
    })
}

fn config_map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}})
}
