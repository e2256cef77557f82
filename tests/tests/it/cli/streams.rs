//! `waypost logs`, `exec` and `port-forward`, through a real server to a real agent whose Pods are not.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use agent::workloads::ContainerId;
use jiff::{SignedDuration, Timestamp};
use testbed::agent::Agent;
use testbed::session::Session;
use testbed::{binary, run};

use super::Desk;

/// A desk, an agent, and a Pod `web` with the container `main`.
struct Bed {
    desk: Desk,
    session: Session,
    agent: Agent,
    main: ContainerId,
}

impl Bed {
    fn start() -> Self {
        let desk = Desk::start();
        let mut session = desk.server.session();
        let agent = Agent::start(&desk.server, &mut session);
        let main = agent.pod(&mut session, "web", &["main"]).remove(0);
        Self { desk, session, agent, main }
    }
}

#[test]
fn commands_say_what_they_say_and_their_exit_code_is_passed_on() {
    let bed = Bed::start();
    assert_eq!(bed.desk.ok("exec web -- echo 'a  b' c"), "a  b c\n");
    assert_eq!(bed.desk.ok("exec pod/web -c main -- printf '[%s]' ''"), "[]");
    let run = bed.desk.run("exec web -- sh -c 'echo out; echo err >&2; exit 7'", "");
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (Some(7), "out\n", "err\n"));
    assert!(bed.desk.fails("exec web -- no-such-program").contains("error executing command in container"));
    assert!(bed.desk.fails("exec web -c nope -- true").contains("it has: main"));
    assert!(bed.desk.fails("exec wbe -- true").contains("did you mean \"web\""));
}

#[test]
fn input_reaches_a_command_to_its_end_and_much_output_comes_whole() {
    let bed = Bed::start();
    let much: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(bed.desk.ok_with("exec -i web -- wc -c", &much), format!("{}\n", much.len()));
    let back = bed.desk.ok_with("exec -i web -- cat", &much);
    assert!(back == much, "{} of {} bytes came back", back.len(), much.len());
}

#[test]
fn a_terminal_is_one_and_has_a_size() {
    let bed = Bed::start();
    let with = |words: &str| {
        let config = bed.desk.server.kubeconfig();
        let line = format!(
            "stty cols 132 rows 50; {} exec -it web --kubeconfig {} -- {words}",
            binary().display(),
            config.display()
        );
        run(Command::new("script").args(["-qfec", &line, "/dev/null"]), "")
    };
    let run = with("tty");
    assert!(run.out.contains("/dev/pts/"), "{run:?}");
    let run = with("fake sizes 1");
    assert!(run.out.contains("132x50"), "{run:?}");
    let run = with("'sh -c \"exit 5\"'");
    assert_eq!(run.code, Some(5), "{run:?}");
}

#[test]
fn logs_are_shown_whole_in_part_and_as_they_come() {
    let bed = Bed::start();
    let now = Timestamp::now();
    let old = now.checked_sub(SignedDuration::from_hours(2)).expect("a time");
    bed.agent.fake.log(&bed.main, old, "one");
    bed.agent.fake.log(&bed.main, now, "two");
    assert_eq!(bed.desk.ok("logs web"), "one\ntwo\n");
    assert_eq!(bed.desk.ok("logs web --tail=1"), "two\n");
    assert_eq!(bed.desk.ok("logs web --since=1h"), "two\n");
    assert_eq!(bed.desk.ok("logs pod/web main --prefix --tail 1"), "[pod/web/main] two\n");
    assert!(bed.desk.ok("logs web --timestamps --tail=1").ends_with("Z two\n"));
    let mut child = bed.desk.command("logs -f web").stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    assert_eq!((next(), next()), ("one".to_owned(), "two".to_owned()));
    bed.agent.fake.log(&bed.main, Timestamp::now(), "three");
    assert_eq!(next(), "three");
    bed.agent.fake.end(&bed.main);
    assert!(child.wait().expect("it ends").success());
    assert!(bed.desk.fails("logs nope").contains("not found"));
    assert!(bed.desk.fails("logs").contains("waypost get pods"));
}

#[test]
fn logs_of_several_pods_are_chosen_by_label() {
    let mut bed = Bed::start();
    let other = bed.agent.pod(&mut bed.session, "other", &["a", "b"]);
    for (of, line) in [(&bed.main, "from main"), (&other[0], "from a"), (&other[1], "from b")] {
        bed.agent.fake.log(of, Timestamp::now(), line);
    }
    bed.desk.ok("label pods --all set=x");
    assert_eq!(
        bed.desk.ok("logs -l set=x --all-containers --prefix"),
        "[pod/other/a] from a\n[pod/other/b] from b\n[pod/web/main] from main\n"
    );
    let run = bed.desk.run("logs other", "");
    assert_eq!(run.out, "from a\n", "{run:?}");
    assert!(run.err.contains("a, b"), "{run:?}");
}

/// A port forwarding that is killed when it is dropped, the port at which it listens, and the rest of its output: it ends when its
/// output is closed.
struct Forwarding {
    child: Child,
    port: u16,
    _rest: BufReader<ChildStdout>,
}

impl Forwarding {
    fn begin(desk: &Desk, line: &str) -> Self {
        Self::of(desk.command(line).stdout(Stdio::piped()).spawn().expect("it starts"))
    }

    /// Of a child that has begun.
    fn of(mut child: Child) -> Self {
        let mut said = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        out.read_line(&mut said).expect("a line");
        let port = said.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next());
        let port = port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("no port in {said:?}"));
        Self { child, port, _rest: out }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        stream
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn ports_lead_to_a_pod_and_ends_of_either_side_are_kept_apart() {
    let bed = Bed::start();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    // Answers with how much came, once all of it came: the end of what is sent must arrive, and what is answered after it.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).expect("read");
                stream.write_all(all.len().to_string().as_bytes()).expect("written");
            });
        }
    });
    bed.desk
        .service("web", &format!("{{selector: {{app: web}}, ports: [{{name: http, port: 80, targetPort: {port}}}]}}"));
    bed.desk.ok("label pod web app=web");
    for line in [
        format!("port-forward web :{port}"),
        "port-forward svc/web :80".to_owned(),
        "port-forward svc/web :http".to_owned(),
    ] {
        let forwarding = Forwarding::begin(&bed.desk, &line);
        let ask = |length: usize| {
            let mut stream = forwarding.connect();
            stream.write_all(&vec![7; length]).expect("sent");
            stream.shutdown(Shutdown::Write).expect("ended");
            let mut answer = String::new();
            let read = stream.read_to_string(&mut answer);
            assert!(read.is_ok(), "{line}, {length} bytes: {read:?}");
            answer
        };
        for length in [0, 1, 1_000_000] {
            assert_eq!(ask(length), length.to_string(), "{line}");
        }
    }
    assert!(bed.desk.fails("port-forward svc/web :81").contains("it has: 80"));
}

#[test]
fn a_port_at_which_nobody_listens_is_told_and_the_next_connection_is_tried() {
    let bed = Bed::start();
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let mut command = bed.desk.command(&format!("port-forward web :{free}"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut errors = BufReader::new(child.stderr.take().expect("its errors")).lines();
    let forwarding = Forwarding::of(child);
    for _ in 0..2 {
        let mut nothing = Vec::new();
        forwarding.connect().read_to_end(&mut nothing).expect("an end");
        assert!(nothing.is_empty());
        let line = errors.next().expect("a line").expect("text");
        assert!(line.contains(&format!("error forwarding port {free}")), "{line}");
    }
}
