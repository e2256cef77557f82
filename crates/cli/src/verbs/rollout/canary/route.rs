//! The HTTPRoute of a canary. Pure.
//!
//! In: the HTTPRoutes and GRPCRoutes of a namespace. Out: the canary that a route describes, a new route, or a route with other weights. The
//! annotation [`CANARY`] marks the route; only weights of a marked route are changed, so filters and timeouts that users add to it stay.

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use api::view::annotations::CANARY;
use api::view::gateway_api::{BackendRef, GROUP, HttpRoute, ParentRef};
use serde_json::{Value, json};

use super::service::Ports;

/// A canary in progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Canary {
    /// The Service that clients use.
    pub(super) service: String,
    /// The one that gets a part of its requests.
    pub(super) to: String,
    /// How much of them, in percent.
    pub(super) weight: u8,
}

/// The name of the route for a Service.
pub(super) fn name(service: &str) -> String {
    format!("{service}-canary")
}

/// The route of a new canary.
pub(super) fn new(canary: &Canary, ports: &Ports) -> Value {
    let backend = |name: &str, port: u16, weight: u8| json!({"name": name, "port": port, "weight": weight});
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "HTTPRoute",
        "metadata": {"name": name(&canary.service), "annotations": {CANARY: canary.to}},
        "spec": {
            "parentRefs": [{"group": "", "kind": "Service", "name": canary.service, "port": ports.stable}],
            "rules": [{"backendRefs": [
                backend(&canary.service, ports.stable, 100 - canary.weight),
                backend(&canary.to, ports.canary, canary.weight),
            ]}],
        },
    })
}

/// The Service that gets a part of the requests, by the mark of a route.
///
/// # Errors
/// When the route was not made for a canary.
pub(super) fn mark(route: &Value) -> anyhow::Result<&str> {
    let name = route.text("metadata.name");
    route.at("metadata.annotations").get(CANARY).and_then(Value::as_str).with_context(|| {
        format!("httproute/{name} exists and is no canary (it has no annotation {CANARY}); delete or rename it")
    })
}

/// The canary that the route of a Service describes.
///
/// # Errors
/// When the route was not made for a canary, or has another form by now.
pub(super) fn read(route: &Value, service: &str) -> anyhow::Result<Canary> {
    let (name, to) = (route.text("metadata.name"), mark(route)?);
    let view: HttpRoute = serde_json::from_value(route.clone()).with_context(|| format!("reading httproute/{name}"))?;
    let [rule] = &view.spec.rules[..] else {
        bail!("httproute/{name} has {} rules by now, not one; change its weights yourself", view.spec.rules.len());
    };
    let (Some(stable), Some(canary)) = (weight_of(&rule.backend_refs, service), weight_of(&rule.backend_refs, to))
    else {
        bail!("httproute/{name} does not lead to service/{service} and service/{to}; change its weights yourself");
    };
    ensure!(rule.backend_refs.len() == 2, "httproute/{name} leads to further Services; change its weights yourself");
    let weight = (u64::from(canary) * 100).checked_div(u64::from(stable) + u64::from(canary)).unwrap_or(0);
    Ok(Canary { service: service.to_owned(), to: to.to_owned(), weight: u8::try_from(weight).unwrap_or(100) })
}

fn weight_of(backends: &[BackendRef], name: &str) -> Option<u32> {
    backends.iter().find(|backend| &*backend.object.name == name).map(|backend| backend.weight)
}

/// Sets the weights of the route that [`read`] has read. Returns whether that changes it.
pub(super) fn set_weight(route: &mut Value, canary: &Canary) -> bool {
    let before = route.clone();
    for rule in route.items_mut("spec.rules") {
        for backend in rule.items_mut("backendRefs") {
            let is_canary = backend.text("name") == canary.to;
            backend.put("weight", if is_canary { canary.weight } else { 100 - canary.weight });
        }
    }
    *route != before
}

/// A route in the namespace of a Service, other than that of its canary, that decides about requests to this port of the Service.
pub(super) fn competitor<'r>(routes: &'r [Value], service: &str, ports: &Ports) -> Option<&'r Value> {
    let attached = |reference: &ParentRef, own: &str| {
        (reference.group(), reference.kind(), &*reference.name) == ("", "Service", service)
            && reference.namespace.as_deref().is_none_or(|namespace| namespace == own)
            && reference.port.is_none_or(|number| number == ports.stable)
            && reference.section_name.as_deref().is_none_or(|section| *section == *ports.name)
    };
    routes.iter().find(|route| {
        let is_own = route.text("kind") == "HTTPRoute" && route.text("metadata.name") == name(service);
        let references: Vec<ParentRef> =
            serde_json::from_value(route.at("spec.parentRefs").clone()).unwrap_or_default();
        !is_own && references.iter().any(|reference| attached(reference, route.text("metadata.namespace")))
    })
}

/// What the controllers of routes have decided about a route: whether one of them accepted it, else why not. None before that.
pub(super) fn verdict(route: &Value) -> Option<Result<(), String>> {
    let generation = route.int("metadata.generation");
    let mut refused = None;
    for condition in route.items("status.parents").iter().flat_map(|parent| parent.items("conditions")) {
        if condition.text("type") == "Accepted" && condition.int("observedGeneration") >= generation {
            if condition.text("status") == "True" {
                return Some(Ok(()));
            }
            refused = Some(Err(format!("{}: {}", condition.text("reason"), condition.text("message"))));
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canary(weight: u8) -> Canary {
        Canary { service: "web".to_owned(), to: "web-next".to_owned(), weight }
    }

    fn route(weight: u8) -> Value {
        new(&canary(weight), &Ports { stable: 80, name: "http".into(), canary: 8080 })
    }

    #[test]
    fn a_new_route_describes_its_canary() {
        let route = route(10);
        assert_eq!(read(&route, "web").expect("a canary"), canary(10));
        assert_eq!(
            route["spec"],
            json!({
                "parentRefs": [{"group": "", "kind": "Service", "name": "web", "port": 80}],
                "rules": [{"backendRefs": [
                    {"name": "web", "port": 80, "weight": 90}, {"name": "web-next", "port": 8080, "weight": 10},
                ]}],
            })
        );
    }

    #[test]
    fn weights_change_and_nothing_else() {
        let mut route = route(10);
        route["spec"]["rules"][0]["timeouts"] = json!({"request": "5s"});
        assert!(!set_weight(&mut route, &canary(10)), "it has these weights");
        for weight in [0, 25, 100] {
            assert!(set_weight(&mut route, &canary(weight)));
            assert_eq!(read(&route, "web").expect("a canary"), canary(weight));
        }
        assert_eq!(route["spec"]["rules"][0]["timeouts"], json!({"request": "5s"}));
        assert_eq!(route["spec"]["rules"][0]["backendRefs"][1]["port"], 8080);
    }

    #[test]
    fn weights_that_users_wrote_are_percentages() {
        let mut route = route(10);
        route["spec"]["rules"][0]["backendRefs"][0]["weight"] = 3.into();
        route["spec"]["rules"][0]["backendRefs"][1].drop_path("weight");
        assert_eq!(read(&route, "web").expect("a canary").weight, 25, "1 of 4");
        route["spec"]["rules"][0]["backendRefs"][0]["weight"] = 0.into();
        route["spec"]["rules"][0]["backendRefs"][1]["weight"] = 0.into();
        assert_eq!(read(&route, "web").expect("a canary").weight, 0, "no requests at all");
    }

    #[test]
    fn routes_of_another_form_are_refused() {
        let error = |change: &dyn Fn(&mut Value)| {
            let mut route = route(10);
            change(&mut route);
            read(&route, "web").expect_err("a refusal").to_string()
        };
        let rules = |value: Value| move |route: &mut Value| route["spec"]["rules"] = value.clone();
        assert!(error(&|route| drop(route.drop_path("metadata.annotations"))).contains("no annotation"));
        assert!(error(&rules(json!([{}, {}]))).contains("2 rules"));
        assert!(error(&rules(json!([{"backendRefs": [{"name": "web"}]}]))).contains("does not lead"));
        let third = json!([{"backendRefs": [{"name": "web"}, {"name": "web-next"}, {"name": "other"}]}]);
        assert!(error(&rules(third)).contains("further Services"));
    }

    #[test]
    fn other_routes_of_the_port_compete() {
        let other = |kind: &str, name: &str, reference: Value| {
            json!({
                "kind": kind, "metadata": {"name": name, "namespace": "shop"},
                "spec": {"parentRefs": [{"name": "public"}, reference]},
            })
        };
        let service = |fields: Value| {
            let mut reference = json!({"group": "", "kind": "Service", "name": "web"});
            for (key, value) in fields.as_object().expect("fields") {
                reference[key] = value.clone();
            }
            reference
        };
        let found = |route: Value| {
            competitor(&[route], "web", &Ports { stable: 80, name: "http".into(), canary: 80 }).is_some()
        };
        for (fields, expected) in [
            (json!({}), true),
            (json!({"port": 80}), true),
            (json!({"port": 81}), false),
            (json!({"sectionName": "http"}), true),
            (json!({"sectionName": "other"}), false),
            (json!({"namespace": "shop"}), true),
            (json!({"namespace": "elsewhere"}), false),
            (json!({"name": "api"}), false),
            (json!({"group": "gateway.networking.k8s.io"}), false),
        ] {
            assert_eq!(found(other("HTTPRoute", "x", service(fields.clone()))), expected, "{fields}");
        }
        assert!(found(other("GRPCRoute", "web-canary", service(json!({})))), "only an HTTPRoute is the canary's");
        assert!(!found(other("HTTPRoute", "web-canary", service(json!({})))));
    }

    #[test]
    fn a_verdict_is_about_this_generation() {
        let judged = |status: &str, generation: u8| {
            let condition = json!({
                "type": "Accepted", "status": status, "observedGeneration": generation, "reason": "Conflicted", "message": "older route",
            });
            json!({"metadata": {"generation": 2}, "status": {"parents": [{"conditions": [condition]}]}})
        };
        assert_eq!(verdict(&json!({"metadata": {"generation": 1}})), None);
        assert_eq!(verdict(&judged("True", 1)), None);
        assert_eq!(verdict(&judged("True", 2)), Some(Ok(())));
        assert_eq!(verdict(&judged("False", 2)), Some(Err("Conflicted: older route".to_owned())));
    }
}
