//! A server that gives addresses, and kubectl before it.

use serde_json::Value;
use testbed::net::eventually;
use testbed::session::{SERVICES, Session, text};
use testbed::{Home, Run, Server};

use crate::kubectl::words;

/// See the module.
pub(super) struct Desk {
    pub(super) server: Server,
    pub(super) session: Session,
}

impl Desk {
    /// With load balancers on, and no pool.
    pub(super) fn new() -> Self {
        Self::with(&["--load-balancer", "on"])
    }

    /// With load balancers on, and these pools.
    pub(super) fn with_pools(pools: &str) -> Self {
        let desk = Self::new();
        desk.ok_with("apply -f -", pools);
        desk
    }

    /// With these arguments.
    pub(super) fn with(arguments: &[&str]) -> Self {
        let home = testbed::folder();
        Self::of(Server::start_with(Home::Own(home), arguments))
    }

    /// In this directory, with these arguments.
    pub(super) fn at(home: &tempfile::TempDir, arguments: &[&str]) -> Self {
        Self::of(Server::start_with(Home::Kept(home.path().to_owned()), arguments))
    }

    fn of(server: Server) -> Self {
        let session = server.session();
        Self { server, session }
    }

    /// Runs kubectl; the line is split at spaces, and single quotes group arguments.
    pub(super) fn run(&self, line: &str, input: &str) -> Run {
        let words = words(line);
        self.server.kubectl_with(&words.iter().map(String::as_str).collect::<Vec<_>>(), input)
    }

    /// What kubectl printed; it must succeed.
    #[track_caller]
    pub(super) fn ok(&self, line: &str) -> String {
        self.run(line, "").success()
    }

    /// What kubectl printed with this on its standard input; it must succeed.
    #[track_caller]
    pub(super) fn ok_with(&self, line: &str, input: &str) -> String {
        self.run(line, input).success()
    }

    /// What kubectl complained of with this on its standard input; it must fail.
    #[track_caller]
    pub(super) fn fails_with(&self, line: &str, input: &str) -> String {
        self.run(line, input).failure()
    }

    /// Applies a Service of type LoadBalancer on port 80, with more of its spec and annotations in YAML's flow style.
    #[track_caller]
    pub(super) fn balancer(&self, name: &str, annotations: &str, spec: &str) {
        self.ok_with("apply -f -", &balancer(name, annotations, spec));
    }

    /// A Service as it is now.
    pub(super) fn service(&mut self, name: &str) -> Value {
        self.session.get(&format!("{SERVICES}/{name}")).body
    }

    /// Waits until a Service is as it should be, and answers it.
    #[track_caller]
    pub(super) fn until(&mut self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut found = Value::Null;
        eventually(&format!("{name}: {what}"), || {
            found = self.service(name);
            wanted(&found)
        });
        found
    }

    /// Waits until a Service has addresses, and answers them, with commas between.
    #[track_caller]
    pub(super) fn assigned(&mut self, name: &str) -> String {
        addresses(&self.until(name, "it has an address", |service| !addresses(service).is_empty()))
    }

    /// Waits until a Service has the condition that it gets no address, and returns reason and message.
    #[track_caller]
    pub(super) fn pending(&mut self, name: &str) -> (String, String) {
        let refused = |service: &Value| text(condition(service), "/status") == "False";
        let service = self.until(name, "it is told why not", refused);
        assert_eq!(addresses(&service), "", "{service}");
        let condition = condition(&service);
        (text(condition, "/reason").to_owned(), text(condition, "/message").to_owned())
    }

    /// Waits for an Event about a Service, and answers its message.
    #[track_caller]
    pub(super) fn event(&mut self, name: &str, reason: &str) -> String {
        let mut found = String::new();
        let path =
            format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name},reason={reason}");
        eventually(&format!("{name}: {reason}"), || {
            let events = self.session.items(&path);
            found = events.iter().map(|event| text(event, "/message")).collect::<Vec<_>>().join("\n");
            !events.is_empty()
        });
        found
    }
}

/// A Service of type LoadBalancer in YAML.
pub(super) fn balancer(name: &str, annotations: &str, spec: &str) -> String {
    let ports = if spec.contains("ports:") { "" } else { "ports: [{port: 80}], " };
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  annotations: {{{annotations}}}\n\
         spec: {{type: LoadBalancer, {ports}{spec}}}\n"
    )
}

/// A pool in YAML; what else is in its spec in flow style.
pub(super) fn pool(name: &str, addresses: &str, more: &str) -> String {
    format!(
        "apiVersion: waypost.dev/v1\nkind: IPPool\nmetadata: {{name: {name}}}\n\
         spec: {{addresses: [{addresses}], {more}}}\n---\n"
    )
}

/// The addresses that a Service shows, with commas between.
pub(super) fn addresses(service: &Value) -> String {
    let ingress = service.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    ingress.into_iter().flatten().map(|one| text(one, "/ip")).collect::<Vec<_>>().join(",")
}

/// Our condition of a Service.
pub(super) fn condition(service: &Value) -> &Value {
    let conditions = service.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|one| one["type"] == "LoadBalancerReady").unwrap_or(&Value::Null)
}
