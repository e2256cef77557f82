//! What a Pod shares with its host: file system, namespaces, ports, and the network from which probes are sent.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Forbidden, Pod, containers, plural, quoted};
use crate::value::ValueExt as _;

/// The image that runs a command on the file system of the host, without a container.
const HOST_IMAGE: &str = "host";

/// No container may run on the file system of the host.
pub(in super::super) fn image(pod: &Pod<'_>) -> Option<Forbidden> {
    let bad = pod.containers_that(|container| container.text("image") == HOST_IMAGE);
    (!bad.is_empty()).then(|| Forbidden {
        reason: "host image",
        detail: format!("{} must not use image \"{HOST_IMAGE}\"", containers(&bad)),
    })
}

/// The namespaces of the host may not be shared.
pub(in super::super) fn namespaces(pod: &Pod<'_>) -> Option<Forbidden> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec.flag(field));
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    (!shared.is_empty()).then(|| Forbidden { reason: "host namespaces", detail: shared.join(", ") })
}

/// Ports of the host may not be used.
pub(in super::super) fn ports(pod: &Pod<'_>) -> Option<Forbidden> {
    let host_ports = |container: &Value| -> Vec<i64> {
        container.items("ports").iter().map(|port| port.int("hostPort")).filter(|port| *port != 0).collect()
    };
    let bad = pod.containers_that(|container| !host_ports(container).is_empty());
    // Sorted as strings, like in Kubernetes.
    let used: BTreeSet<String> = pod.containers().flat_map(host_ports).map(|port| port.to_string()).collect();
    (!bad.is_empty()).then(|| Forbidden {
        reason: "hostPort",
        detail: format!(
            "{} {} {} {}",
            containers(&bad),
            plural(bad.len(), "uses", "use"),
            plural(used.len(), "hostPort", "hostPorts"),
            used.into_iter().collect::<Vec<_>>().join(", "),
        ),
    })
}

/// Probes and lifecycle handlers may not be sent to another host than the Pod.
pub(in super::super) fn probes_and_lifecycle(pod: &Pod<'_>) -> Option<Forbidden> {
    let mut bad = BTreeSet::new();
    let mut used = BTreeSet::new();
    for container in pod.containers() {
        for host in hosts(container) {
            bad.insert(container.text("name"));
            used.insert(host);
        }
    }
    (!bad.is_empty()).then(|| Forbidden {
        reason: "probe or lifecycle host",
        detail: format!(
            "{} {} {} {}",
            containers(&bad.iter().copied().collect::<Vec<_>>()),
            plural(bad.len(), "uses", "use"),
            plural(used.len(), "probe or lifecycle host", "probe or lifecycle hosts"),
            quoted(&used),
        ),
    })
}

/// The hosts that the probes and handlers of a container name.
fn hosts(container: &Value) -> impl Iterator<Item = &str> {
    let handlers = ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop"];
    let handlers = handlers.into_iter().map(|path| container.at(path));
    let hosts = handlers.flat_map(|handler| [handler.text("httpGet.host"), handler.text("tcpSocket.host")]);
    hosts.filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::pod_security::evaluate::found;

    #[test]
    fn host_image() {
        for (spec, expected) in [
            (json!({"containers": [{"name": "c", "image": "host:latest"}, {"name": "d", "image": "a/host"}]}), ""),
            (
                json!({"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "host"}]}),
                "host image (container \"d\" must not use image \"host\")",
            ),
            (
                json!({
                    "initContainers": [{"name": "i", "image": "host"}],
                    "ephemeralContainers": [{"name": "e", "image": "host"}],
                }),
                "host image (containers \"i\", \"e\" must not use image \"host\")",
            ),
        ] {
            for minor in [0, 37] {
                assert_eq!(found("hostImage", minor, &Value::Null, &spec), expected, "{spec}");
            }
        }
    }

    #[test]
    fn host_namespaces() {
        for (spec, expected) in [
            (json!({}), ""),
            (json!({"hostNetwork": false, "hostPID": false}), ""),
            (json!({"hostIPC": true}), "host namespaces (hostIPC=true)"),
            (
                json!({"hostIPC": true, "hostPID": true, "hostNetwork": true}),
                "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
            ),
        ] {
            for minor in [0, 20, 37] {
                assert_eq!(found("hostNamespaces", minor, &Value::Null, &spec), expected, "{spec}");
            }
        }
    }

    #[test]
    fn host_ports() {
        let container = |name: &str, ports: &[i64]| {
            let ports: Vec<Value> = ports.iter().map(|port| json!({"containerPort": 1, "hostPort": port})).collect();
            json!({"name": name, "ports": ports})
        };
        for (containers, expected) in [
            (json!([{"name": "c", "ports": [{"containerPort": 80}]}, container("d", &[0])]), ""),
            (json!([container("c", &[80])]), "hostPort (container \"c\" uses hostPort 80)"),
            (json!([container("c", &[9, 80, 10])]), "hostPort (container \"c\" uses hostPorts 10, 80, 9)"),
            (
                json!([container("b", &[80]), container("c", &[]), container("a", &[80])]),
                "hostPort (containers \"b\", \"a\" use hostPort 80)",
            ),
        ] {
            for minor in [0, 37] {
                let spec = json!({"containers": containers});
                assert_eq!(found("hostPorts", minor, &Value::Null, &spec), expected, "{spec}");
            }
        }
    }

    #[test]
    fn hosts_of_probes_and_handlers() {
        for (containers, expected) in [
            (json!([{"name": "c", "livenessProbe": {"httpGet": {"port": 1, "host": ""}, "exec": {}}}]), ""),
            (
                json!([{"name": "c", "startupProbe": {"tcpSocket": {"port": 1, "host": "h"}}}]),
                "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"h\")",
            ),
            (
                json!([
                    {"name": "d", "lifecycle": {"preStop": {"httpGet": {"host": "b"}}}, "readinessProbe": {"httpGet": {"host": "c"}}},
                    {"name": "c", "lifecycle": {"postStart": {"tcpSocket": {"host": "a"}}}},
                ]),
                "probe or lifecycle host (containers \"c\", \"d\" use probe or lifecycle hosts \"a\", \"b\", \"c\")",
            ),
        ] {
            let spec = json!({"containers": containers});
            for minor in [34, 37] {
                assert_eq!(found("hostProbesAndHostLifecycle", minor, &Value::Null, &spec), expected, "{spec}");
            }
            assert_eq!(found("hostProbesAndHostLifecycle", 33, &Value::Null, &spec), "", "{spec}");
        }
    }
}
