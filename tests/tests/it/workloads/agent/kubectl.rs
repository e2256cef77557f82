//! What people do with kubectl every day, on Pods that really run: with the kubectl on PATH, and with another one where `$WAYPOST_PEERS` has one.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use testbed::Run;
use testbed::net::Protocol::Tcp;
use testbed::net::eventually;

use super::machine::{Machine, TIMEOUT};

/// A machine, and a user's environment on it.
struct Desk {
    machine: Machine,
    kubectl: PathBuf,
    folder: TempDir,
}

impl Desk {
    fn new(kubectl: PathBuf) -> Self {
        Self { machine: Machine::new(), kubectl, folder: testbed::folder() }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(self.machine.data_dir().join("kubeconfig"));
        // A cache of its own: discovery of another server must not be mistaken for ours.
        command.arg("--cache-dir").arg(self.folder.path().join("cache")).args(words);
        command
    }

    fn run(&self, words: &[&str], input: &str) -> Run {
        self.machine.node.run_with(self.command(words), input)
    }

    /// What kubectl printed; the line is split at spaces.
    #[track_caller]
    fn ok(&self, line: &str) -> String {
        self.run(&line.split_whitespace().collect::<Vec<_>>(), "").success()
    }

    #[track_caller]
    fn json(&self, what: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("get {what} -o json"))).expect("JSON")
    }

    /// The same on a terminal, on which this is typed.
    fn on_a_terminal(&self, line: &str, typed: &str) -> Run {
        let config = self.machine.data_dir().join("kubeconfig");
        let line = format!("{} --kubeconfig {} {line}", self.kubectl.display(), config.display());
        let mut command = Command::new("script");
        command.args(["-qefc", &line, "/dev/null"]);
        self.machine.node.run_with(command, typed)
    }
}

/// Each kubectl that is there.
fn with_each_kubectl(work: impl Fn(&mut Desk)) {
    let other = std::env::var_os("WAYPOST_PEERS").map(|folder| PathBuf::from(folder).join("kubectl"));
    for kubectl in std::iter::once(PathBuf::from("kubectl")).chain(other.filter(|path| path.exists())) {
        eprintln!("{}", testbed::run(Command::new(&kubectl).args(["version", "--client"]), "").out);
        work(&mut Desk::new(kubectl));
    }
}

#[test]
fn s18_deployments_are_made_exposed_scaled_updated_and_taken_back() {
    with_each_kubectl(|desk| {
        let backend = testbed::backend();
        let backend = backend.to_str().expect("a path");
        let create = ["create", "deployment", "web", "--image=host", "--replicas=2", "--", backend, "8080"];
        let _ = desk.run(&create, "").success();
        desk.ok("rollout status deployment/web --timeout=60s");
        desk.ok("expose deployment web --port=80 --target-port=8080");
        let address = desk.json("service web")["spec"]["clusterIP"].as_str().expect("an address").to_owned();
        let node = desk.machine.node.clone();
        let servers = || node.ask_many(40, Tcp, address.as_str(), 80).answers.len();
        eventually("both answer", || servers() == 2);
        desk.ok("scale deployment web --replicas=3");
        desk.ok("rollout status deployment/web --timeout=60s");
        eventually("all three answer", || servers() == 3);
        desk.ok("set env deployment/web COLOUR=blue");
        desk.ok("rollout status deployment/web --timeout=60s");
        let colour = |desk: &Desk| desk.ok("exec deployment/web -- printenv COLOUR");
        assert_eq!(colour(desk), "blue\n");
        desk.ok("rollout undo deployment/web");
        desk.ok("rollout status deployment/web --timeout=60s");
        let gone = desk.run(&["exec", "deployment/web", "--", "printenv", "COLOUR"], "");
        assert_eq!((gone.ok, gone.code), (false, Some(1)), "{gone:?}");
        let told = desk.ok("describe deployment web");
        assert!(told.contains("3 desired | 3 updated | 3 total | 3 available | 0 unavailable"), "{told}");
        let told = desk.ok("describe service web");
        assert!(told.contains("TargetPort:") && told.contains("8080/TCP") && told.contains(&address), "{told}");
        let told = desk.ok("describe pods -l app=web --show-events");
        for word in ["Successfully assigned default/web-", "Container started: host", "ContainersReady", "IP:"] {
            assert!(told.contains(word), "no {word:?} in\n{told}");
        }
        desk.ok("delete deployment,service web --timeout=60s");
        eventually("no Pod is left", || desk.json("pods")["items"].as_array().is_some_and(Vec::is_empty));
    });
}

#[test]
fn s18_people_look_into_pods() {
    with_each_kubectl(|desk| {
        // Logs, followed to their end.
        let talk =
            ["run", "talker", "--image=host", "--restart=Never", "--", "sh", "-c", "echo one; sleep 1; echo two"];
        let _ = desk.run(&talk, "").success();
        desk.ok("wait pod/talker --for=jsonpath={.status.phase}=Running --timeout=60s");
        assert_eq!(desk.ok("logs -f talker"), "one\ntwo\n");
        assert_eq!(desk.ok("logs --tail=1 talker"), "two\n");
        // A process that reads lines from standard input.
        let listen = "while read word; do echo heard $word; done";
        let wait = [
            "run",
            "listener",
            "--image=host",
            "--stdin",
            "--attach=false",
            "--restart=Never",
            "--",
            "sh",
            "-c",
            listen,
        ];
        let _ = desk.run(&wait, "").success();
        desk.ok("wait pod/listener --for=condition=Ready --timeout=60s");
        let failed = desk.run(&["exec", "listener", "--", "sh", "-c", "echo out; echo err >&2; exit 3"], "");
        assert_eq!((failed.code, failed.out.as_str()), (Some(3), "out\n"), "{failed:?}");
        assert!(failed.err.starts_with("err\n"), "{failed:?}");
        let many = "0123456789".repeat(20_000);
        assert_eq!(desk.run(&["exec", "-i", "listener", "--", "cat"], &many).success(), many);
        let terminal = desk.on_a_terminal("exec -it listener -- tty", "");
        assert!(terminal.ok && terminal.out.contains("/dev/pts/"), "{terminal:?}");
        let once =
            ["run", "once", "-i", "--rm", "--quiet", "--image=host", "--restart=Never", "--", "tr", "a-z", "A-Z"];
        let said = desk.run(&once, "loud\n").success();
        assert!(said.starts_with("LOUD\n"), "{said}");
        attach(desk);
    });
}

/// Sends a line to the process that reads standard input, and checks the response.
fn attach(desk: &Desk) {
    let attached = desk.machine.node.spawn({
        let mut command = Command::new("sh");
        let config = desk.machine.data_dir().join("kubeconfig");
        // Standard input stays open until the answer was seen.
        let script = format!(
            "(echo hello; sleep 30) | {} --kubeconfig {} attach -i listener",
            desk.kubectl.display(),
            config.display()
        );
        command.args(["-c", &script]);
        command
    });
    attached.wait_for_line("heard hello", TIMEOUT);
    drop(attached);
    assert!(desk.ok("logs listener").contains("heard hello\n"));
}

#[test]
fn s15_ports_are_forwarded_and_files_copied() {
    with_each_kubectl(|desk| {
        let backend = testbed::backend();
        let manifest = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {
                "containers": [{
                    "name": "web", "image": "host", "command": [backend, "8080"], "ports": [{"containerPort": 8080}],
                    "volumeMounts": [{"name": "work", "mountPath": "/exchange"}],
                }],
                "volumes": [{"name": "work", "emptyDir": {}}],
            },
        });
        let _ = desk.run(&["apply", "-f", "-"], &manifest.to_string()).success();
        desk.ok("expose pod web --port=80 --target-port=8080");
        desk.ok("wait pod/web --for=condition=Ready --timeout=60s");
        for target in ["pod/web", "service/web"] {
            let port = if target == "pod/web" { ":8080" } else { ":80" };
            let forward = desk.machine.node.spawn(desk.command(&["port-forward", target, port]));
            let line = forward.wait_for_line("Forwarding from 127.0.0.1:", TIMEOUT);
            let at = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()).expect("a port");
            let at: u16 = at.parse().expect("a number");
            let answers = desk.machine.node.ask_many(20, Tcp, std::net::Ipv4Addr::LOCALHOST, at).all_answered();
            assert_eq!(answers.names(), ["web"]);
        }
        let (there, back) = (desk.folder.path().join("there"), desk.folder.path().join("back"));
        let content = "line\n".repeat(100_000);
        std::fs::write(&there, &content).expect("written");
        desk.ok(&format!("cp {} web:/exchange/file", there.display()));
        assert_eq!(desk.ok("exec web -- wc -l /exchange/file"), "100000 /exchange/file\n");
        desk.ok(&format!("cp web:/exchange/file {}", back.display()));
        assert_eq!(std::fs::read_to_string(&back).expect("copied"), content);
    });
}
