//! Looking into Pods with the real kubectl: logs, exec, attach, port-forward, cp; over WebSocket, which it prefers, and over SPDY, which it
//! spoke before and falls back to. Older ones than 1.30 speak SPDY both times.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agent::workloads::ContainerId;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use testbed::agent::Agent;
use testbed::session::Session;
use testbed::{Run, Server, run};

/// How long anything here may take at most.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The streaming protocol of kubectl.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    WebSocket,
    Spdy,
}

const WAYS: [Way; 2] = [Way::WebSocket, Way::Spdy];

/// A server, an agent, and a Pod `web` with the container `main`.
struct Bed {
    server: Server,
    session: Session,
    agent: Agent,
    main: ContainerId,
}

impl Bed {
    fn start() -> Self {
        let server = Server::start();
        let mut session = server.session();
        let agent = Agent::start(&server, &mut session);
        let main = agent.pod(&mut session, "web", &["main"]).remove(0);
        Self { server, session, agent, main }
    }

    fn kubectl(&self, way: Way) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.server.kubeconfig());
        command.arg("--cache-dir").arg(self.server.home().join("kubectl-cache"));
        let on = if way == Way::WebSocket { "true" } else { "false" };
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", on).env("KUBECTL_PORT_FORWARD_WEBSOCKETS", on);
        command
    }

    fn run(&self, way: Way, arguments: &[&str], input: &str) -> Run {
        run(self.kubectl(way).args(arguments), input)
    }

    /// kubectl with its own terminal, of 132 columns and 50 lines.
    fn in_terminal(&self, way: Way, line: &str, input: &str) -> Run {
        let config = self.server.kubeconfig();
        let line = format!("stty cols 132 rows 50; kubectl --kubeconfig {} {line}", config.display());
        let on = if way == Way::WebSocket { "true" } else { "false" };
        let mut command = Command::new("script");
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", on);
        run(command.args(["-qfec", &line, "/dev/null"]), input)
    }
}

#[test]
fn commands_say_what_they_say_and_how_they_ended() {
    let bed = Bed::start();
    for way in WAYS {
        assert_eq!(bed.run(way, &["exec", "web", "--", "echo", "a  b", "c"], "").success(), "a  b c\n", "{way:?}");
        let run = bed.run(way, &["exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 7"], "");
        assert_eq!((run.code, run.out.as_str()), (Some(7), "out\n"), "{way:?}");
        assert!(run.err.starts_with("err\n") && run.err.contains("exit code 7"), "{way:?} {}", run.err);
        let run = bed.run(way, &["exec", "web", "--", "no-such-program"], "");
        assert!(run.failure().contains("error executing command in container"), "{way:?}");
    }
}

#[test]
fn input_reaches_a_command_to_its_end() {
    let bed = Bed::start();
    let much: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    for way in WAYS {
        assert_eq!(bed.run(way, &["exec", "-i", "web", "--", "cat"], "hello").success(), "hello", "{way:?}");
        assert_eq!(
            bed.run(way, &["exec", "-i", "web", "--", "wc", "-c"], &much).success(),
            format!("{}\n", much.len())
        );
        let back = bed.run(way, &["exec", "-i", "web", "--", "cat"], &much).success();
        assert!(back == much, "{way:?}: {} of {} bytes came back", back.len(), much.len());
    }
}

#[test]
fn much_output_comes_whole() {
    let bed = Bed::start();
    for way in WAYS {
        let out = bed.run(way, &["exec", "web", "--", "head", "-c", "20000000", "/dev/zero"], "").success();
        assert_eq!(out.len(), 20_000_000, "{way:?}");
    }
}

#[test]
fn a_terminal_is_one_and_has_a_size() {
    let bed = Bed::start();
    for way in WAYS {
        let run = bed.in_terminal(way, "exec -it web -- tty", "");
        assert!(run.out.contains("/dev/pts/"), "{way:?} {run:?}");
        let run = bed.in_terminal(way, "exec -it web -- fake sizes 1", "");
        assert!(run.out.contains("132x50"), "{way:?} {run:?}");
        let run = bed.in_terminal(way, "exec -it web -- 'sh -c \"exit 5\"'", "");
        assert_eq!(run.code, Some(5), "{way:?} {run:?}");
    }
}

#[test]
fn attaching_joins_the_process_that_is_there() {
    let bed = Bed::start();
    for way in WAYS {
        let run = bed.run(way, &["attach", "-i", "web"], "typed\n");
        assert!(run.out.contains("typed\n"), "{way:?} {run:?}");
        assert!(run.ok, "{way:?} {run:?}");
    }
}

#[test]
fn containers_that_are_not_there_or_not_named() {
    let mut bed = Bed::start();
    bed.agent.pod(&mut bed.session, "two", &["a", "b"]);
    let (agent, session) = (&bed.agent, &mut bed.session);
    agent.fake.end(&agent.pod(session, "done", &["main"])[0]);
    let pods = "/api/v1/namespaces/default/pods";
    let lonely = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lonely"},
                        "spec": {"containers": [{"name": "c", "image": "host"}]}});
    let _ = bed.session.post(pods, &lonely).success();
    let choose = "a container name must be specified for pod two, choose one of: [a b]";
    assert_eq!(bed.session.get(&format!("{pods}/two/log")).refused(400), choose);
    assert_eq!(
        bed.session.get(&format!("{pods}/two/log?container=c")).refused(400),
        "container c is not valid for pod two"
    );
    assert_eq!(bed.session.get(&format!("{pods}/none/exec?command=x")).refused(404), "pods \"none\" not found");
    let no_host = "pod lonely does not have a host assigned";
    assert_eq!(bed.session.get(&format!("{pods}/lonely/exec?command=x&stdout=1")).refused(400), no_host);
    let refused = bed.session.merge(&format!("{pods}/web/ephemeralcontainers"), &json!({"spec": {}})).refused(400);
    assert!(refused.contains("ephemeral containers cannot be added to pod web"), "{refused}");
    for way in WAYS {
        let refused = bed.run(way, &["exec", "two", "-c", "c", "--", "true"], "").failure();
        assert!(
            refused.contains("container c is not valid for pod two") || refused.contains("container c not found"),
            "{way:?} {refused}"
        );
        let refused = bed.run(way, &["exec", "none", "--", "true"], "").failure();
        assert!(refused.contains("pods \"none\" not found"), "{way:?} {refused}");
        let refused = bed.run(way, &["exec", "done", "--", "true"], "").failure();
        assert!(refused.contains("is not running: exited with 0"), "{way:?} {refused}");
    }
}

#[test]
fn logs_in_parts_and_as_they_are_written() {
    let bed = Bed::start();
    let now = Timestamp::now();
    bed.agent.fake.log(&bed.main, now, "of before");
    bed.agent.fake.restart(&bed.main);
    for (ago, line) in [(3600, "an hour ago"), (60, "a minute ago"), (1, "just now")] {
        bed.agent.fake.log(&bed.main, now - SignedDuration::from_secs(ago), line);
    }
    let logs = |arguments: &[&str]| bed.run(Way::WebSocket, &[&["logs", "web"], arguments].concat(), "");
    assert_eq!(logs(&[]).success(), "an hour ago\na minute ago\njust now\n");
    assert_eq!(logs(&["-c", "main", "--tail=1"]).success(), "just now\n");
    assert_eq!(logs(&["--since=10m"]).success(), "a minute ago\njust now\n");
    assert_eq!(logs(&["--limit-bytes=7"]).success(), "an hour");
    assert_eq!(logs(&["--previous"]).success(), "of before\n");
    let stamped = logs(&["--timestamps", "--tail=1"]).success();
    assert!(stamped.ends_with("Z just now\n") && stamped.starts_with("20"), "{stamped}");
    assert!(logs(&["-c", "other"]).failure().contains("container other is not valid for pod web"));

    let mut following = bed.kubectl(Way::WebSocket);
    let mut following =
        Killed(following.args(["logs", "-f", "--tail=1", "web"]).stdout(Stdio::piped()).spawn().expect("kubectl"));
    let mut lines = BufReader::new(following.0.stdout.take().expect("its output")).lines();
    let mut next = move || lines.next().map(|line| line.expect("text"));
    assert_eq!(next().as_deref(), Some("just now"));
    bed.agent.fake.log(&bed.main, Timestamp::now(), "and now");
    assert_eq!(next().as_deref(), Some("and now"));
    bed.agent.fake.end(&bed.main);
    assert_eq!(next(), None);
    assert!(following.0.wait().expect("it ends").success());
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server on this address that returns what it received once its client has finished.
fn echo(address: &str) -> u16 {
    let listener = TcpListener::bind((address, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            std::thread::spawn(move || {
                let mut all = Vec::new();
                // A client that breaks off gets no answer.
                if socket.read_to_end(&mut all).is_ok() {
                    let _ = socket.write_all(&all);
                }
            });
        }
    });
    port
}

/// Sends, finishes, reads to the end.
fn exchange(address: &str, port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect((address, port)).expect("a forwarded port");
    socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut writer = socket.try_clone().expect("another handle");
    let sent = bytes.to_vec();
    let writing = std::thread::spawn(move || {
        writer.write_all(&sent).expect("it is read");
        writer.shutdown(Shutdown::Write).expect("finished");
    });
    let mut back = Vec::new();
    socket.read_to_end(&mut back).expect("an answer");
    writing.join().expect("written");
    back
}

/// Starts port-forward; gives the local port.
fn forwarded(bed: &Bed, way: Way, remote: u16) -> (Killed, u16) {
    let mut command = bed.kubectl(way);
    let child = command.args(["port-forward", "web", &format!(":{remote}")]).stdout(Stdio::piped()).spawn();
    let mut child = Killed(child.expect("kubectl"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("its output")).lines();
    let mut ports = Vec::new();
    while ports.len() < 2 {
        let line = lines.next().expect("it forwards").expect("text");
        if let Some(rest) = line.strip_prefix("Forwarding from ") {
            let port = rest.split(" -> ").next().and_then(|address| address.rsplit(':').next()).expect("a port");
            ports.push(port.parse::<u16>().expect("a number"));
        }
    }
    // It keeps reporting each connection.
    std::thread::spawn(move || for _ in lines {});
    assert_eq!(ports[0], ports[1]);
    (child, ports[0])
}

#[test]
fn forwarded_ports_carry_many_connections_of_both_families() {
    let bed = Bed::start();
    for (way, inside) in
        [(Way::WebSocket, "127.0.0.1"), (Way::Spdy, "127.0.0.1"), (Way::WebSocket, "::1"), (Way::Spdy, "::1")]
    {
        let (_kubectl, port) = forwarded(&bed, way, echo(inside));
        for local in ["127.0.0.1", "::1"] {
            assert_eq!(exchange(local, port, b"hello"), b"hello", "{way:?} {inside} {local}");
        }
        let clients: Vec<_> = (0..40u8)
            .map(|number| {
                std::thread::spawn(move || exchange("127.0.0.1", port, &vec![number; 100_000]) == vec![number; 100_000])
            })
            .collect();
        assert!(clients.into_iter().all(|client| client.join().expect("an exchange")), "{way:?} {inside}");
        let much = vec![7; 20_000_000];
        assert!(exchange("127.0.0.1", port, &much) == much, "{way:?} {inside}");
    }
}

#[test]
fn a_port_nobody_listens_on_is_said() {
    let bed = Bed::start();
    for way in WAYS {
        let dead = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        let mut command = bed.kubectl(way);
        command.args(["port-forward", "web", &format!(":{dead}")]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Killed(command.spawn().expect("kubectl"));
        let mut lines = BufReader::new(child.0.stdout.take().expect("its output")).lines();
        let first = lines.next().expect("it forwards").expect("text");
        let port = first.split(" -> ").next().and_then(|address| address.rsplit(':').next()).expect("a port");
        let _ = exchange("127.0.0.1", port.parse().expect("a number"), b"");
        let mut errors = BufReader::new(child.0.stderr.take().expect("its complaints")).lines();
        let said = errors
            .find_map(|line| line.ok().filter(|line| line.contains("error forwarding port")))
            .expect("a complaint");
        assert!(said.contains(&format!("error forwarding port {dead} to pod web")), "{way:?} {said}");
    }
}

#[test]
fn files_are_copied_both_ways() {
    let bed = Bed::start();
    let dir = testbed::folder();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::create_dir(path("there")).expect("a directory");
    let content: Vec<u8> = (0..3_000_000u32).map(|number| number.to_le_bytes()[0]).collect();
    std::fs::write(path("file"), &content).expect("written");
    for way in WAYS {
        let _ = bed.run(way, &["cp", &path("file"), &format!("web:{}", path("there/copy"))], "").success();
        assert!(std::fs::read(path("there/copy")).expect("a copy") == content, "{way:?}");
        let _ = bed.run(way, &["cp", &format!("web:{}", path("there/copy")), &path("back")], "").success();
        assert!(std::fs::read(path("back")).expect("a copy") == content, "{way:?}");
        std::fs::remove_file(path("there/copy")).expect("removed");
        std::fs::remove_file(path("back")).expect("removed");
    }
}

#[test]
fn a_node_is_asked_only_what_agents_know() {
    let mut bed = Bed::start();
    let list = bed.session.get("/api/v1/nodes/n1/proxy/pods").success();
    assert_eq!(list["items"][0]["metadata"]["name"], "web");
    let port = bed.agent.address.port();
    let _ = bed.session.get(&format!("/api/v1/nodes/https:n1:{port}/proxy/pods")).success();
    for (path, text) in [
        ("n1/proxy/logs/", "pods/"),
        (format!("n1:{port}/proxy/logs/").as_str(), "pods/"),
        ("n1/proxy/metrics", "# EOF"),
    ] {
        let page = bed.run(Way::WebSocket, &["get", "--raw", &format!("/api/v1/nodes/{path}")], "").success();
        assert!(page.contains(text), "{path}: {page}");
    }
    assert!(bed.session.get("/api/v1/nodes/n1/proxy/debug/pprof").refused(400).contains("the agent of a node has no"));
    assert!(bed.session.get("/api/v1/nodes/n1:22/proxy/pods").refused(400).contains("only the agent of a node"));
    assert_eq!(bed.session.get("/api/v1/nodes/n2/proxy/pods").refused(404), "nodes \"n2\" not found");
    drop(bed.agent);
    assert!(bed.session.get("/api/v1/nodes/n1/proxy/pods").refused(500).contains("error dialing backend"));
}

#[test]
fn an_agent_hears_only_the_server() {
    let bed = Bed::start();
    // The administrator may do everything, but not this way.
    let config = std::fs::read_to_string(bed.server.kubeconfig()).expect("a kubeconfig");
    let value = |name: &str| {
        let line = config.lines().find(|line| line.trim_start().starts_with(name)).expect("a line");
        line.split_once(':').expect("a value").1.trim().trim_matches('"').to_owned()
    };
    let dir = testbed::folder();
    for (name, key) in
        [("ca", "certificate-authority-data"), ("crt", "client-certificate-data"), ("key", "client-key-data")]
    {
        let text = run(Command::new("base64").arg("-d"), &value(key)).success();
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    let url = format!("https://{}/pods", bed.agent.address);
    let file = |name: &str| dir.path().join(name).display().to_string();
    let pki = bed.server.home().join("pki");
    let own = |name: &str| pki.join(name).display().to_string();
    let curl = |ca: &str, more: &[&str]| run(Command::new("curl").args(["-sS", "--cacert", ca, &url]).args(more), "");
    let agent_ca = own("agent-ca.crt");
    assert!(!curl(&agent_ca, &[]).ok, "no certificate");
    assert!(!curl(&agent_ca, &["--cert", &file("crt"), "--key", &file("key")]).ok, "the administrator's");
    let server = ["--cert", &own("agents.crt"), "--key", &own("agents.key")];
    assert!(curl(&agent_ca, &server).success().contains("PodList"));
    assert!(!curl(&file("ca"), &server).ok, "clients of the API do not trust what agents show");
}
