//! Where the ports of a Service lead: names that containers must declare, numbers that they may.

use api::value::ValueExt as _;
use serde_json::Value;

use super::super::evidence::{Evidence, Port, port_number};
use super::super::near::{is_near, listed};
use super::super::verdict::Judged;

/// A port that a container declares.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) number: u16,
    pub(super) protocol: String,
}

impl Declared {
    pub(super) fn words(&self) -> String {
        match &*self.name {
            "" => format!("{}/{}", self.number, self.protocol),
            name => format!("{name} ({}/{})", self.number, self.protocol),
        }
    }
}

/// What the containers of Pods declare, each once.
pub(super) fn declared(pods: &[&Value]) -> Vec<Declared> {
    let containers = pods.iter().flat_map(|pod| pod.items("spec.containers"));
    let ports = containers.flat_map(|container| container.items("ports"));
    let mut all: Vec<Declared> = ports
        .filter_map(|port| {
            Some(Declared {
                name: port.text("name").to_owned(),
                number: port_number(port.at("containerPort"))?,
                protocol: Some(port.text("protocol")).filter(|text| !text.is_empty()).unwrap_or("TCP").to_owned(),
            })
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The declared port that a Service port probably means: a name that is nearly it, its own number, or the only one there is.
pub(super) fn meant<'a>(port: &Port, declared: &'a [Declared]) -> Option<&'a Declared> {
    let same: Vec<&Declared> = declared.iter().filter(|one| one.protocol == port.protocol.as_str()).collect();
    let near = |one: &&&Declared| port.target.as_str().is_some_and(|name| is_near(name, &one.name));
    let named = |one: &&&Declared| !port.name.is_empty() && one.name == port.name;
    let numbered = |one: &&&Declared| one.number == port.number;
    let found = same.iter().find(near).or_else(|| same.iter().find(named)).or_else(|| same.iter().find(numbered));
    found.copied().or_else(|| if let [one] = same[..] { Some(one) } else { None })
}

/// Whether every targetPort leads to something.
pub(super) fn named(evidence: &Evidence<'_>) -> Judged {
    let pods = evidence.pods();
    if pods.is_empty() {
        return Judged::moot("it selects no Pod");
    }
    let declared = declared(&pods);
    let words: Vec<String> = declared.iter().map(Declared::words).collect();
    let mut saw = Vec::new();
    for port in evidence.ports() {
        let Some(name) = port.target.as_str() else {
            let number = port_number(&port.target).unwrap_or(port.number);
            let known = declared.iter().any(|one| one.number == number && one.protocol == port.protocol.as_str());
            saw.push(format!("{number}{}", if known { "" } else { " (which no container declares; it need not)" }));
            continue;
        };
        let fits = |one: &Declared| one.name == name && one.protocol == port.protocol.as_str();
        if let Some(one) = declared.iter().find(|one| fits(one)) {
            saw.push(format!("{name} is {}", one.number));
            continue;
        }
        let other = declared.iter().find(|one| one.name == name);
        let have = match (&other, words.is_empty()) {
            (Some(other), _) => {
                format!("their port {name} is {}, and the Service asks for {}", other.protocol, port.protocol)
            }
            (None, false) => format!("they have {}", listed(&words)),
            (None, true) => "they declare no port at all".to_owned(),
        };
        let target = meant(&port, &declared).map(|one| match &*one.name {
            "" => Value::from(one.number),
            name => Value::from(name),
        });
        let fix = target.map_or_else(
            || format!("kubectl edit service {} {}", evidence.name, evidence.flag()),
            |target| evidence.retarget(&port, &target),
        );
        return Judged::disproved(format!("targetPort {name} of port {} is in no Pod: {have}", port.number), fix);
    }
    Judged::proved(listed(&saw))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{World, disproved, proved};
    use super::*;

    fn world(port: &Value, declared: &Value) -> World {
        let mut world = World::new();
        world.service("default", "web", json!({"selector": {"app": "web"}, "ports": [port]}));
        world.pod("default", "web-1", json!({"app": "web"}));
        world.cluster.pods[0].put("spec.containers", json!([{"name": "main", "ports": declared}]));
        world
    }

    #[test]
    fn a_name_that_no_container_has_is_disproved_with_those_that_they_have() {
        let world = world(&json!({"port": 80, "targetPort": "htp"}), &json!([{"name": "http", "containerPort": 8080}]));
        let (saw, fix) = disproved(world.judge("default", "web", named));
        assert!(saw.contains("they have http (8080/TCP)"), "{saw}");
        let wanted = r#"'[{"op":"replace","path":"/spec/ports/0/targetPort","value":"http"}]'"#;
        assert!(fix.ends_with(wanted), "{fix}");
    }

    #[test]
    fn a_name_of_another_protocol_is_another_name() {
        let declared = json!([{"name": "dns", "containerPort": 53, "protocol": "UDP"}]);
        let world = world(&json!({"port": 53, "targetPort": "dns", "protocol": "TCP"}), &declared);
        assert!(disproved(world.judge("default", "web", named)).0.contains("their port dns is UDP"));
    }

    #[test]
    fn names_that_are_there_and_numbers_are_proved() {
        let declared = json!([{"name": "http", "containerPort": 8080}]);
        let by_name = world(&json!({"port": 80, "targetPort": "http"}), &declared);
        assert_eq!(proved(by_name.judge("default", "web", named)), "http is 8080");
        let by_number = world(&json!({"port": 80, "targetPort": 9999}), &declared);
        assert!(proved(by_number.judge("default", "web", named)).contains("it need not"));
    }
}
