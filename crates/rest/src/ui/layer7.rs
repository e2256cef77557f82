//! Gateways, routes and Ingresses in `GET /page/findings`: what [`diagnose::layer7`] says of those that the user may list.
//!
//! ```text
//! ?view=gateways             Gateways and IngressClasses with their rules in order of precedence
//! ?object=KIND/NAMESPACE/NAME   one object: findings, what its traffic passes, the conditions in its status
//! ?routes=NAMESPACE/NAME     the routes and Ingresses that lead to a Service
//! ```
//! In: the objects that the user may list. Out: JSON. Where the diagnosis of an object would need objects that the user may not list, its
//! state is `unknown`: nothing is reported as missing that is only not visible. Secrets and ConfigMaps are never read; statuses tell how
//! certificates are.

use api::value::ValueExt as _;
use diagnose::Snapshot;
use diagnose::layer7::{Explanation, Kind, Layer7, Lists as Layer7Lists, Materials, Needs, Unknown};
use serde_json::{Value, json};

use super::findings::object;
use super::rights::Lists;

/// The most routes that are shown of a Service.
const ROUTES: usize = 200;

/// What a request is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    /// All Gateways.
    Gateways,
    /// An object, by `namespace/name`.
    Object(Kind, String),
    /// The routes to a Service.
    Routes(String),
}

impl Subject {
    /// The object in `KIND/NAMESPACE/NAME`.
    pub(super) fn object(text: &str) -> Option<Self> {
        let (kind, key) = text.split_once('/')?;
        Some(Self::Object(Kind::named(kind)?, key.to_owned()))
    }
}

/// The document; none where there is no such object.
pub(super) fn document(subject: &Subject, lists: &Lists, has: &dyn Fn(&str, &str) -> bool) -> Option<Value> {
    let stored = match subject {
        Subject::Object(kind, key) => {
            let list = lists.get(kind.plural())?;
            Some(list.iter().find(|entry| *entry.key.name == **key)?)
        }
        Subject::Gateways | Subject::Routes(_) => None,
    };
    let snapshot = Snapshot::new(super::findings::objects(lists));
    let all = |kind: Kind| lists.get(kind.plural()).map(|list| (kind, list.iter().map(object).collect()));
    let listed: Layer7Lists<'_> = Kind::ALL.into_iter().filter_map(all).collect();
    let layer7 = Layer7::new(&listed, &Materials::new(), &snapshot, has("pods", ""));
    let why = |needs: &Needs| unlisted(needs, has);
    match subject {
        Subject::Gateways => Some(json!(layer7.overview(&why))),
        Subject::Object(kind, key) => {
            let stored = serde_json::from_slice(&stored?.value).unwrap_or_default();
            one(&layer7, *kind, key, &stored, &why)
        }
        Subject::Routes(service) => Some(json!({"routes": layer7.leading_to(service, ROUTES, &why)})),
    }
}

/// One object.
fn one(layer7: &Layer7<'_>, kind: Kind, key: &str, stored: &Value, unknown: Unknown<'_>) -> Option<Value> {
    let mut document = match unknown(&layer7.needs(kind, key)) {
        None => json!(layer7.explain(kind, key)?),
        Some(why) => {
            let subject = kind.subject(key);
            let mut document =
                json!(Explanation { subject, state: "unknown", findings: Vec::new(), items: Vec::new() });
            document["message"] = json!(why);
            document
        }
    };
    document["conditions"] = json!(conditions(stored));
    Some(document)
}

/// What may not be listed of that which a diagnosis needs.
fn unlisted(needs: &Needs, has: &dyn Fn(&str, &str) -> bool) -> Option<String> {
    let (plural, namespace) = needs.iter().find(|(plural, namespace)| !has(plural, namespace))?;
    Some(match &**namespace {
        "" => format!("you may not list {plural} in all namespaces"),
        namespace => format!("you may not list {plural} in namespace {namespace}"),
    })
}

/// The conditions in a status: those of the object, of its listeners, and of its parents or ancestors with their controllers.
fn conditions(object: &Value) -> Vec<Value> {
    let group = |about: String, controller: &str, from: &Value| {
        let conditions: Vec<Value> = from
            .items("conditions")
            .iter()
            .map(|one| json!({"type": one["type"], "status": one["status"], "reason": one["reason"], "message": one["message"]}))
            .collect();
        (!conditions.is_empty()).then(|| json!({"about": about, "controller": controller, "conditions": conditions}))
    };
    let own = group(String::new(), "", object.at("status"));
    let listeners = object.items("status.listeners").iter();
    let listeners = listeners.filter_map(|one| group(format!("listener {}", one.text("name")), "", one));
    let shared = [("status.parents", "parentRef"), ("status.ancestors", "ancestorRef")];
    let shared = shared.into_iter().flat_map(|(list, reference)| {
        object.items(list).iter().filter_map(move |one| {
            let to = one.at(reference);
            let kind = if to.has("kind") { to.text("kind") } else { "Gateway" };
            let section =
                if to.has("sectionName") { format!(", listener {}", to.text("sectionName")) } else { String::new() };
            group(format!("{kind} {}{section}", to.text("name")), one.text("controllerName"), one)
        })
    });
    own.into_iter().chain(listeners).chain(shared).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use store::{Entry, Key, Table};

    use super::*;

    fn entry(name: &str, object: &Value) -> Arc<Entry> {
        let key = Key::new(Table::named("any"), name);
        let value = object.to_string().into();
        Arc::new(Entry { key, created: 1, modified: 1, expires: None, value, facts: Arc::default() })
    }

    /// A Gateway of namespace `infra` with a route of namespace `shop`, whose Service does not exist.
    fn lists() -> Lists {
        let listener =
            json!({"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}});
        let gateway = json!({"spec": {"gatewayClassName": "waypost", "listeners": [listener]}});
        let class = json!({"spec": {"controllerName": api::view::gateway_api::CONTROLLER}});
        let condition = json!({"type": "Accepted", "status": "True", "reason": "Accepted", "message": "m"});
        let parent = json!({"name": "edge", "namespace": "infra", "sectionName": "http"});
        let route = json!({
            "spec": {"parentRefs": [parent], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]},
            "status": {"parents": [{"parentRef": parent, "controllerName": "c", "conditions": [condition]}]},
        });
        [
            ("gatewayclasses", entry("waypost", &class)),
            ("gateways", entry("infra/edge", &gateway)),
            ("httproutes", entry("shop/front", &route)),
        ]
        .into_iter()
        .map(|(plural, entry)| (plural, vec![entry]))
        .collect()
    }

    #[test]
    fn s52_the_page_has_the_code_and_the_sentence_of_the_diagnosis() {
        let everything = |_: &str, _: &str| true;
        let found = document(&Subject::Gateways, &lists(), &everything).expect("a document");
        let judgement = &found["routes"]["HTTPRoute shop/front"];
        let one = Subject::object("HTTPRoute/shop/front").expect("an object");
        let whole = document(&one, &lists(), &everything).expect("the route");
        let first = &whole["findings"][0];
        assert_eq!((first.text("code"), first.text("message")), (judgement.text("code"), judgement.text("message")));
        assert_eq!(first.text("code"), "BackendMissing");
        assert_eq!(whole["conditions"][0]["about"], "Gateway edge, listener http");
        assert_eq!(whole["conditions"][0]["conditions"][0]["type"], "Accepted");
        assert!(document(&Subject::object("HTTPRoute/shop/none").expect("one"), &lists(), &everything).is_none());
        assert_eq!((Subject::object("Secret/a/b"), Subject::object("HTTPRoute")), (None, None));
    }

    #[test]
    fn s52_without_the_right_to_list_what_a_route_refers_to_nothing_is_said_of_it() {
        let mut seen = lists();
        seen.remove("gateways");
        let has = |plural: &str, namespace: &str| plural != "gateways" || namespace == "shop";
        let one = Subject::object("HTTPRoute/shop/front").expect("an object");
        let whole = document(&one, &seen, &has).expect("the route");
        let why = "you may not list gateways in namespace infra";
        assert_eq!((whole.text("state"), whole.text("message")), ("unknown", why));
        assert_eq!((&whole["findings"], &whole["items"]), (&json!([]), &json!([])));
        assert_eq!(whole["conditions"][0]["conditions"][0]["reason"], "Accepted", "the status of the route is its own");
        let found = document(&Subject::Gateways, &seen, &has).expect("a document");
        assert_eq!((found["apart"][0].text("state"), found["apart"][0].text("message")), ("unknown", why));
    }
}
