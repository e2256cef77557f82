//! The measured load balancers: the gateway of `waypost up`, nginx and HAProxy, each configured for speed and with the same function.
//!
//! All have as many threads or processes as there are cores, keep connections to the pod, add `X-Forwarded-For`, write no log of requests,
//! and have the same certificate of ECDSA P-256.
#![expect(clippy::disallowed_methods, reason = "a benchmark runs the programs it measures")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use client::http::Client;
use serde_json::json;
use testbed::net::{Process, eventually};
use testbed::session::Session;

use super::stage::{BALANCERS, HOST, Stage, TARGET};
use crate::kubernetes;
use crate::waypost::Waypost;

/// How long a start may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The ports of peers; ours are those of the Service.
const PORTS: (u16, u16) = (8000, 8443);

/// Which load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ours.
    Waypost,
    /// nginx.
    Nginx,
    /// HAProxy.
    Haproxy,
}

/// A load balancer whose program is there.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Which it is.
    pub kind: Kind,
    program: PathBuf,
}

/// One that runs.
pub struct Running {
    /// Its plain-text address.
    pub plain: SocketAddr,
    /// Its TLS address.
    pub tls: SocketAddr,
    process: Process,
}

impl Contender {
    /// Finds its program.
    ///
    /// # Errors
    /// When it is missing.
    pub fn find(kind: Kind) -> anyhow::Result<Self> {
        let program = match kind {
            Kind::Waypost => Waypost::find()?.program().to_owned(),
            Kind::Nginx => kubernetes::program("nginx")?,
            Kind::Haproxy => kubernetes::program("haproxy")?,
        };
        Ok(Self { kind, program })
    }

    /// Its name in the report.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.kind {
            Kind::Waypost => "waypost",
            Kind::Nginx => "nginx",
            Kind::Haproxy => "haproxy",
        }
    }

    /// What is measured.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.kind {
            Kind::Waypost => {
                "waypost up, a Service with the annotations of AWS, by its load balancer's address".to_owned()
            }
            Kind::Nginx | Kind::Haproxy => self.version(),
        }
    }

    fn version(&self) -> String {
        let run = testbed::run(Command::new(&self.program).arg("-v"), "");
        let said = [run.out, run.err].concat();
        said.lines().next().unwrap_or("of unknown version").to_owned()
    }

    /// Starts it on the node.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(&self, stage: &Stage) -> anyhow::Result<Running> {
        match self.kind {
            Kind::Waypost => self.waypost(stage),
            Kind::Nginx => {
                std::fs::write(stage.file("nginx.conf"), nginx(stage)).context("writing nginx.conf")?;
                let mut command = Command::new(&self.program);
                command.arg("-c").arg(stage.file("nginx.conf")).arg("-p").arg(stage.file(""));
                peer(stage, command)
            }
            Kind::Haproxy => {
                std::fs::write(stage.file("haproxy.cfg"), haproxy(stage)).context("writing haproxy.cfg")?;
                let mut command = Command::new(&self.program);
                command.arg("-db").arg("-f").arg(stage.file("haproxy.cfg"));
                peer(stage, command)
            }
        }
    }

    /// `waypost up`, a Secret, a Service that gets an address, and the pod behind it.
    fn waypost(&self, stage: &Stage) -> anyhow::Result<Running> {
        let home = stage.file("waypost");
        // Each round starts from scratch.
        if home.exists() {
            std::fs::remove_dir_all(&home).context("removing what the last round left")?;
        }
        let mut command = Command::new(&self.program);
        command.args([
            "up",
            "--node-name",
            "n1",
            "--workloads",
            "false",
            "--load-balancer-pool",
            BALANCERS,
            "--data-dir",
        ]);
        command.arg(&home);
        let process = stage.node.spawn(command);
        process.wait_for_line("ready", TIMEOUT);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "web"},
            "stringData": {"tls.crt": stage.read("web.crt")?, "tls.key": stage.read("web.key")?},
        });
        let aws = |name: &str| format!("service.beta.kubernetes.io/aws-load-balancer-{name}");
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "annotations": {
                aws("ssl-cert"): "secret://default/web", aws("ssl-ports"): "https", aws("backend-protocol"): "http",
            }},
            "spec": {"type": "LoadBalancer", "ports": [
                {"name": "http", "port": PORTS.0, "targetPort": TARGET}, {"name": "https", "port": PORTS.1, "targetPort": TARGET},
            ]},
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web", "labels": {"kubernetes.io/service-name": "web"}},
            "endpoints": [{"addresses": [stage.pod.v4().to_string()], "conditions": {"ready": true}}],
            "ports": [{"name": "http", "port": TARGET}, {"name": "https", "port": TARGET}],
        });
        let path = "/api/v1/namespaces/default/services/web";
        let balancer = stage.node.in_namespace(|| -> anyhow::Result<_> {
            let mut session = Session::new(Client::from_kubeconfig(&home.join("kubeconfig")).context("a kubeconfig")?);
            let _ = session.post("/api/v1/namespaces/default/secrets", &secret).success();
            let _ = session.post("/api/v1/namespaces/default/services", &service).success();
            let _ = session.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).success();
            let mut found = String::new();
            eventually("the load balancer has an address", || {
                let got = session.get(path).success();
                let ip = got["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().unwrap_or_default();
                ip.clone_into(&mut found);
                !found.is_empty()
            });
            found.parse::<std::net::IpAddr>().context("an address")
        })?;
        Ok(Running { plain: (balancer, PORTS.0).into(), tls: (balancer, PORTS.1).into(), process })
    }
}

impl Running {
    /// The processor time of all its processes so far.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn worked(&self) -> anyhow::Result<Duration> {
        worked(self.process.pid())
    }
}

/// The processor time of a process and of its children so far.
///
/// # Errors
/// When it has ended.
pub(crate) fn worked(root: u32) -> anyhow::Result<Duration> {
    let mut ticks = 0;
    for entry in std::fs::read_dir("/proc").context("reading /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name may hold anything; what follows it does not.
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = |place: usize| fields.get(place).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        if pid == root || number(1) == u64::from(root) {
            ticks += number(11) + number(12);
        }
    }
    ensure!(Path::new(&format!("/proc/{root}/stat")).exists(), "process {root} is gone");
    Ok(Duration::from_millis(ticks * 10))
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that is killed would leave its children behind.
        let _ = self.process.terminate();
    }
}

fn peer(stage: &Stage, command: Command) -> anyhow::Result<Running> {
    let process = stage.node.spawn(command);
    let (plain, tls) = (SocketAddr::new(stage.address(), PORTS.0), SocketAddr::new(stage.address(), PORTS.1));
    Ok(Running { plain, tls, process })
}

fn nginx(stage: &Stage) -> String {
    let (home, target) = (stage.file("").display().to_string(), stage.target());
    let (plain, tls) = PORTS;
    format!(
        "daemon off;\nworker_processes auto;\nworker_rlimit_nofile 65536;\npid {home}/nginx.pid;\nerror_log {home}/nginx.log;\n\
         events {{ worker_connections 16384; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 100000000;\n  ssl_session_cache off;\n  ssl_session_tickets on;\n\
         client_body_temp_path {home}/nb;\n  proxy_temp_path {home}/np;\n  fastcgi_temp_path {home}/nf;\n  uwsgi_temp_path {home}/nu;\n  scgi_temp_path {home}/ns;\n\
         upstream pods {{ server {target}; keepalive 256; keepalive_requests 100000000; }}\n\
         server {{\n    listen {plain};\n    listen {tls} ssl http2;\n    server_name {HOST};\n\
         ssl_certificate {home}/web.crt;\n    ssl_certificate_key {home}/web.key;\n\
         location / {{\n      proxy_pass http://pods;\n      proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n\
         proxy_set_header Host $host;\n      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         proxy_set_header X-Forwarded-Port $server_port;\n      proxy_set_header X-Forwarded-Proto $scheme;\n    }}\n  }}\n}}\n"
    )
}

fn haproxy(stage: &Stage) -> String {
    let (pem, target) = (stage.file("web.pem").display().to_string(), stage.target());
    let (plain, tls) = PORTS;
    format!(
        "global\n  maxconn 8192\ndefaults\n  mode http\n  timeout client 60s\n  timeout server 60s\n  timeout connect 3s\n\
         option forwardfor\n  http-reuse always\n\
         frontend web\n  bind :{plain}\n  bind :{tls} ssl crt {pem} alpn h2,http/1.1\n\
         http-request set-header X-Forwarded-Port %[dst_port]\n  http-request set-header X-Forwarded-Proto https if {{ ssl_fc }}\n\
         http-request set-header X-Forwarded-Proto http if !{{ ssl_fc }}\n  default_backend pods\n\
         backend pods\n  server pod {target} pool-max-conn 256\n"
    )
}
