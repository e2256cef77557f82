//! kube-apiserver and etcd in place of our API server, so that the cases of the proxy also run against them.
//!
//! In: `WAYPOST_TEST_API=kubernetes`, and the programs in `$WAYPOST_PEERS` or on the path. Out: the same kubeconfig at the same place. A case that gives
//! its server arguments, or needs a controller, cannot run so and fails.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::http::{Client, Method};
use jiff::Timestamp;
use rest::pki::{self, ServingNames};

use super::{Outside, Process};

/// Time limit of a start.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// Whether the cases run against Kubernetes.
///
/// # Panics
/// When the variable names neither API server.
pub(super) fn is_under_test() -> bool {
    match std::env::var("WAYPOST_TEST_API").as_deref() {
        Err(_) | Ok("waypost") => false,
        Ok("kubernetes") => true,
        Ok(other) => panic!("WAYPOST_TEST_API is {other}; waypost or kubernetes"),
    }
}

/// Starts both on a machine, on the data in `home`, and returns when the API is ready: the API server first, then its etcd.
pub(super) fn start(api: &Outside, home: &Path) -> Vec<Process> {
    let address = IpAddr::V4(api.v4());
    let names = ServingNames { ips: vec![address], dns: Vec::new() };
    let keys = home.join("pki");
    let pki = pki::load_or_create(&keys, &names, Timestamp::now()).expect("certificates");
    let kubeconfig = home.join("kubeconfig");
    rest::kubeconfig::write_admin(&kubeconfig, &format!("https://{address}:6443"), &pki).expect("a kubeconfig");
    let mut etcd = Command::new(program("etcd"));
    etcd.arg("--data-dir").arg(home.join("etcd")).arg("--log-level=error");
    let etcd = api.spawn(etcd);
    let apiserver = api.spawn(apiserver(&keys, address));
    api.in_namespace(|| until_ready(&kubeconfig, &apiserver));
    vec![apiserver, etcd]
}

fn apiserver(keys: &Path, address: IpAddr) -> Command {
    let key = |name: &str| keys.join(name).display().to_string();
    let mut command = Command::new(program("kube-apiserver"));
    command.args([
        "--etcd-servers=http://127.0.0.1:2379".to_owned(),
        format!("--bind-address={address}"),
        format!("--advertise-address={address}"),
        format!("--tls-cert-file={}", key("server.crt")),
        format!("--tls-private-key-file={}", key("server.key")),
        format!("--client-ca-file={}", key("ca.crt")),
        // It needs the public half, too, and reads it from a certificate; no tokens are used here.
        format!("--service-account-key-file={}", key("server.crt")),
        format!("--service-account-signing-key-file={}", key("server.key")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
    ]);
    command
}

fn until_ready(kubeconfig: &Path, apiserver: &Process) {
    let deadline = Instant::now() + START_TIMEOUT;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut client = Client::from_kubeconfig(kubeconfig).expect("a kubeconfig that can be used");
    let mut is_ready = || {
        let answer = runtime.block_on(client.bytes(Method::GET, "/readyz", None, Bytes::new()));
        answer.is_ok_and(|(code, _)| code == 200)
    };
    while !is_ready() {
        assert!(Instant::now() < deadline, "kube-apiserver is not ready; its log:\n{}", apiserver.log());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A program, in `$WAYPOST_PEERS` or on the path.
fn program(name: &str) -> PathBuf {
    let peers = std::env::var_os("WAYPOST_PEERS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = peers.into_iter().chain(std::env::split_paths(&path)).map(|place| place.join(name));
    places
        .find(|program| program.is_file())
        .unwrap_or_else(|| panic!("{name} is neither in $WAYPOST_PEERS nor on the path"))
}
