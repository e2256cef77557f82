//! The load balancer: whether a Service that wants one has an address, and why not.

use api::value::ValueExt as _;

use super::super::evidence::Evidence;
use super::super::near::listed;
use super::super::verdict::Judged;

/// What the commands begin with that our load balancers tell people to type.
const COMMANDS: [&str; 4] = ["kubectl ", "echo ", "ss ", "waypost "];

/// Whether it has the address that it asks for.
pub(super) fn assigned(evidence: &Evidence<'_>) -> Judged {
    let Some(service) = evidence.service().filter(|_| evidence.kind() == "LoadBalancer") else {
        return Judged::proved("it asks for no load balancer");
    };
    let ips: Vec<String> = evidence.balancer_ips().iter().map(ToString::to_string).collect();
    if !service.items("status.loadBalancer.ingress").is_empty() {
        return Judged::proved(if ips.is_empty() { "it has a name".to_owned() } else { listed(&ips) });
    }
    let conditions = service.items("status.conditions").iter();
    let said = conditions
        .filter(|one| one.text("type") == control::load_balancer::CONDITION)
        .find(|one| one.text("status") == "False");
    if let Some(said) = said {
        let (message, edit) =
            (said.text("message"), format!("kubectl edit service {} {}", evidence.name, evidence.flag()));
        let command = message.rsplit_once(": ").map(|(_, command)| command);
        let fix = command.filter(|command| COMMANDS.iter().any(|word| command.starts_with(word)));
        return Judged::disproved(message, fix.map_or(edit, str::to_owned));
    }
    let class = evidence.spec().text("loadBalancerClass");
    let ours = class.is_empty() || api::view::service::CLASSES.contains(&class);
    match ours {
        true => Judged::unknown(
            "no load balancer has answered yet, and ours says nothing of it",
            "is it on? `waypost server --load-balancer=on`; `waypost up` has it on",
        ),
        false => Judged::unknown(
            format!("its class is {class}, which is not ours; whoever serves that class has not answered yet"),
            "look at the controller of that class",
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{World, disproved, proved, unknown};
    use super::*;

    fn world(spec: serde_json::Value, status: serde_json::Value) -> World {
        let mut world = World::new();
        world.service("default", "web", spec);
        world.cluster.services[0].put("status", status);
        world
    }

    #[test]
    fn a_pending_load_balancer_says_why_and_what_to_type() {
        let balancer = || json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
        let told = |message: &str| json!({"conditions": [{"type": "LoadBalancerReady", "status": "False", "message": message}]});
        let (saw, fix) = disproved(
            world(balancer(), told("no address is free in pool a; add addresses: kubectl edit ippool a"))
                .judge("default", "web", assigned),
        );
        assert!(saw.contains("pool a"), "{saw}");
        assert_eq!(fix, "kubectl edit ippool a");
        let (_, fix) =
            disproved(world(balancer(), told("annotation x: y is no address")).judge("default", "web", assigned));
        assert!(fix.starts_with("kubectl edit service web"), "{fix}");
        unknown(world(balancer(), json!({})).judge("default", "web", assigned));
        let mut foreign = balancer();
        foreign.put("loadBalancerClass", "example.com/lb");
        unknown(world(foreign, json!({})).judge("default", "web", assigned));
        proved(world(json!({"ports": [{"port": 80}]}), json!({})).judge("default", "web", assigned));
        let given = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
        proved(world(balancer(), given).judge("default", "web", assigned));
    }
}
