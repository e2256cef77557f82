//! `waypost up --host-dns`: programs of the machine resolve names, and afterwards use the previous servers.
//!
//! The machine has its own `/etc` and `/run`, so that those of the host are not written to.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

use client::http::Client;
use tempfile::TempDir;
use testbed::Run;
use testbed::net::{Cluster, Node, Outside, Process, eventually, objects};
use testbed::session::{SERVICES, Session};

use crate::discovery::dig::reply;
use crate::proxy::TIMEOUT;

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// What the upstream answers for any name.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

/// The previous name server of the machine.
struct Elsewhere {
    socket: UdpSocket,
    host: Outside,
}

impl Elsewhere {
    fn start(cluster: &Cluster) -> Self {
        let host = cluster.outside("dns");
        let socket = host.in_namespace(|| UdpSocket::bind((host.v4(), 53))).expect("the port of DNS");
        let own = socket.try_clone().expect("a socket");
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Nothing at all ends it.
            while let Ok((length @ 1.., client)) = own.recv_from(&mut buffer) {
                let _ = own.send_to(&reply(&buffer[..length], Some(ELSEWHERE)), client);
            }
        });
        Self { socket, host }
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.socket.send_to(&[], (self.host.v4(), 53));
    }
}

/// A machine with its own files.
struct Machine {
    files: TempDir,
    node: Node,
    before: String,
    _elsewhere: Elsewhere,
    cluster: Cluster,
}

impl Machine {
    fn new() -> Self {
        let cluster = Cluster::new();
        let (node, elsewhere) = (cluster.node("n1"), Elsewhere::start(&cluster));
        let files = testbed::folder();
        let before = format!("search example.org\nnameserver {}\n", elsewhere.host.v4());
        for folder in ["etc", "run", "bin", "data"] {
            std::fs::create_dir(files.path().join(folder)).expect("a folder");
        }
        let machine = Self { files, node, before, _elsewhere: elsewhere, cluster };
        machine.write("etc/resolv.conf", &machine.before);
        machine.write("etc/nsswitch.conf", "hosts: files dns\n");
        machine.write("etc/hosts", "127.0.0.1 localhost\n");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("written");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A program that sees the files of this machine.
    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let (etc, run, bin) = (self.path("etc"), self.path("run"), self.path("bin"));
        let script = format!(
            "mount --bind {} /etc && mount --bind {} /run && PATH={}:$PATH && exec \"$0\" \"$@\"",
            etc.display(),
            run.display(),
            bin.display()
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]).arg(program).args(arguments);
        command
    }

    fn run(&self, line: &str) -> Run {
        let words: Vec<&str> = line.split(' ').collect();
        self.node.run(self.command(Path::new(words[0]), &words[1..]))
    }

    fn up(&self) -> Process {
        let data = self.path("data");
        let arguments = ["up", "--node-name", "n1", "--host-dns", "--data-dir", data.to_str().expect("a name")];
        let process = self.node.spawn(self.command(&testbed::binary(), &arguments));
        process.wait_for_line("configured the host's resolver", TIMEOUT);
        process.wait_for_line("ready", TIMEOUT);
        process
    }

    fn cleanup(&self) -> Run {
        self.node.run(self.command(&testbed::binary(), &["cleanup"]))
    }

    /// The addresses that programs get for a name.
    fn found(&self, name: &str) -> String {
        let run = self.run(&format!("getent ahostsv4 {name}"));
        run.out.lines().next().and_then(|line| line.split(' ').next()).unwrap_or_default().to_owned()
    }

    /// A web server, as a Service.
    fn serve_web(&self) -> Process {
        let pod = self.node.pod("web");
        let web = pod.spawn("python3 -m http.server 8080 --bind 0.0.0.0");
        let service = objects::service("web").cluster_ip("10.96.7.7").port(80).target(8080).json();
        let slice = objects::slice("web").port(8080).address(pod.v4()).json();
        self.node.in_namespace(|| {
            let client = Client::from_kubeconfig(&self.path("data/kubeconfig"));
            let mut session = Session::new(client.expect("a kubeconfig that can be used"));
            let _ = session.post(SERVICES, &service).success();
            let _ = session.post(SLICES, &slice).success();
        });
        web
    }
}

/// What `waypost` writes first into `/etc/resolv.conf`.
const OURS: &str = "# waypost begins\nnameserver 10.96.0.10\nnameserver fd00:10:96::a\n# waypost ends\n";

#[test]
fn s34_programs_of_the_machine_find_names_and_forget_them_after_a_cleanup() {
    let machine = Machine::new();
    let mut up = machine.up();
    assert_eq!(machine.read("etc/resolv.conf"), format!("{OURS}{}", machine.before));
    assert_eq!(machine.found("kubernetes.default.svc.cluster.local"), "10.96.0.1");
    assert_eq!(machine.found("www.example.com"), ELSEWHERE.to_string());
    let _web = machine.serve_web();
    let page = || machine.run("curl --silent --fail --max-time 5 http://web.default.svc.cluster.local/");
    eventually("a page by its name", || page().out.contains("Directory listing"));
    assert!(up.terminate().success());
    let said = machine.cleanup();
    assert!(said.ok && said.err.contains("restored the host's resolv.conf"), "{said:?}");
    assert_eq!(machine.read("etc/resolv.conf"), machine.before);
    assert_eq!(machine.found("www.example.com"), ELSEWHERE.to_string());
    assert!(machine.cleanup().ok);
    assert_eq!(machine.read("etc/resolv.conf"), machine.before);
    drop(machine.cluster);
}

#[test]
fn s34_what_a_power_cut_leaves_in_the_resolver_is_no_circle_and_can_be_cleaned() {
    let machine = Machine::new();
    machine.up().kill();
    assert_eq!(machine.read("etc/resolv.conf"), format!("{OURS}{}", machine.before));
    // The next one reads its own lines there, and must not ask itself.
    let mut up = machine.up();
    assert_eq!(machine.read("etc/resolv.conf"), format!("{OURS}{}", machine.before));
    assert_eq!(machine.found("www.example.com"), ELSEWHERE.to_string());
    assert_eq!(machine.found("kubernetes.default.svc.cluster.local"), "10.96.0.1");
    up.kill();
    let said = machine.cleanup();
    assert!(said.ok, "{said:?}");
    assert_eq!(machine.read("etc/resolv.conf"), machine.before);
}

/// systemd-resolved is not run: the test checks the configuration it would get, and its notification.
#[test]
fn s34_where_systemd_resolved_runs_it_is_told_of_the_domain_only() {
    let machine = Machine::new();
    machine.write("run/systemd/resolve/stub-resolv.conf", "nameserver 127.0.0.53\n");
    machine.write("bin/systemctl", &format!("#!/bin/sh\necho \"$@\" >> {}\n", machine.path("told").display()));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(machine.path("bin/systemctl"), mode).expect("a program");
    machine.up().kill();
    let given = "run/systemd/resolved.conf.d/waypost.conf";
    let text = machine.read(given);
    assert!(text.contains("\n[Resolve]\nDNS=10.96.0.10 fd00:10:96::a\nDomains=~cluster.local\n"), "{text}");
    assert_eq!(machine.read("etc/resolv.conf"), machine.before);
    assert_eq!(machine.read("told"), "try-reload-or-restart systemd-resolved\n");
    let said = machine.cleanup();
    assert!(said.ok, "{said:?}");
    assert!(!machine.path(given).exists());
    assert_eq!(machine.read("told").lines().count(), 2);
}
