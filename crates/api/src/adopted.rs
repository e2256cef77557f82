//! Pods that represent workloads not started by Waypost: a listening program, a podman container, a systemd unit.
//!
//! In: a description of the workload. Out: a Pod with an annotation that names its manager. Such a Pod is bound to the Node that it runs on and
//! is removed with it; no containers are started or stopped for it, and it tolerates every taint, because eviction would not stop the workload.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::value::ValueExt as _;

/// Names the manager of the Pod: one of [`HOWS`].
pub const ANNOTATION: &str = "waypost.dev/adopted";
/// Identifies the workload, in the notation of its manager: a container ID, the name of a unit.
pub const SOURCE: &str = "waypost.dev/source";
/// Made by `waypost register`: a program that listens on the machine.
pub const REGISTERED: &str = "registered";
/// A container of podman.
pub const PODMAN: &str = "podman";
/// A container of docker.
pub const DOCKER: &str = "docker";
/// A unit of systemd.
pub const SYSTEMD: &str = "systemd";
/// All of them.
pub const HOWS: [&str; 4] = [REGISTERED, PODMAN, DOCKER, SYSTEMD];

/// The manager of an adopted Pod; none for other Pods.
#[must_use]
pub fn how(pod: &Value) -> Option<&str> {
    pod.at("metadata.annotations").get(ANNOTATION).and_then(Value::as_str).filter(|how| !how.is_empty())
}

/// A port of something that was adopted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Its name, by which Services may ask for it; empty for none.
    pub name: String,
    /// Its number.
    pub number: u16,
    /// TCP, UDP or SCTP.
    pub protocol: String,
}

/// What a Pod is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// Its manager.
    pub how: &'static str,
    /// The workload it represents.
    pub source: String,
    /// The namespace of the Pod.
    pub namespace: String,
    /// The name of the Pod.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its image, or a placeholder.
    pub image: String,
    /// Whether its addresses are those of the machine.
    pub host_network: bool,
    /// Its ports.
    pub ports: Vec<Port>,
    /// The readiness probe; null for none.
    pub probe: Value,
}

impl Draft {
    /// The Pod, on a Node of this name and uid.
    #[must_use]
    pub fn pod(&self, node: &str, node_uid: &str) -> Value {
        let ports: Vec<Value> = self.ports.iter().map(|port| port.to_value(self.host_network)).collect();
        let mut container = json!({"name": container_name(&self.name), "image": self.image, "ports": ports});
        if !self.probe.is_null() {
            container.put("readinessProbe", self.probe.clone());
        }
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid});
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": self.name, "namespace": self.namespace, "labels": self.labels,
                "annotations": {ANNOTATION: self.how, SOURCE: self.source}, "ownerReferences": [owner],
            },
            "spec": {
                "nodeName": node, "hostNetwork": self.host_network, "containers": [container],
                "automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
            },
        })
    }

    /// Whether a Pod is what this draft would make. What defaults have added to it does not count, nor what cannot be seen from outside.
    #[must_use]
    pub fn is(&self, pod: &Value) -> bool {
        let wanted = self.pod("", "");
        let Some(theirs) = pod.items("spec.containers").first() else { return false };
        let ports = |container: &Value| -> Vec<Port> { container.items("ports").iter().map(Port::read).collect() };
        let labels = |pod: &Value| pod.map("metadata.labels").cloned().unwrap_or_default();
        let source = pod.at("metadata.annotations").get(SOURCE).and_then(Value::as_str);
        how(pod) == Some(self.how)
            && source == Some(&self.source)
            && labels(pod) == labels(&wanted)
            && pod.flag("spec.hostNetwork") == self.host_network
            && theirs.text("image") == self.image
            && ports(theirs) == self.ports
            && holds(theirs.at("readinessProbe"), &self.probe)
    }
}

impl Port {
    fn to_value(&self, host_network: bool) -> Value {
        let mut value = json!({"containerPort": self.number, "protocol": self.protocol});
        if host_network {
            value.put("hostPort", self.number);
        }
        if !self.name.is_empty() {
            value.put("name", self.name.as_str());
        }
        value
    }

    fn read(value: &Value) -> Self {
        Self {
            name: value.text("name").to_owned(),
            number: u16::try_from(value.int("containerPort")).unwrap_or(0),
            protocol: value.text("protocol").to_owned(),
        }
    }
}

/// Whether a value contains all members of another with the same values.
fn holds(whole: &Value, part: &Value) -> bool {
    match part {
        Value::Object(part) => part.iter().all(|(key, value)| holds(whole.get(key).unwrap_or(&Value::Null), value)),
        part => whole == part,
    }
}

/// A name that a container may have, from that of its Pod.
fn container_name(name: &str) -> String {
    let name = name.replace('.', "-");
    name.get(..63).unwrap_or(&name).trim_end_matches('-').to_owned()
}

/// A name that a Pod may have, from one that something else has; nothing when no letter of it is left.
#[must_use]
pub fn pod_name(other: &str) -> Option<String> {
    let good = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = other.chars().map(good).collect();
    let name = name.get(..63).unwrap_or(&name).trim_matches('-').to_owned();
    (!name.is_empty()).then_some(name)
}

/// Labels that a Pod may have, of those that something else has.
#[must_use]
pub fn pod_labels<'a>(all: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    let good = |(key, value): &(&str, &str)| {
        crate::names::qualified_name(key).is_empty() && crate::names::label_value(value).is_empty()
    };
    all.filter(good).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The readiness probe for a health setting: TCP connect, HTTP GET, or none. The error lists the valid settings.
///
/// # Errors
/// When it is none of these, or requires a connection and the protocol has none.
pub fn probe(health: &str, port: &Port, period: u64) -> Result<Value, String> {
    let how = match (health, port.protocol.as_str()) {
        ("none", _) | ("", "UDP" | "SCTP") => return Ok(Value::Null),
        ("tcp", "UDP" | "SCTP") => {
            return Err(format!("{} has no connections to try: use none, or http:/path at a TCP port", port.protocol));
        }
        ("" | "tcp", _) => json!({"tcpSocket": {"port": port.number}}),
        (other, _) => match other.strip_prefix("http:").or_else(|| other.strip_prefix("https:")) {
            Some(path) if path.starts_with('/') => {
                let scheme = if other.starts_with("https") { "HTTPS" } else { "HTTP" };
                json!({"httpGet": {"path": path, "port": port.number, "scheme": scheme}})
            }
            _ => return Err(format!("{other:?} is not understood: say tcp, http:/path, https:/path or none")),
        },
    };
    let mut probe = how;
    probe.put("periodSeconds", period.max(1));
    probe.put("timeoutSeconds", period.clamp(1, 5));
    probe.put("failureThreshold", 1);
    Ok(probe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn draft() -> Draft {
        let port = Port { name: "http".to_owned(), number: 3000, protocol: "TCP".to_owned() };
        Draft {
            how: REGISTERED,
            source: "port 3000".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            image: "registered".to_owned(),
            host_network: true,
            probe: probe("http:/healthz", &port, 2).unwrap(),
            ports: vec![port],
        }
    }

    #[test]
    fn a_pod_is_what_its_draft_made_also_after_defaults() {
        let draft = draft();
        let mut pod = draft.pod("n1", "u");
        assert_eq!(how(&pod), Some(REGISTERED));
        kinds::pod::KIND.rules.default(&mut pod);
        assert!(draft.is(&pod));
        for change in [
            Draft { labels: BTreeMap::new(), ..draft.clone() },
            Draft { source: "port 3001".to_owned(), ..draft.clone() },
            Draft { host_network: false, ..draft.clone() },
            Draft { ports: Vec::new(), ..draft.clone() },
            Draft { probe: json!({"tcpSocket": {"port": 3000}}), ..draft },
        ] {
            assert!(!change.is(&pod), "{change:?}");
        }
    }

    #[test]
    fn names_and_labels_of_others_become_such_as_pods_may_have() {
        assert_eq!(pod_name("My_App.service").as_deref(), Some("my-app-service"));
        assert_eq!(pod_name("__"), None);
        let labels = pod_labels([("app", "web"), ("title", "two words"), ("bad key", "x")].into_iter());
        assert_eq!(labels, [("app".to_owned(), "web".to_owned())].into());
    }

    #[test]
    fn health_is_asked_as_it_was_said() {
        let tcp = Port { name: String::new(), number: 80, protocol: "TCP".to_owned() };
        let udp = Port { protocol: "UDP".to_owned(), ..tcp.clone() };
        assert_eq!(probe("", &tcp, 5).unwrap().at("tcpSocket.port"), &json!(80));
        assert_eq!(probe("https:/a", &tcp, 5).unwrap().text("httpGet.scheme"), "HTTPS");
        assert_eq!(probe("none", &tcp, 5), Ok(Value::Null));
        assert_eq!(probe("", &udp, 5), Ok(Value::Null));
        assert!(probe("tcp", &udp, 5).is_err() && probe("ftp", &tcp, 5).is_err() && probe("http:a", &tcp, 5).is_err());
    }
}
