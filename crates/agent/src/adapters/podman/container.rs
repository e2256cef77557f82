//! A container as podman and docker tell of it, read as a Pod: a pure function.
//!
//! ```text
//! name, or the label waypost.dev/name ─▶ name        labels that Pods may have ─▶ labels
//! addresses of its networks ─▶ podIPs                ports that it exposes, labels waypost.dev/port.NAME ─▶ ports
//! its health ─▶ readiness                            the label waypost.dev/namespace ─▶ namespace
//! ```
//! A container on the network of the machine is at the machine's addresses. So is one that nobody can reach but through ports that it
//! publishes, as those of users without rights are: then these are its ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::adopted::{Draft, Port, pod_labels, pod_name};
use api::names;
use api::value::ValueExt as _;
use serde_json::{Map, Value};

use super::super::Found;
use super::super::standing::{Life, Standing};

const NAMESPACE: &str = "waypost.dev/namespace";
const NAME: &str = "waypost.dev/name";
const PORT: &str = "waypost.dev/port.";

/// Whether its health is looked after.
pub(super) fn has_health(told: &Value) -> bool {
    !matches!(told.text("State.Health.Status"), "" | "none")
}

/// Reads it; nothing when it does not run, or cannot be a Pod.
pub(super) fn read(how: &'static str, told: &Value) -> Option<Found> {
    let label = |key: &str| told.at("Config.Labels").get(key).and_then(Value::as_str).filter(|value| !value.is_empty());
    let own_name = told.text("Name").trim_start_matches('/');
    let life = match (told.flag("State.Running"), told.flag("State.Paused")) {
        (_, true) => Life::Waiting,
        (true, false) => Life::Running(told.text("State.StartedAt").parse().ok()),
        (false, false) => return None,
    };
    let mut addresses = addresses(told);
    let mut host_network = told.text("HostConfig.NetworkMode") == "host";
    let mut ports = exposed(told);
    if addresses.is_empty() && !host_network {
        ports = published(told);
        host_network = !ports.is_empty();
    }
    if host_network {
        addresses.clear();
    }
    name_ports(&mut ports, told);
    let labels = told.map("Config.Labels").into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
    let image = told.text("Config.Image");
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
    let healthy = match told.text("State.Health.Status") {
        "" | "none" => None,
        status => Some(status == "healthy"),
    };
    Some(Found { draft, standing: Standing { life, addresses, healthy, id: told.text("Id").to_owned() } })
}

/// One of each family, as Pods have; that of the first network by name that has one.
fn addresses(told: &Value) -> Vec<IpAddr> {
    let networks: BTreeMap<&String, &Value> = told.map("NetworkSettings.Networks").into_iter().flatten().collect();
    let all = |field: &str| -> Option<IpAddr> {
        let own = told.at("NetworkSettings").text(field);
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

/// The ports that it says it listens on.
fn exposed(told: &Value) -> Vec<Port> {
    let keys = |path: &str| told.map(path).map(Map::keys).into_iter().flatten();
    let all = keys("Config.ExposedPorts").chain(keys("NetworkSettings.Ports"));
    let all: BTreeSet<Port> = all.filter_map(|text| port(text)).collect();
    all.into_iter().collect()
}

/// The ports of the machine that lead to it, from elsewhere too.
fn published(told: &Value) -> Vec<Port> {
    let mut all = BTreeSet::new();
    for (text, bindings) in told.map("NetworkSettings.Ports").into_iter().flatten() {
        for binding in bindings.as_array().into_iter().flatten() {
            let closed = binding.text("HostIp").parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
            let number = binding.text("HostPort").parse().ok().filter(|_| !closed);
            all.extend(port(text).zip(number).map(|(port, number)| Port { number, ..port }));
        }
    }
    all.into_iter().collect()
}

/// Gives ports the names that labels give them, and adds those that only labels speak of.
fn name_ports(ports: &mut Vec<Port>, told: &Value) {
    for (key, value) in told.map("Config.Labels").into_iter().flatten() {
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

    /// As podman 4.3 tells of it.
    fn told() -> Value {
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

    fn change(path: &str, value: Value) -> Option<Found> {
        let mut told = told();
        told.put(path, value);
        read(PODMAN, &told)
    }

    #[test]
    fn a_container_is_a_pod() {
        let found = read(PODMAN, &told()).unwrap();
        let draft = &found.draft;
        assert_eq!((draft.name.as_str(), draft.source.as_str()), ("my-web", "My_Web"));
        assert_eq!((draft.namespace.as_str(), draft.image.as_str()), ("default", "podman-rootfs"));
        assert_eq!(draft.labels.get("app").map(String::as_str), Some("web"));
        assert!(!draft.labels.contains_key("title") && !draft.host_network);
        let ports: Vec<(&str, u16, &str)> =
            draft.ports.iter().map(|port| (port.name.as_str(), port.number, port.protocol.as_str())).collect();
        assert_eq!(ports, [("http", 8080, "TCP"), ("dns", 53, "UDP")]);
        assert_eq!(found.standing.addresses, [IpAddr::from([10, 88, 0, 7])]);
        assert_eq!((found.standing.healthy, has_health(&told())), (Some(false), true));
        assert!(matches!(found.standing.life, Life::Running(Some(_))));
    }

    #[test]
    fn health_counts_when_there_is_one() {
        for (status, healthy) in [("healthy", Some(true)), ("unhealthy", Some(false)), ("", None), ("none", None)] {
            let found = change("State.Health.Status", json!(status)).unwrap();
            assert_eq!(found.standing.healthy, healthy, "{status}");
        }
    }

    #[test]
    fn what_does_not_run_is_no_pod_and_what_pauses_is_not_ready() {
        assert_eq!(change("State.Running", json!(false)), None);
        assert_eq!(change("State.Paused", json!(true)).unwrap().standing.life, Life::Waiting);
        assert_eq!(change("Name", json!("/__")), None);
    }

    #[test]
    fn a_container_without_a_network_of_its_own_is_at_the_machine() {
        let host = change("HostConfig.NetworkMode", json!("host")).unwrap();
        assert!(host.draft.host_network && host.standing.addresses.is_empty());
        let ports = json!({
            "8080/tcp": [{"HostIp": "", "HostPort": "18080"}], "9090/tcp": [{"HostIp": "127.0.0.1", "HostPort": "19090"}],
        });
        let without = change("NetworkSettings", json!({"Ports": ports, "Networks": {}})).unwrap();
        let numbers: Vec<u16> = without.draft.ports.iter().map(|port| port.number).collect();
        assert!(without.draft.host_network && numbers.contains(&18080) && !numbers.contains(&19090), "{numbers:?}");
        let alone = change("NetworkSettings", json!({"Ports": {}, "Networks": {}})).unwrap();
        assert!(!alone.draft.host_network && alone.standing.addresses.is_empty(), "nobody reaches it");
    }

    #[test]
    fn labels_choose_name_and_namespace() {
        let mut told = told();
        told["Config"]["Labels"] = json!({"waypost.dev/name": "cart", "waypost.dev/namespace": "shop"});
        let found = read(PODMAN, &told).unwrap();
        assert_eq!((found.draft.namespace.as_str(), found.draft.name.as_str()), ("shop", "cart"));
    }
}
