//! The peer: kube-apiserver and an etcd of its own, when their programs are there.
//!
//! Both are set up to their advantage: one member, no TLS between the two, certificates made beforehand, everybody may do
//! everything, no audit, and the client is of a group whose requests are never queued.

use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use rest::pki::{self, ServingNames};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::subject::{Process, Running, Starting, Subject};

/// See the module.
pub struct Kubernetes {
    apiserver: PathBuf,
    etcd: PathBuf,
    version: String,
}

impl Kubernetes {
    /// The programs, in `$WAYPOST_PEERS` or on the path. A file `VERSION` beside them may say which they are.
    #[must_use]
    pub fn find() -> Option<Self> {
        let peers = std::env::var_os("WAYPOST_PEERS").map(PathBuf::from);
        let version = peers.as_ref().and_then(|dir| std::fs::read_to_string(dir.join("VERSION")).ok());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places: Vec<PathBuf> = peers.into_iter().chain(std::env::split_paths(&path)).collect();
        let find = |name: &str| places.iter().map(|place| place.join(name)).find(|program| program.is_file());
        Some(Self {
            apiserver: find("kube-apiserver")?,
            etcd: find("etcd")?,
            version: version.map_or_else(|| "version not said".to_owned(), |text| text.trim().replace('\n', ", ")),
        })
    }

    /// Starts etcd and waits until it listens.
    async fn start_etcd(&self, home: &Path, url: &str, port: u16) -> anyhow::Result<Process> {
        let peer_url = format!("http://127.0.0.1:{}", free_port()?);
        let arguments = [
            format!("--data-dir={}", home.join("etcd").display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=default={peer_url}"),
            "--log-level=error".to_owned(),
        ];
        let mut process = Process::spawn(&self.etcd, &arguments, home, "etcd")?;
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            process.check()?;
            anyhow::ensure!(Instant::now() < deadline, "etcd does not listen");
            sleep(Duration::from_millis(5)).await;
        }
        Ok(process)
    }
}

impl Subject for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn describe(&self) -> String {
        format!("kube-apiserver + etcd ({})", self.version)
    }

    fn start<'a>(&'a self, home: &'a Path) -> Starting<'a> {
        Box::pin(async move {
            let loopback = IpAddr::from([127, 0, 0, 1]);
            let names = ServingNames { ips: vec![loopback], dns: vec!["localhost".to_owned()] };
            let keys = home.join("pki");
            let pki = pki::load_or_create(&keys, &names, Timestamp::now()).context("making certificates")?;
            let (etcd_port, port) = (free_port()?, free_port()?);
            let kubeconfig = home.join("kubeconfig");
            rest::kubeconfig::write_admin(&kubeconfig, &format!("https://127.0.0.1:{port}"), &pki)?;
            let url = format!("http://127.0.0.1:{etcd_port}");
            let etcd = self.start_etcd(home, &url, etcd_port).await?;
            let begun = Instant::now();
            let apiserver = Process::spawn(&self.apiserver, &arguments(&keys, &url, port), home, "kube-apiserver")?;
            Running::when_ready(vec![etcd, apiserver], &kubeconfig, begun).await
        })
    }
}

fn arguments(keys: &Path, etcd: &str, port: u16) -> Vec<String> {
    let key = |name: &str| keys.join(name).display().to_string();
    vec![
        format!("--etcd-servers={etcd}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", key("server.crt")),
        format!("--tls-private-key-file={}", key("server.key")),
        format!("--client-ca-file={}", key("ca.crt")),
        // It wants the public half too, and takes a certificate for it; no tokens are used here.
        format!("--service-account-key-file={}", key("server.crt")),
        format!("--service-account-signing-key-file={}", key("server.key")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112".to_owned(),
        "--authorization-mode=AlwaysAllow".to_owned(),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
    ]
}

/// A port that was free a moment ago.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("looking for a free port")?;
    Ok(listener.local_addr().context("looking for a free port")?.port())
}
