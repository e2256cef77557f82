//! Privilege separation: who the processes of `waypost up` and `waypost server` are, what they may, and who may come to their socket.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use client::http::Client;
use serde_json::json;
use tempfile::TempDir;
use testbed::net::{Cluster, Node, Process, eventually};
use testbed::session::{SERVICES, Session};
use testbed::{Home, SERVER_USER as USER, Server, server_command};

mod units;

const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// A line of `/proc/PID/status`.
fn status(pid: u32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process");
    let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no {key} in {text}")).trim().to_owned()
}

/// The process without any right but to be the API server's user.
#[track_caller]
fn assert_powerless(pid: u32) {
    assert_eq!(status(pid, "Uid"), [USER; 4].map(|uid| uid.to_string()).join("\t"));
    assert_eq!(status(pid, "Gid"), [USER; 4].map(|gid| gid.to_string()).join("\t"));
    assert_eq!(status(pid, "Groups"), "");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status(pid, set), "0000000000000000", "{set}");
    }
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").filter_map(Result::ok);
    for thread in threads {
        let text = std::fs::read_to_string(thread.path().join("status")).expect("a thread");
        assert!(text.contains("CapEff:\t0000000000000000"), "{text}");
    }
}

/// A machine on which `waypost up` runs, its data below a directory that others can enter.
struct Machine {
    node: Node,
    home: TempDir,
    process: Process,
    _cluster: Cluster,
}

impl Machine {
    fn new(arguments: &[&str]) -> Self {
        Self::with(testbed::folder(), arguments)
    }

    fn with(home: TempDir, arguments: &[&str]) -> Self {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let process = node.spawn(command(home.path(), arguments));
        process.wait_for_line(" ready ", TIMEOUT);
        Self { node, home, process, _cluster: cluster }
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// The process that has the API's port: the only child, identified by its name.
    fn server(&self) -> u32 {
        let own = self.process.pid();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).expect("its children");
        let is_server = |pid: &u32| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"waypost-api-server\0"))
        };
        let mut servers = children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(is_server);
        let found = servers.next().unwrap_or_else(|| panic!("no API server among {children}"));
        assert_eq!(servers.next(), None, "there is one");
        let listening = self.node.run("ss -Hltnp sport = :6443").success();
        assert!(listening.contains(&format!("pid={found},")), "{listening}");
        found
    }

    fn session(&self) -> Session {
        let kubeconfig = self.data().join("kubeconfig");
        self.node.in_namespace(|| Session::new(Client::from_kubeconfig(&kubeconfig).expect("a kubeconfig")))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.process.kill();
        let mut command = Command::new(testbed::binary());
        command.args(["cleanup", "--data-dir"]).arg(self.data());
        let run = self.node.run(command);
        assert!(run.ok || std::thread::panicking(), "cleanup: {}", run.err);
    }
}

fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(testbed::binary());
    command.args(["up", "--node-name", "n1", "--data-dir"]).arg(home.join("data")).args(arguments);
    command
}

fn signal(pid: u32, name: &str) {
    let _ = testbed::run(Command::new("kill").args(["-s", name, &pid.to_string()]), "").success();
}

fn owner(path: impl AsRef<Path>) -> u32 {
    std::fs::symlink_metadata(path).expect("a file").uid()
}

#[test]
fn b03_the_api_server_of_up_is_a_user_without_rights() {
    let machine = Machine::new(&[]);
    let server = machine.server();
    assert_powerless(server);
    assert_eq!(status(machine.process.pid(), "Uid"), "0\t0\t0\t0", "the agent stays root");
    let own = u64::from_str_radix(&status(machine.process.pid(), "CapEff"), 16).expect("a number");
    // SYS_MODULE, SYS_RAWIO, SYS_BOOT, SYS_TIME, MAC_ADMIN
    for bit in [16, 17, 22, 25, 33] {
        assert_eq!(own & (1 << bit), 0, "capability {bit}: {own:x}");
    }
    let data = machine.data();
    for (path, uid) in [("", 0), ("store", USER), ("pki", USER), ("agent", 0), ("kubeconfig", 0), ("api.sock", 0)] {
        assert_eq!(owner(data.join(path)), uid, "{path}");
    }
    // As that user the agent's files cannot be read.
    let secret = data.join("agent/secret");
    std::fs::write(&secret, "x").expect("written");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("closed");
    let user = USER.to_string();
    let cat = |path: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "cat"]).arg(path);
        testbed::run(&mut command, "")
    };
    assert!(cat(&secret).failure().contains("Permission denied"));
    assert!(cat(&data.join("kubeconfig")).failure().contains("Permission denied"));
    assert!(cat(&data.join("pki/ca.crt")).ok, "its own files it can read");
    std::fs::remove_file(secret).expect("removed");
}

#[test]
fn b03_without_pods_the_rest_of_up_keeps_three_capabilities() {
    let machine = Machine::new(&["--workloads=false"]);
    // NET_BIND_SERVICE, NET_ADMIN, NET_RAW
    let services = (1_u64 << 10) | (1 << 12) | (1 << 13);
    for (set, wanted) in [("CapEff", services), ("CapPrm", services), ("CapBnd", services | (1 << 16)), ("CapInh", 0)] {
        let have = u64::from_str_radix(&status(machine.process.pid(), set), 16).expect("a number");
        assert_eq!(have, wanted, "{set}: {have:x}");
    }
    assert_powerless(machine.server());
}

#[test]
fn b03_the_socket_of_the_api_server_is_for_root_alone() {
    let machine = Machine::new(&["--workloads=false"]);
    let path = machine.data().join("api.sock");
    assert_eq!(std::fs::metadata(&path).expect("a socket").permissions().mode() & 0o777, 0o600);
    let ask = |mut stream: UnixStream| {
        let mut answer = String::new();
        match stream.write_all(b"GET /api/v1/secrets HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return answer,
            Err(error) => panic!("{error}"),
        }
        match stream.read_to_string(&mut answer) {
            Ok(_) => answer,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => answer,
            Err(error) => panic!("{error}"),
        }
    };
    let as_root = ask(UnixStream::connect(&path).expect("root may connect"));
    assert!(as_root.starts_with("HTTP/1.1 200"), "{as_root}");
    // Even where the file mode admits others, the kernel reports their credentials.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("opened");
    for uid in [USER, 65_534] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &uid.to_string(), "--regid", &USER.to_string(), "--clear-groups"]);
        command.args(["curl", "--silent", "--show-error", "--unix-socket"]).arg(&path);
        let run = testbed::run(command.arg("http://localhost/api/v1/secrets"), "");
        assert!(!run.ok && run.out.is_empty(), "uid {uid}: {run:?}");
        let uid = uid.to_string();
        let is_said = |line: &str| line.contains("refused local connection of another user") && line.contains(&uid);
        eventually("it is logged", || machine.process.log().lines().any(is_said));
    }
    let again = ask(UnixStream::connect(&path).expect("root may connect"));
    assert!(again.starts_with("HTTP/1.1 200"), "{again}");
}

#[test]
fn b03_one_process_does_not_outlive_the_other() {
    let mut machine = Machine::new(&["--workloads=false"]);
    signal(machine.server(), "KILL");
    let ended = machine.process.wait();
    assert_eq!(ended.code(), Some(1), "{}", machine.process.log());
    assert!(machine.process.log().contains("the API server has ended"), "{}", machine.process.log());
    // And again, at once, on the same port and store, after the other was killed.
    for _ in 0..3 {
        machine.process = machine.node.spawn(command(machine.home.path(), &["--workloads=false"]));
        machine.process.wait_for_line(" ready ", TIMEOUT);
        let server = machine.server();
        machine.process.kill();
        eventually("the API server ends with its parent", || {
            !Path::new(&format!("/proc/{server}")).exists() || status(server, "State").starts_with('Z')
        });
    }
    machine.process = machine.node.spawn(command(machine.home.path(), &["--workloads=false"]));
    machine.process.wait_for_line(" ready ", TIMEOUT);
    let server = machine.server();
    let ended = machine.process.terminate();
    assert!(ended.success(), "{}", machine.process.log());
    assert!(!Path::new(&format!("/proc/{server}")).exists(), "it was waited for");
    assert!(!machine.data().join("api.sock").exists());
}

#[test]
fn b03_one_data_directory_has_one_up() {
    let machine = Machine::new(&["--workloads=false"]);
    let run = machine.node.run(command(machine.home.path(), &["--workloads=false", "--listen", "127.0.0.1:0"]));
    let said = run.failure();
    assert!(said.contains("another `waypost up` serves"), "{said}");
    let mut session = machine.session();
    let _ = machine.node.in_namespace(|| session.get(SERVICES)).success();
}

#[test]
fn b03_data_that_belonged_to_root_are_taken_over() {
    let home = testbed::folder();
    let data = home.path().join("data");
    {
        let machine = Machine::with(home, &["--user", "root"]);
        assert_eq!(status(machine.process.pid(), "Uid"), "0\t0\t0\t0");
        assert_eq!(owner(data.join("store")), 0);
        let mut session = machine.session();
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "old"},
            "spec": {"ports": [{"port": 80}]}});
        let _ = machine.node.in_namespace(|| session.post(SERVICES, &service)).success();
        let mut machine = machine;
        assert!(machine.process.terminate().success());
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).expect("closed");
        machine.process = machine.node.spawn(command(machine.home.path(), &[]));
        machine.process.wait_for_line(" ready ", TIMEOUT);
        assert_powerless(machine.server());
        let mut session = machine.session();
        let found = machine.node.in_namespace(|| session.get(&format!("{SERVICES}/old"))).success();
        assert_eq!(found["metadata"]["name"], "old");
        for entry in std::fs::read_dir(data.join("store")).expect("files").filter_map(Result::ok) {
            assert_eq!(owner(entry.path()), USER, "{:?}", entry.path());
        }
    }
}

#[test]
fn b03_server_becomes_its_user_and_its_data_too() {
    let home = testbed::folder();
    let data = home.path().join("data");
    let server = Server::start_with(Home::Kept(data.clone()), &[]);
    assert_powerless(server.pid());
    for path in ["", "store", "pki", "kubeconfig"] {
        assert_eq!(owner(data.join(path)), USER, "{path}");
    }
    assert!(server.kubectl("get services").ok);
    drop(server);
    let server = Server::start_with(Home::Kept(data), &["--user", "1234:1235"]);
    assert_eq!(status(server.pid(), "Uid"), "1234\t1234\t1234\t1234");
    assert_eq!(status(server.pid(), "Gid"), "1235\t1235\t1235\t1235");
    assert!(server.kubectl("get services").ok);
}

#[test]
fn b03_nothing_outside_the_data_directory_changes_hands() {
    let home = testbed::folder();
    let (data, victim) = (home.path().join("data"), home.path().join("victim"));
    drop(Server::start_with(Home::Kept(data.clone()), &[]));
    std::fs::write(&victim, "x").expect("written");
    let refuse = |what: &str| {
        let said = Server::start_refused(server_command(&data, &[])).err;
        assert!(said.contains(what) && said.contains("--user root"), "{said}");
        assert_eq!(owner(&victim), 0);
    };
    let planted = data.join("store/planted");
    std::os::unix::fs::symlink(&victim, &planted).expect("a link");
    refuse("symbolic link");
    std::fs::remove_file(&planted).expect("removed");
    std::fs::hard_link(&victim, &planted).expect("a link");
    refuse("hard link");
    std::fs::remove_file(&planted).expect("removed");
    std::fs::write(&planted, "x").expect("written");
    chown(&planted, Some(1234), None).expect("given");
    refuse("belongs to uid 1234");
    std::fs::remove_file(&planted).expect("removed");
    // The directory of another user, with other things in it, is not taken either.
    let other = home.path().join("other");
    std::fs::create_dir(&other).expect("a directory");
    std::fs::write(other.join("theirs"), "x").expect("written");
    let said = Server::start_refused(server_command(&other, &["--user", "60643"])).err;
    assert!(said.contains("is not one of waypost") && owner(&other) == 0, "{said}");
}

#[test]
fn b03_what_the_user_cannot_read_is_said() {
    let home = testbed::folder();
    let (data, closed) = (home.path().join("data"), home.path().join("closed"));
    std::fs::create_dir(&closed).expect("a directory");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).expect("closed");
    let tokens = closed.join("tokens.csv");
    std::fs::write(&tokens, "t,u,1\n").expect("written");
    let path = tokens.to_str().expect("a name");
    let refused = |data: &Path, more: &[&str]| {
        Server::start_refused(server_command(data, &[&["--user", "60643"], more].concat())).err
    };
    let said = refused(&data, &["--token-auth-file", path]);
    for part in ["--token-auth-file", path, "uid 60643", &format!("chmod o+x {}", closed.display())] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = refused(&closed.join("data"), &[]);
    assert!(said.contains("cannot enter") && said.contains("--data-dir"), "{said}");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).expect("opened");
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).expect("closed");
    assert!(refused(&data, &["--token-auth-file", path]).contains(&format!("chown 60643 {path}")));
    let said = Server::start_refused(server_command(&closed.join("data"), &["--user", "ada"])).err;
    assert!(said.contains("there is no user ada in /etc/passwd"), "{said}");
}

#[test]
fn b03_where_no_user_was_asked_for_a_closed_directory_keeps_the_server_root() {
    let home = testbed::folder();
    let closed = home.path().join("closed");
    std::fs::create_dir(&closed).expect("a directory");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).expect("closed");
    let mut server = Server::start_with(Home::Kept(closed.join("data")), &[]);
    assert_eq!(status(server.pid(), "Uid"), "0\t0\t0\t0");
    assert!(server.kubectl("get services").ok);
    assert!(server.terminate().success());
    assert!(server.whole_log().contains("the API server runs as root"));
}

#[test]
fn b03_a_port_below_1024_costs_one_capability() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let home = testbed::folder();
    let mut command = Command::new(testbed::binary());
    command.args(["server", "--listen", "127.0.0.1:443", "--data-dir"]).arg(home.path().join("data"));
    let mut process = node.spawn(command);
    process.wait_for_line(" ready ", TIMEOUT);
    assert_eq!(status(process.pid(), "CapEff"), "0000000000000400", "NET_BIND_SERVICE");
    assert_eq!(status(process.pid(), "CapBnd"), "0000000000000400");
    assert_eq!(status(process.pid(), "NoNewPrivs"), "1");
    assert!(process.terminate().success(), "{}", process.log());
}
