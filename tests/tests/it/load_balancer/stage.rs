//! Two served nodes, a server that gives addresses, and a client outside to whom the pool is routed.

use std::net::IpAddr;

use serde_json::Value;
use tempfile::TempDir;
use testbed::Run;
use testbed::net::{Family, Mode, Node, Outside, Pod, Protocol, Served, eventually, objects};
use testbed::session::SERVICES;

use super::desk::{addresses, pool};
use crate::kubectl::words;

/// The port behind Services.
pub(super) const TARGET: u16 = 8080;

/// See the module.
pub(super) struct Stage {
    pub(super) served: Served,
    pub(super) near: Node,
    pub(super) far: Node,
    pub(super) outside: Outside,
    cache: TempDir,
}

impl Stage {
    /// With a pool of both families.
    pub(super) fn new() -> Self {
        let served = Served::with_server(Mode::under_test(), &["--load-balancer", "on"]);
        let (near, far) = (served.node("n1"), served.node("n2"));
        let outside = served.cluster().outside("outside");
        for range in ["203.0.113.0/24", "2001:db8:f::/64", "198.51.100.0/24"] {
            outside.route(range, &near);
        }
        served.serve(&near, &[]);
        served.serve(&far, &[]);
        let stage = Self { served, near, far, outside, cache: testbed::folder() };
        stage.ok_with("apply -f -", &pool("lan", "203.0.113.1-203.0.113.200, '2001:db8:f::1-2001:db8:f::ff'", ""));
        stage
    }

    fn run(&self, line: &str, input: &str) -> Run {
        let mut command = std::process::Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.served.kubeconfig()).arg("--cache-dir").arg(self.cache.path());
        command.args(words(line));
        self.served.api().run_with(command, input)
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

    /// The protocols that can be spoken here.
    pub(super) fn protocols(&self) -> &'static [Protocol] {
        self.served.mode().protocols
    }

    /// Has pods answer behind a Service whose ports have the names of protocols.
    pub(super) fn endpoints(&self, service: &str, pods: &[&Pod]) {
        for family in Family::BOTH {
            let slice = objects::slice(service).family(family);
            let slice = self
                .protocols()
                .iter()
                .fold(slice, |slice, protocol| slice.port(TARGET).named(protocol.port_name()).protocol(*protocol));
            self.served.put(&pods.iter().fold(slice, |slice, pod| slice.endpoint(pod)).json());
        }
    }

    /// A Service of type LoadBalancer of both families with a port for each protocol, in YAML.
    pub(super) fn balancer(&self, name: &str, more: &str) -> String {
        let port = |protocol: &Protocol| {
            format!("{{name: {}, protocol: {}, port: 80, targetPort: {TARGET}}}", protocol.port_name(), protocol.name())
        };
        let ports: Vec<String> = self.protocols().iter().map(port).collect();
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{type: LoadBalancer, \
             ipFamilyPolicy: RequireDualStack, ports: [{}], {more}}}\n",
            ports.join(", ")
        )
    }

    /// A Service as it is now.
    pub(super) fn service(&self, name: &str) -> Value {
        self.served.session(|session| session.get(&format!("{SERVICES}/{name}")).body)
    }

    /// Waits until a Service has addresses of both families, and answers them.
    #[track_caller]
    pub(super) fn assigned(&self, name: &str) -> Vec<IpAddr> {
        let mut found = String::new();
        eventually(&format!("{name} has addresses"), || {
            found = addresses(&self.service(name));
            found.contains(',')
        });
        found.split(',').map(|text| text.parse().expect("an address")).collect()
    }

    /// Sends requests by every protocol and family from outside, until each is answered by this pod.
    #[track_caller]
    pub(super) fn answers(&self, ips: &[IpAddr], name: &str) {
        for ip in ips {
            for protocol in self.protocols() {
                eventually(&format!("{name} answers at {ip} by {protocol:?}"), || {
                    self.outside.ask(*protocol, *ip, 80).is_ok_and(|answer| answer.name == name)
                });
            }
        }
    }

    /// Waits until there is no response any more.
    #[track_caller]
    pub(super) fn silent(&self, ips: &[IpAddr]) {
        let caller = self.outside.caller().timeout(std::time::Duration::from_millis(200));
        for ip in ips {
            eventually(&format!("nobody answers at {ip}"), || caller.ask(Protocol::Tcp, *ip, 80).is_err());
        }
    }
}
