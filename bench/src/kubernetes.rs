//! The peer: kube-apiserver with its own etcd, and optionally kube-controller-manager, when their programs are installed.
//!
//! They are configured to their advantage: one etcd member, no TLS to it, certificates made beforehand, all requests are
//! authorized, no audit, the client is in a group whose requests are never queued, leader election is off, and the
//! client-side rate limits of the controllers are lifted.

use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use rest::pki::{self, ServingNames};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::subject::{Process, Running, Starting, Subject};

/// How many requests per second kube-controller-manager may send; its own default is 20.
pub const CONTROLLER_QPS: u32 = 10_000;

/// See the module.
pub struct Kubernetes {
    apiserver: PathBuf,
    etcd: PathBuf,
    controllers: Option<PathBuf>,
    version: String,
}

impl Kubernetes {
    /// The API server and its etcd, in `$WAYPOST_PEERS` or on the path. A file `VERSION` beside them may contain their
    /// versions.
    ///
    /// # Errors
    /// When a program is missing; the error names it.
    pub fn find() -> anyhow::Result<Self> {
        Ok(Self {
            apiserver: program("kube-apiserver")?,
            etcd: program("etcd")?,
            controllers: None,
            version: version(),
        })
    }

    /// The same with kube-controller-manager.
    ///
    /// # Errors
    /// When a program is missing; the error names it.
    pub fn find_with_controllers() -> anyhow::Result<Self> {
        Ok(Self { controllers: Some(program("kube-controller-manager")?), ..Self::find()? })
    }

    /// Starts the controllers, if they are wanted, for the API server that runs in this directory.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn start_controllers(&self, home: &Path, running: &mut Running) -> anyhow::Result<()> {
        let Some(program) = &self.controllers else { return Ok(()) };
        let arguments = [
            format!("--kubeconfig={}", home.join("kubeconfig").display()),
            "--leader-elect=false".to_owned(),
            "--controllers=endpointslice-controller,endpoints-controller,endpointslice-mirroring-controller,\
             garbage-collector-controller,namespace-controller"
                .to_owned(),
            format!("--kube-api-qps={CONTROLLER_QPS}"),
            format!("--kube-api-burst={CONTROLLER_QPS}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", free_port()?),
            format!("--cert-dir={}", home.join("controller-certificates").display()),
        ];
        running.join(Process::spawn(program, &arguments, home, "kube-controller-manager")?);
        Ok(())
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
        let controllers = if self.controllers.is_some() { " + kube-controller-manager" } else { "" };
        format!("kube-apiserver + etcd{controllers} ({})", self.version)
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
            let mut running = Running::when_ready(vec![etcd, apiserver], &kubeconfig, begun).await?;
            self.start_controllers(home, &mut running)?;
            Ok(running)
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
        // It requires the public key too, and accepts a certificate for it; no tokens are used here.
        format!("--service-account-key-file={}", key("server.crt")),
        format!("--service-account-signing-key-file={}", key("server.key")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112".to_owned(),
        "--authorization-mode=AlwaysAllow".to_owned(),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
    ]
}

/// Versions of the peer's programs, as given in the file `VERSION` beside them.
pub(crate) fn version() -> String {
    let peers = std::env::var_os("WAYPOST_PEERS").map(PathBuf::from);
    let text = peers.and_then(|dir| std::fs::read_to_string(dir.join("VERSION")).ok());
    text.map_or_else(|| "version not said".to_owned(), |text| text.trim().replace('\n', ", "))
}

/// A program of the peer, in `$WAYPOST_PEERS` or on the path.
pub(crate) fn program(name: &str) -> anyhow::Result<PathBuf> {
    let peers = std::env::var_os("WAYPOST_PEERS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = peers.into_iter().chain(std::env::split_paths(&path)).map(|place| place.join(name));
    places.find(|program| program.is_file()).with_context(|| {
        format!("{name} is missing: WAYPOST_PEERS names no directory that holds it, and it is not on the path")
    })
}

/// A port that was free a moment ago.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("looking for a free port")?;
    Ok(listener.local_addr().context("looking for a free port")?.port())
}
