//! Commands that repair a Service.

use api::view::service::{ServicePort, TargetPort};
use serde_json::{Value, json};

use crate::labels::{Selector, written};
use crate::model::{Service, protocol_name};
use crate::words::quoted;

impl Service {
    /// `NAME -n NAMESPACE`.
    fn place(&self) -> String {
        format!("{} -n {}", self.name(), self.namespace())
    }

    /// Selects by other labels.
    #[must_use]
    pub fn set_selector(&self, selector: &Selector) -> String {
        format!("kubectl set selector service {} {}", self.place(), quoted(&written(selector)))
    }

    /// Changes members by a merge patch.
    #[must_use]
    pub fn patch(&self, patch: &Value) -> String {
        format!("kubectl patch service {} --type=merge -p {}", self.place(), quoted(&patch.to_string()))
    }

    /// Changes the target of the port of this index.
    #[must_use]
    pub fn retarget(&self, port: usize, target: &Value) -> String {
        self.change_port(port, "replace", "targetPort", target)
    }

    /// Sets or changes the name of the port of this index.
    pub(crate) fn rename_port(&self, port: usize, change: &str, name: &str) -> String {
        self.change_port(port, change, "name", &Value::from(name))
    }

    fn change_port(&self, port: usize, change: &str, member: &str, value: &Value) -> String {
        let patch = json!([{"op": change, "path": format!("/spec/ports/{port}/{member}"), "value": value}]);
        format!("kubectl patch service {} --type=json -p {}", self.place(), quoted(&patch.to_string()))
    }

    pub(crate) fn edit(&self) -> String {
        format!("kubectl edit service {}", self.place())
    }

    pub(crate) fn describe(&self) -> String {
        format!("kubectl describe service {}", self.place())
    }

    /// Describes a Pod of its namespace.
    pub(crate) fn describe_pod(&self, pod: &str) -> String {
        format!("kubectl describe pod {pod} -n {}", self.namespace())
    }

    /// The Service again, in the namespace where the Pods are.
    pub(crate) fn expose_in(&self, namespace: &str, pod: &str, selector: &Selector) -> String {
        let name = self.name();
        let selector = quoted(&written(selector));
        let port = self.ports().first().map(|port| {
            let target = match port.target() {
                TargetPort::Number(number) => number.to_string(),
                TargetPort::Name(name) => name.into(),
            };
            format!(" --port={} --target-port={target} --protocol={}", port.port, protocol_name(port.protocol))
        });
        format!(
            "kubectl expose pod {pod} -n {namespace} --name={name} --selector={selector}{}",
            port.unwrap_or_default()
        )
    }

    /// Runs a Pod that it would select.
    pub(crate) fn run_pod(&self, selector: &Selector) -> String {
        let port = match self.ports().first().map(ServicePort::target) {
            Some(TargetPort::Number(number)) => format!(" --port={number}"),
            _ => String::new(),
        };
        format!("kubectl run {} --image=IMAGE --labels={}{port}", self.place(), quoted(&written(selector)))
    }
}
