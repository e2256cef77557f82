//! The two Services of a canary. Pure.
//!
//! In: the Service that clients use and the one that gets a part of its requests. Out: the ports of both that belong together, what is wrong with them,
//! and the change of the first that ends the canary for good.

use std::fmt::Write as _;

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use api::view::service::ServicePort;
use api::view::{Protocol, Service};
use serde_json::{Value, json};

/// Values of `appProtocol` for ports where no HTTP can be read: it is encrypted, or something else.
const NO_HTTP: [&str; 6] = ["https", "wss", "kubernetes.io/wss", "grpcs", "tls", "tcp"];

/// A port of the Service, and the one of its canary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ports {
    pub(super) stable: u16,
    /// The name of the first; empty if it has none.
    pub(super) name: Box<str>,
    pub(super) canary: u16,
}

/// Reads a Service.
pub(super) fn view(object: &Value) -> anyhow::Result<Service> {
    serde_json::from_value(object.clone()).with_context(|| format!("reading service/{}", object.text("metadata.name")))
}

/// The port of a Service, by number or name; without one, its only TCP port.
///
/// # Errors
/// When routes cannot have the Service as parent, or the choice of the port is not clear.
fn port<'s>(service: &'s Service, wanted: Option<&str>) -> anyhow::Result<&'s ServicePort> {
    let name = &service.metadata.name;
    ensure!(
        !service.is_external_name() && !service.is_headless(),
        "service/{name} has no cluster IP, so nothing can decide about its requests"
    );
    let tcp = || service.spec.ports.iter().filter(|port| port.protocol == Some(Protocol::Tcp));
    let found = match wanted {
        Some(text) => tcp().find(|port| text == &*port.name || text.parse() == Ok(port.port)),
        None if tcp().count() == 1 => tcp().next(),
        None => bail!("service/{name} has the ports {}; choose one with --port", listed(tcp())),
    };
    let port = found.with_context(|| {
        format!("service/{name} has no TCP port {:?}; it has {}", wanted.unwrap_or_default(), listed(tcp()))
    })?;
    let spoken = port.app_protocol.as_deref().unwrap_or("http");
    ensure!(
        !NO_HTTP.contains(&spoken.to_ascii_lowercase().as_str()),
        "port {} of service/{name} has the appProtocol {spoken}; an HTTPRoute needs requests that are not encrypted",
        port.port
    );
    Ok(port)
}

/// The ports that belong together: the port of the canary has the same name or number, or is its only one.
pub(super) fn ports(stable: &Service, canary: &Service, wanted: Option<&str>) -> anyhow::Result<Ports> {
    let (name, other) = (&stable.metadata.name, &canary.metadata.name);
    ensure!(name != other, "service/{name} cannot be its own canary; name another Service with --to");
    ensure!(!canary.is_external_name(), "service/{other} is a name outside of the cluster; it has no endpoints");
    let port = port(stable, wanted)?;
    let tcp = || canary.spec.ports.iter().filter(|port| port.protocol == Some(Protocol::Tcp));
    let found = tcp()
        .find(|one| !one.name.is_empty() && one.name == port.name)
        .or_else(|| tcp().find(|one| one.port == port.port))
        .or_else(|| tcp().next().filter(|_| tcp().count() == 1))
        .with_context(|| {
            let own = if port.name.is_empty() { String::new() } else { format!(" ({})", port.name) };
            format!("service/{other} has no port {}{own}; it has {}", port.port, listed(tcp()))
        })?;
    ensure!(
        found.app_protocol == port.app_protocol,
        "port {} of service/{name} has the appProtocol {}, port {} of service/{other} {}; they must be equal",
        port.port,
        spoken(port),
        found.port,
        spoken(found)
    );
    Ok(Ports { stable: port.port, name: port.name.clone(), canary: found.port })
}

fn spoken(port: &ServicePort) -> &str {
    port.app_protocol.as_deref().unwrap_or("<none>")
}

/// `80 (http), 81`.
fn listed<'s>(ports: impl Iterator<Item = &'s ServicePort>) -> String {
    let mut out = String::new();
    for port in ports {
        let comma = if out.is_empty() { "" } else { ", " };
        let _ = write!(out, "{comma}{}", port.port);
        if !port.name.is_empty() {
            let _ = write!(out, " ({})", port.name);
        }
    }
    if out.is_empty() { "none".to_owned() } else { out }
}

/// Whether a Service selects the Pods of its canary, too: then they get more requests than the weight says.
pub(super) fn overlaps(stable: &Service, canary: &Service) -> bool {
    let (own, other) = (&stable.spec.selector, &canary.spec.selector);
    own.iter().next().is_some() && own.iter().all(|(key, value)| other.get(key) == Some(value))
}

/// The JSON patch that has a Service select the Pods of its canary; none if it does already.
///
/// # Errors
/// When one of them has no selector.
pub(super) fn promotion(stable: &Value, canary: &Value) -> anyhow::Result<Option<Value>> {
    let selector = |object: &Value| -> anyhow::Result<Value> {
        let found = object.at("spec.selector");
        ensure!(
            found.as_object().is_some_and(|map| !map.is_empty()),
            "service/{} has no selector; move all requests with --weight 100 instead",
            object.text("metadata.name")
        );
        Ok(found.clone())
    };
    let (own, wanted) = (selector(stable)?, selector(canary)?);
    let mut changes = Vec::new();
    if own != wanted {
        changes.push(json!({"op": "replace", "path": "/spec/selector", "value": wanted}));
    }
    for (index, port) in stable.items("spec.ports").iter().enumerate() {
        let same = |other: &&Value| {
            let named = !port.text("name").is_empty() && port.text("name") == other.text("name");
            port.text("protocol") == other.text("protocol") && (named || port.int("port") == other.int("port"))
        };
        if let Some(other) = canary.items("spec.ports").iter().find(same)
            && other.at("targetPort") != port.at("targetPort")
        {
            let path = format!("/spec/ports/{index}/targetPort");
            changes.push(json!({"op": "replace", "path": path, "value": other.at("targetPort")}));
        }
    }
    if changes.is_empty() {
        return Ok(None);
    }
    let version = stable.text("metadata.resourceVersion");
    changes.insert(0, json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
    Ok(Some(changes.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, spec: Value) -> Value {
        let mut spec = spec;
        for port in spec.items_mut("ports") {
            port.put("protocol", "TCP");
        }
        json!({"metadata": {"name": name, "resourceVersion": "7"}, "spec": spec})
    }

    fn pair(stable: Value, canary: Value, wanted: Option<&str>) -> Result<(u16, u16), String> {
        let [stable, canary] =
            [("web", stable), ("next", canary)].map(|(name, spec)| view(&service(name, spec)).expect("a Service"));
        ports(&stable, &canary, wanted).map(|found| (found.stable, found.canary)).map_err(|error| error.to_string())
    }

    #[test]
    fn ports_belong_together_by_name_by_number_or_alone() {
        let two = json!({"ports": [{"name": "http", "port": 80}, {"name": "admin", "port": 81}]});
        let one = json!({"ports": [{"port": 8080}]});
        assert_eq!(pair(one.clone(), json!({"ports": [{"port": 9090}]}), None), Ok((8080, 9090)));
        assert_eq!(
            pair(
                two.clone(),
                json!({"ports": [{"name": "http", "port": 8000}, {"name": "x", "port": 80}]}),
                Some("http")
            ),
            Ok((80, 8000))
        );
        assert_eq!(pair(two.clone(), two.clone(), Some("81")), Ok((81, 81)));
        assert_eq!(
            pair(one, two.clone(), None).unwrap_err(),
            "service/next has no port 8080; it has 80 (http), 81 (admin)"
        );
        assert_eq!(
            pair(two.clone(), two.clone(), None).unwrap_err(),
            "service/web has the ports 80 (http), 81 (admin); choose one with --port"
        );
        assert_eq!(
            pair(two.clone(), two, Some("82")).unwrap_err(),
            r#"service/web has no TCP port "82"; it has 80 (http), 81 (admin)"#
        );
    }

    #[test]
    fn services_that_no_route_can_serve_are_refused() {
        let good = json!({"ports": [{"port": 80}]});
        let refused = |stable: Value, canary: Value, why: &str| {
            let error = pair(stable, canary, None).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        refused(json!({"clusterIP": "None", "ports": [{"port": 80}]}), good.clone(), "no cluster IP");
        refused(json!({"type": "ExternalName", "externalName": "x.test"}), good.clone(), "no cluster IP");
        refused(json!({"ports": [{"port": 80, "appProtocol": "https"}]}), good.clone(), "not encrypted");
        refused(json!({"ports": [{"port": 80, "appProtocol": "grpc"}]}), good.clone(), "must be equal");
        refused(good.clone(), json!({"type": "ExternalName", "externalName": "x.test"}), "outside of the cluster");
        let own = view(&service("web", good)).expect("a Service");
        assert!(ports(&own, &own, None).unwrap_err().to_string().contains("its own canary"));
    }

    #[test]
    fn a_selector_that_takes_in_the_canary_is_found() {
        let overlap = |own: Value, other: Value| {
            let [own, other] =
                [own, other].map(|selector| view(&service("x", json!({"selector": selector}))).expect("a Service"));
            overlaps(&own, &other)
        };
        assert!(overlap(json!({"app": "web"}), json!({"app": "web", "track": "canary"})));
        assert!(!overlap(json!({"app": "web", "track": "stable"}), json!({"app": "web", "track": "canary"})));
        assert!(!overlap(json!({}), json!({"app": "web"})), "no selector selects nothing");
    }

    #[test]
    fn a_promotion_takes_selector_and_target_ports() {
        let spec = |track: &str, target: u16| {
            service(
                "web",
                json!({"selector": {"app": "web", "track": track}, "ports": [{"name": "http", "port": 80, "targetPort": target}]}),
            )
        };
        let (stable, canary) = (spec("stable", 8080), spec("canary", 9090));
        assert_eq!(
            promotion(&stable, &canary).expect("a patch"),
            Some(json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "replace", "path": "/spec/selector", "value": {"app": "web", "track": "canary"}},
                {"op": "replace", "path": "/spec/ports/0/targetPort", "value": 9090},
            ]))
        );
        assert_eq!(promotion(&canary, &canary).expect("no patch"), None);
        let bare = service("next", json!({"ports": []}));
        assert!(promotion(&stable, &bare).unwrap_err().to_string().contains("--weight 100"));
    }
}
