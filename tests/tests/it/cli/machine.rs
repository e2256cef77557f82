//! The verbs on Pods that really run, on a separate machine: what README promises to users without kubectl.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use testbed::Run;
use testbed::net::Protocol::Tcp;
use testbed::net::{Cluster, Node, Process, eventually};

use crate::kubectl::words;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A machine with `waypost up`; nothing of it stays.
struct Machine {
    process: Option<Process>,
    home: TempDir,
    node: Node,
    _cluster: Cluster,
}

impl Machine {
    fn start() -> Self {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let home = testbed::folder();
        let mut command = Command::new(testbed::binary());
        command.args(["up", "--node-name", "n1", "--data-dir"]).arg(home.path());
        let process = node.spawn(command);
        process.wait_for_line(" ready ", TIMEOUT);
        Self { process: Some(process), home, node, _cluster: cluster }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(testbed::binary());
        command.args(words(line)).env("KUBECONFIG", self.home.path().join("kubeconfig"));
        command
    }

    fn run(&self, line: &str, input: &str) -> Run {
        self.node.run_with(self.command(line), input)
    }

    #[track_caller]
    fn ok(&self, line: &str) -> String {
        self.run(line, "").success()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            if std::thread::panicking() {
                eprintln!("{}", process.log());
            }
            process.kill();
        }
        let mut command = Command::new(testbed::binary());
        command.args(["cleanup", "--data-dir"]).arg(self.home.path());
        let run = self.node.run(command);
        assert!(run.ok || std::thread::panicking(), "cleanup: {}", run.err);
    }
}

fn deployment(backend: &Path, colour: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  replicas: 2\n  selector: {{matchLabels: {{app: \
         web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec:\n      terminationGracePeriodSeconds: 1\n      \
         containers: [{{name: main, image: host, command: ['{}', '8080'], env: [{{name: COLOUR, value: {colour}}}]}}]\n",
        backend.display()
    )
}

#[test]
fn s18_a_deployment_is_applied_exposed_scaled_updated_and_taken_back_without_kubectl() {
    let machine = Machine::start();
    let backend = testbed::backend();
    let apply = |colour: &str| machine.run("apply --force-conflicts -f -", &deployment(&backend, colour)).success();
    assert_eq!(apply("red"), "deployment.apps/web created\n");
    let status = machine.ok("rollout status deployment/web --timeout=60s");
    assert!(status.ends_with("deployment \"web\" successfully rolled out\n"), "{status}");
    machine.ok("expose deployment web --port=80 --target-port=8080");
    machine.ok("wait svc/web --for=condition=Ready --timeout=60s");
    let address = machine.ok("get svc web -o jsonpath={.spec.clusterIP}");
    let node = machine.node.clone();
    let servers = || node.ask_many(40, Tcp, address.as_str(), 80).answers.len();
    eventually("both answer", || servers() == 2);
    machine.ok("scale deployment web --replicas=3");
    machine.ok("rollout status deploy web --timeout=60s");
    eventually("all three answer", || servers() == 3);
    assert_eq!(apply("blue"), "deployment.apps/web configured\n");
    machine.ok("rollout status deploy/web --timeout=60s");
    assert_eq!(machine.ok("exec deploy/web -- printenv COLOUR"), "blue\n");
    assert_eq!(machine.ok("rollout undo deploy/web"), "deployment.apps/web rolled back\n");
    machine.ok("rollout status deploy/web --timeout=60s");
    assert_eq!(machine.ok("exec deploy/web -- printenv COLOUR"), "red\n");
    let told = machine.ok("describe svc web");
    assert!(told.contains(&address) && told.contains(":8080,"), "{told}");
    machine.ok("delete deployment,service web --timeout=60s");
    machine.ok("wait pods -l app=web --for=delete --timeout=60s");
    eventually("no Pod is left", || machine.run("get pods", "").err.starts_with("No resources found"));
}

#[test]
fn s18_a_command_runs_as_a_pod_and_is_looked_into_without_kubectl() {
    let machine = Machine::start();
    let backend = testbed::backend();
    let line = format!("run web --port 8080 --expose -- {} 8080", backend.display());
    assert_eq!(machine.ok(&line), "pod/web created\nservice/web created\n");
    machine.ok("wait pod/web --for=condition=Ready --timeout=60s");
    machine.ok("wait svc/web --for=condition=Ready --timeout=60s");
    let address = machine.ok("get svc web -o jsonpath={.spec.clusterIP}");
    let answers = machine.node.ask_many(5, Tcp, address.as_str(), 8080).all_answered();
    assert_eq!(answers.names(), ["web"]);
    let forward = machine.node.spawn(machine.command("port-forward svc/web :8080"));
    let line = forward.wait_for_line("Forwarding from 127.0.0.1:", TIMEOUT);
    let at = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()).expect("a port");
    let at: u16 = at.parse().expect("a number");
    let answers = machine.node.ask_many(20, Tcp, std::net::Ipv4Addr::LOCALHOST, at).all_answered();
    assert_eq!(answers.names(), ["web"]);
    drop(forward);
    machine.ok("run talker --restart=Never -- sh -c 'pwd; echo one; sleep 1; echo two'");
    machine.ok("wait pod/talker --for=jsonpath={.status.phase}=Running --timeout=60s");
    let here = std::env::current_dir().expect("a folder");
    assert_eq!(machine.ok("logs -f talker"), format!("{}\none\ntwo\n", here.display()));
    let loud = machine.run("run once -i --rm -- tr a-z A-Z", "loud\n");
    assert!(loud.ok && loud.out.ends_with("LOUD\n"), "{loud:?}");
    assert!(machine.run("exec -i web -- sh -c 'read word; exit $word'", "9\n").code == Some(9));
    assert_eq!(machine.ok("delete pod web talker --grace-period=1"), "pod \"web\" deleted\npod \"talker\" deleted\n");
}

#[test]
fn s18_a_terminal_has_its_size_before_the_program_begins() {
    let machine = Machine::start();
    machine.ok("run web -- sleep 3600");
    machine.ok("wait pod/web --for=condition=Ready --timeout=60s");
    let typed = |words: &str| {
        let config = machine.home.path().join("kubeconfig");
        let line = format!("stty cols 132 rows 50; {} exec -it web -- {words}", testbed::binary().display());
        let mut script = Command::new("script");
        script.args(["-qfec", &line, "/dev/null"]).env("KUBECONFIG", config);
        machine.node.run(script)
    };
    for _ in 0..5 {
        let run = typed("stty size");
        assert!(run.out.trim_end().ends_with("50 132"), "{run:?}");
    }
    // A command that cannot start reports it, and an exit code is passed on.
    let run = typed("no-such-program");
    assert!(!run.ok && run.out.contains("no-such-program"), "{run:?}");
    assert_eq!(typed("sh -c 'exit 5'").code, Some(5));
    // Standard input is no terminal: there is no size, and nothing waits for one.
    assert_eq!(machine.ok("exec web -- echo plain"), "plain\n");
}
