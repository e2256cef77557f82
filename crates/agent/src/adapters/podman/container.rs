//! Maps the inspection of a podman or docker container to a Pod. Pure.
//!
//! ```text
//! name, or the label waypost.dev/name ─▶ name        labels that Pods may have ─▶ labels
//! addresses of its networks ─▶ podIPs                exposed ports, labels waypost.dev/port.NAME ─▶ ports
//! health check ─▶ readiness                          the label waypost.dev/namespace ─▶ namespace
//! ```
//! A container on the host network has the node's addresses. So has one without an address of its own that publishes ports (rootless podman):
//! then its ports are the published ones.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::adopted::{Draft, Port, pod_labels, pod_name};
use api::names;
use api::value::ValueExt as _;
use serde_json::{Map, Value};

use super::super::Discovered;
use super::super::observed::{Observed, RunState};

const NAMESPACE: &str = "waypost.dev/namespace";
const NAME: &str = "waypost.dev/name";
const PORT: &str = "waypost.dev/port.";

/// Whether the container has a health check.
pub(super) fn has_health(inspected: &Value) -> bool {
    !matches!(inspected.text("State.Health.Status"), "" | "none")
}

/// Reads a container; nothing when it is stopped or has no valid Pod name.
pub(super) fn read(how: &'static str, inspected: &Value) -> Option<Discovered> {
    let label =
        |key: &str| inspected.at("Config.Labels").get(key).and_then(Value::as_str).filter(|value| !value.is_empty());
    let own_name = inspected.text("Name").trim_start_matches('/');
    let state = match (inspected.flag("State.Running"), inspected.flag("State.Paused")) {
        (_, true) => RunState::Waiting,
        (true, false) => RunState::Running(inspected.text("State.StartedAt").parse().ok()),
        (false, false) => return None,
    };
    let mut addresses = addresses(inspected);
    let mut host_network = inspected.text("HostConfig.NetworkMode") == "host";
    let mut ports = exposed(inspected);
    if addresses.is_empty() && !host_network {
        ports = published(inspected);
        host_network = !ports.is_empty();
    }
    if host_network {
        addresses.clear();
    }
    name_ports(&mut ports, inspected);
    let labels = inspected.map("Config.Labels").into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
    let image = inspected.text("Config.Image");
    let draft = Draft {
        how,
        source: own_name.to_owned(),
        namespace: label(NAMESPACE).unwrap_or("default").to_owned(),
        name: pod_name(label(NAME).unwrap_or(own_name))?,
        labels: pod_labels(labels),
        image: if image.trim().is_empty() { format!("{how}-rootfs") } else { image.to_owned() },
        host_network,
        ports,
        probe: Value::Null,
    };
    let healthy = match inspected.text("State.Health.Status") {
        "" | "none" => None,
        status => Some(status == "healthy"),
    };
    Some(Discovered { draft, observed: Observed { state, addresses, healthy, id: inspected.text("Id").to_owned() } })
}

/// One address per family: that of the first network by name that has one.
fn addresses(inspected: &Value) -> Vec<IpAddr> {
    let networks: BTreeMap<&String, &Value> = inspected.map("NetworkSettings.Networks").into_iter().flatten().collect();
    let all = |field: &str| -> Option<IpAddr> {
        let own = inspected.at("NetworkSettings").text(field);
        networks.values().map(|network| network.text(field)).chain([own]).find_map(|text| text.parse().ok())
    };
    [all("IPAddress"), all("GlobalIPv6Address")].into_iter().flatten().collect()
}

/// `8080/tcp`
fn port(text: &str) -> Option<Port> {
    let (number, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = protocol.to_ascii_uppercase();
    let known = ["TCP", "UDP", "SCTP"].contains(&protocol.as_str());
    let number = number.parse().ok().filter(|number| *number > 0)?;
    known.then_some(Port { name: String::new(), number, protocol })
}

/// The exposed ports.
fn exposed(inspected: &Value) -> Vec<Port> {
    let keys = |path: &str| inspected.map(path).map(Map::keys).into_iter().flatten();
    let all = keys("Config.ExposedPorts").chain(keys("NetworkSettings.Ports"));
    let all: BTreeSet<Port> = all.filter_map(|text| port(text)).collect();
    all.into_iter().collect()
}

/// The published ports, except those on loopback.
fn published(inspected: &Value) -> Vec<Port> {
    let mut all = BTreeSet::new();
    for (text, bindings) in inspected.map("NetworkSettings.Ports").into_iter().flatten() {
        for binding in bindings.as_array().into_iter().flatten() {
            let closed = binding.text("HostIp").parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
            let number = binding.text("HostPort").parse().ok().filter(|_| !closed);
            all.extend(port(text).zip(number).map(|(port, number)| Port { number, ..port }));
        }
    }
    all.into_iter().collect()
}

/// Applies `waypost.dev/port.NAME` labels: names ports, and adds ports that only labels declare.
fn name_ports(ports: &mut Vec<Port>, inspected: &Value) {
    for (key, value) in inspected.map("Config.Labels").into_iter().flatten() {
        let Some(name) = key.strip_prefix(PORT).filter(|name| names::port_name(name).is_empty()) else { continue };
        let Some(wanted) = value.as_str().and_then(port) else { continue };
        match ports.iter_mut().find(|port| (port.number, &port.protocol) == (wanted.number, &wanted.protocol)) {
            Some(port) => name.clone_into(&mut port.name),
            None => ports.push(Port { name: name.to_owned(), ..wanted }),
        }
    }
}

#[cfg(test)]
mod tests {
    use api::adopted::PODMAN;
    use serde_json::json;

    use super::*;

    /// As podman 4.3 reports it.
    fn inspected() -> Value {
        json!({
            "Id": "26460a1f", "Name": "/My_Web", "Image": "sha256:",
            "State": {
                "Status": "running", "Running": true, "Paused": false, "StartedAt": "2026-11-16T07:04:30.376031511Z",
                "Health": {"Status": "starting", "FailingStreak": 0, "Log": null},
            },
            "HostConfig": {"NetworkMode": "bridge", "PortBindings": {"8080/tcp": null}},
            "Config": {
                "Image": "", "ExposedPorts": {"8080/tcp": {}},
                "Labels": {"app": "web", "title": "two words", "waypost.dev/port.http": "8080", "waypost.dev/port.dns": "53/udp"},
            },
            "NetworkSettings": {
                "Ports": {"8080/tcp": null}, "IPAddress": "10.88.0.7", "GlobalIPv6Address": "",
                "Networks": {"podman": {"IPAddress": "10.88.0.7", "GlobalIPv6Address": ""}},
            },
        })
    }

    fn change(path: &str, value: Value) -> Option<Discovered> {
        let mut inspected = inspected();
        inspected.put(path, value);
        read(PODMAN, &inspected)
    }

    #[test]
    fn a_container_is_mapped_to_a_pod() {
        let found = read(PODMAN, &inspected()).unwrap();
        let draft = &found.draft;
        assert_eq!((draft.name.as_str(), draft.source.as_str()), ("my-web", "My_Web"));
        assert_eq!((draft.namespace.as_str(), draft.image.as_str()), ("default", "podman-rootfs"));
        assert_eq!(draft.labels.get("app").map(String::as_str), Some("web"));
        assert!(!draft.labels.contains_key("title") && !draft.host_network);
        let ports: Vec<(&str, u16, &str)> =
            draft.ports.iter().map(|port| (port.name.as_str(), port.number, port.protocol.as_str())).collect();
        assert_eq!(ports, [("http", 8080, "TCP"), ("dns", 53, "UDP")]);
        assert_eq!(found.observed.addresses, [IpAddr::from([10, 88, 0, 7])]);
        assert_eq!((found.observed.healthy, has_health(&inspected())), (Some(false), true));
        assert!(matches!(found.observed.state, RunState::Running(Some(_))));
    }

    #[test]
    fn health_check_results_are_read() {
        for (status, healthy) in [("healthy", Some(true)), ("unhealthy", Some(false)), ("", None), ("none", None)] {
            let found = change("State.Health.Status", json!(status)).unwrap();
            assert_eq!(found.observed.healthy, healthy, "{status}");
        }
    }

    #[test]
    fn a_stopped_container_is_no_pod_and_a_paused_one_waits() {
        assert_eq!(change("State.Running", json!(false)), None);
        assert_eq!(change("State.Paused", json!(true)).unwrap().observed.state, RunState::Waiting);
        assert_eq!(change("Name", json!("/__")), None);
    }

    #[test]
    fn a_container_without_an_address_uses_the_host_network() {
        let host = change("HostConfig.NetworkMode", json!("host")).unwrap();
        assert!(host.draft.host_network && host.observed.addresses.is_empty());
        let ports = json!({
            "8080/tcp": [{"HostIp": "", "HostPort": "18080"}], "9090/tcp": [{"HostIp": "127.0.0.1", "HostPort": "19090"}],
        });
        let without = change("NetworkSettings", json!({"Ports": ports, "Networks": {}})).unwrap();
        let numbers: Vec<u16> = without.draft.ports.iter().map(|port| port.number).collect();
        assert!(without.draft.host_network && numbers.contains(&18080) && !numbers.contains(&19090), "{numbers:?}");
        let alone = change("NetworkSettings", json!({"Ports": {}, "Networks": {}})).unwrap();
        assert!(!alone.draft.host_network && alone.observed.addresses.is_empty(), "it is unreachable");
    }

    #[test]
    fn labels_choose_name_and_namespace() {
        let mut inspected = inspected();
        inspected["Config"]["Labels"] = json!({"waypost.dev/name": "cart", "waypost.dev/namespace": "shop"});
        let found = read(PODMAN, &inspected).unwrap();
        assert_eq!((found.draft.namespace.as_str(), found.draft.name.as_str()), ("shop", "cart"));
    }
}
