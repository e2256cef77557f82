//! The verbs of the binary against a real server, and beside the real kubectl where both must say the same.
//!
//! One topic a file. Every test has a server of its own. [`machine`] has one that runs Pods.

mod apply;
mod canary;
mod change;
mod delete;
mod describe;
mod edit;
mod get;
mod machine;
mod reach;
mod shell;
mod streams;
mod wait;
mod watch;

use std::process::Command;

use serde_json::Value;
use testbed::{Run, Server, binary, run};

use crate::kubectl::words;

/// A server, and the environment of a user of it.
struct Desk {
    server: Server,
}

impl Desk {
    fn start() -> Self {
        Self { server: Server::start() }
    }

    /// The binary, configured for the server, and without the environment of the machine of the test.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(binary());
        command.args(words(line)).env("KUBECONFIG", self.server.kubeconfig()).env_remove("EDITOR");
        command
    }

    fn run(&self, line: &str, input: &str) -> Run {
        run(&mut self.command(line), input)
    }

    /// What it printed; it must succeed.
    #[track_caller]
    fn ok(&self, line: &str) -> String {
        self.run(line, "").success()
    }

    #[track_caller]
    fn ok_with(&self, line: &str, input: &str) -> String {
        self.run(line, input).success()
    }

    /// What it complained of; it must fail.
    #[track_caller]
    fn fails(&self, line: &str) -> String {
        self.run(line, "").failure()
    }

    /// What kubectl prints to the same line.
    #[track_caller]
    fn kubectl(&self, line: &str) -> String {
        let words = words(line);
        self.server.kubectl_with(&words.iter().map(String::as_str).collect::<Vec<_>>(), "").success()
    }

    /// An object.
    #[track_caller]
    fn json(&self, what: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("get {what} -o json"))).expect("JSON")
    }

    /// Makes a Service.
    #[track_caller]
    fn service(&self, name: &str, spec: &str) {
        self.ok_with("apply -f -", &service(name, spec));
    }

    /// Makes a Pod that nothing runs.
    #[track_caller]
    fn pod(&self, name: &str, labels: &str) {
        self.ok_with("apply -f -", &pod(name, labels));
    }
}

fn service(name: &str, spec: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  labels: {{app: {name}}}\nspec: {spec}\n")
}

fn pod(name: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  labels: {labels}\nspec:\n  containers:\n  - name: main\n    \
         image: example.com/web:1\n    ports: [{{name: http, containerPort: 8080}}]\n"
    )
}

fn deployment(name: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n  labels: {{app: {name}}}\nspec:\n  replicas: 2\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      \
         containers: [{{name: main, image: 'image:1', ports: [{{containerPort: 80}}, {{containerPort: 443}}]}}]\n"
    )
}
