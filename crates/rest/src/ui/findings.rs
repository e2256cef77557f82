//! `GET /page/findings`: what [`diagnose`] finds for the Services that the user may list.
//!
//! In: the user of a session, the store, and for one Service `?service=NAMESPACE/NAME`. Out: JSON: the state of each Service, or the stages of
//! one. Only objects that the user may list are read, so no finding names an object that the user may not see. Kinds that the user may not
//! list everywhere are in `missing`; where they are Pods or EndpointSlices of its own namespace, a Service has no diagnosis but its address.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::kind::Kind;
use api::kinds;
use api::status::{Resource, Status};
use diagnose::{Object, Objects, Service, Snapshot, diagnose, excluded};
use http::{Method, header, request};
use jiff::Timestamp;
use serde_json::{Value, json};
use store::{Entry, Store, Table, TableSize};

use super::{JSON, check_same_origin, user};
use crate::auth::User;
use crate::authz::Attributes;
use crate::fairness;
use crate::handler::Shared;
use crate::query;
use crate::reply::Reply;
use crate::request::RequestInfo;

/// The kinds that a diagnosis reads.
static KINDS: [&Kind; 5] = [
    &kinds::service::KIND,
    &kinds::endpointslice::KIND,
    &kinds::pod::KIND,
    &kinds::node::KIND,
    &kinds::servicecidr::KIND,
];
/// The kinds that the diagnosis of a Service with a selector needs.
const NEEDED: [&str; 2] = ["endpointslices", "pods"];

/// Handles the request.
pub(super) async fn answer(shared: &Arc<Shared>, parts: &request::Parts, now: Timestamp) -> Result<Reply, Status> {
    check_same_origin(parts)?;
    let user = user(shared, &parts.headers, now).ok_or_else(Status::unauthorized)?;
    let query = query::parse(parts.uri.query().unwrap_or_default());
    let wanted = query::first(&query, "service").map(str::to_owned);
    let account = shared.downloads.admit(&user)?;
    // Offloaded like a list of all objects that are read.
    let sizes = KINDS.map(|kind| shared.registry.store.size(Table::named(kind.table)));
    let size = sizes.iter().fold(TableSize::default(), |sum, size| TableSize {
        entries: sum.entries + size.entries,
        bytes: sum.bytes + size.bytes,
    });
    let info = RequestInfo::of(&Method::GET, "/api/v1/services", &[]);
    let _permit = shared.fairness.admit(&info, &user, || fairness::width(&info, &[], || size)).await?;
    let (owned, reader) = (shared.clone(), user.clone());
    let work = move || find(&owned, &reader, wanted.as_deref());
    let document = shared.offload.run(&user, size.bytes, work).await?;
    let reply = Reply::bytes(200, JSON, document.to_string()).with(header::CACHE_CONTROL, "no-store");
    Ok(Reply { account: Some(account), ..reply })
}

fn find(shared: &Shared, user: &User, wanted: Option<&str>) -> Result<Value, Status> {
    let authorizer = &shared.registry.authorizer;
    let rights = Rights::new(|kind, namespace| authorizer.authorize(&listing(user, kind, namespace)).allowed);
    if let Some((namespace, _)) = wanted.and_then(|key| key.split_once('/')) {
        authorizer.require(&listing(user, KINDS[0], namespace))?;
    }
    let lists = KINDS.map(|kind| rights.list(&*shared.registry.store, kind));
    let missing = |namespace: &str| NEEDED.into_iter().filter(|plural| !rights.has(plural, namespace)).collect();
    let document = match wanted {
        None => Some(all(&objects(&lists), &missing)),
        Some(key) => one(&objects(&lists), &missing, key),
    };
    let about = Resource { group: "", plural: "services", kind: "Service" };
    let mut document = document.ok_or_else(|| Status::not_found(about, wanted.unwrap_or_default()))?;
    let unread: Vec<&str> = KINDS.iter().map(|kind| kind.plural).filter(|plural| !rights.has(plural, "")).collect();
    document["missing"] = json!(unread);
    Ok(document)
}

/// The attributes of a list of a kind in a namespace.
const fn listing<'a>(user: &'a User, kind: &'static Kind, namespace: &'a str) -> Attributes<'a> {
    let (verb, group, resource) = ("list", kind.group, kind.plural);
    Attributes { user, verb, group, resource, subresource: "", name: "", namespace, fields: &[], path: None }
}

/// Which kinds a user may list: in all namespaces or in some.
struct Rights<F> {
    may: F,
    known: RefCell<BTreeMap<(&'static str, Box<str>), bool>>,
}

impl<F: Fn(&'static Kind, &str) -> bool> Rights<F> {
    const fn new(may: F) -> Self {
        Self { may, known: RefCell::new(BTreeMap::new()) }
    }

    /// Whether the user may list a kind in a namespace; in all, if it is empty.
    fn has(&self, plural: &'static str, namespace: &str) -> bool {
        let Some(kind) = KINDS.iter().copied().find(|kind| kind.plural == plural) else { return false };
        let decide = |namespace: &str| {
            let mut known = self.known.borrow_mut();
            *known.entry((plural, namespace.into())).or_insert_with(|| (self.may)(kind, namespace))
        };
        decide("") || (!namespace.is_empty() && decide(namespace))
    }

    /// The objects of a kind that the user may list.
    fn list(&self, store: &dyn Store, kind: &'static Kind) -> Vec<Arc<Entry>> {
        let range = store.range(Table::named(kind.table), "", None);
        let mut entries = range.map_or_else(|_| Vec::new(), |range| range.entries);
        entries.retain(|entry| self.has(kind.plural, entry.key.name.split_once('/').map_or("", |(home, _)| home)));
        entries
    }
}

/// The entries as input of the diagnosis, in the order of [`KINDS`].
fn objects(lists: &[Vec<Arc<Entry>>; 5]) -> Objects<'_> {
    Objects::new(lists.each_ref().map(|entries| entries.iter().map(object).collect()), "cluster.local")
}

fn object(entry: &Arc<Entry>) -> Object<'_> {
    Object::Stored { key: &entry.key.name, labels: &entry.facts.labels, bytes: &entry.value }
}

/// Returns the needed kinds that the user may not list in a namespace.
type Missing<'a> = &'a dyn Fn(&str) -> Vec<&'static str>;

/// The kinds that the diagnosis of a Service lacks.
fn lacking(service: &Service, missing: Missing<'_>) -> Vec<&'static str> {
    let mut kinds = missing(service.namespace());
    kinds.retain(|plural| match *plural {
        "pods" => service.selector().is_some(),
        _ => !service.is_external_name(),
    });
    kinds
}

/// The state of every Service.
fn all(objects: &Objects<'_>, missing: Missing<'_>) -> Value {
    let snapshot = Snapshot::new(objects.clone());
    let state = |(key, service): (&String, &Service)| {
        let kinds = lacking(service, missing);
        if !kinds.is_empty() {
            return (key.clone(), json!({"state": "unknown", "message": unreadable(&kinds)}));
        }
        let diagnosis = diagnose(&snapshot, service);
        let state = diagnosis.state(service);
        let brief = match diagnosis.verdict() {
            Some(finding) => json!({"state": state, "code": finding.code, "message": finding.message}),
            None => json!({"state": state}),
        };
        (key.clone(), brief)
    };
    json!({"services": snapshot.services().iter().map(state).collect::<serde_json::Map<_, _>>()})
}

/// The stages of one Service.
fn one(objects: &Objects<'_>, missing: Missing<'_>, key: &str) -> Option<Value> {
    let snapshot = Snapshot::new(objects.clone());
    let service = snapshot.services().get(key)?;
    let diagnosis = diagnose(&snapshot, service);
    let mut document = diagnosis.json();
    let kinds = lacking(service, missing);
    document["state"] = json!(if kinds.is_empty() { diagnosis.state(service) } else { "unknown" });
    if kinds.is_empty() {
        document["excluded"] = json!(excluded(&snapshot, service).into_iter().collect::<BTreeMap<_, _>>());
    } else {
        let unknown = json!({"unknown": true, "message": unreadable(&kinds)});
        (document["pods"], document["endpoints"]) = (unknown.clone(), unknown);
        document["findings"] = json!(diagnosis.address.err().iter().map(diagnose::Finding::json).collect::<Vec<_>>());
    }
    Some(document)
}

fn unreadable(kinds: &[&str]) -> String {
    format!("you may not list {} in this namespace", kinds.join(" and "))
}

#[cfg(test)]
mod tests {
    use api::value::ValueExt as _;

    use super::*;

    /// The table of faults and healthy shapes that all renderers of findings are tested with.
    const FAULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../diagnose/tests/faults.json");

    /// The findings for the Service of a case: in the list, and alone.
    fn rendered(case: &Value, missing: Missing<'_>) -> (Value, Value) {
        let ranges = [json!({"spec": {"cidrs": ["10.96.0.0/16"]}})];
        let [services, slices, pods, nodes] = ["services", "slices", "pods", "nodes"].map(|list| case.items(list));
        let objects = Objects::new([services, slices, pods, nodes, &ranges].map(Object::listed), "cluster.local");
        (all(&objects, missing)["services"]["default/web"].take(), one(&objects, missing, "default/web").expect("it"))
    }

    fn table() -> Value {
        serde_json::from_slice(&std::fs::read(FAULTS).expect("the table")).expect("JSON")
    }

    #[test]
    fn b13_the_page_has_the_code_and_the_sentence_of_the_diagnosis() {
        let table = table();
        for case in table.items("faults") {
            let (brief, whole) = rendered(case, &|_| Vec::new());
            let (first, name) = (&whole.items("findings")[0], case.text("name"));
            let wanted = (case.text("code"), case.text("message"));
            assert_eq!((brief.text("code"), brief.text("message")), wanted, "{name}");
            assert_eq!((first.text("code"), first.text("message")), wanted, "{name}");
            assert_eq!(first.text("level"), case.text("level"), "{name}");
            assert_eq!(brief.text("state"), whole.text("state"), "{name}");
            assert_ne!(brief.text("state"), "ok", "{name}");
        }
        for case in table.items("healthy") {
            let (brief, whole) = rendered(case, &|_| Vec::new());
            assert_eq!(brief, json!({"state": "ok"}), "{}", case.text("name"));
            assert_eq!(whole["findings"], json!([]), "{}", case.text("name"));
        }
    }

    #[test]
    fn b13_without_the_right_to_list_pods_nothing_is_said_of_them() {
        let table = table();
        let faults = table.items("faults");
        let case = faults.iter().find(|case| case.text("code") == "PodsNotReady").expect("a case");
        let (brief, whole) = rendered(case, &|_| vec!["pods"]);
        let why = "you may not list pods in this namespace";
        assert_eq!(brief, json!({"state": "unknown", "message": why}));
        assert_eq!((whole.text("pods.message"), whole.text("endpoints.message")), (why, why));
        assert_eq!((&whole["findings"], whole.text("state")), (&json!([]), "unknown"));
        assert!(!whole.has("excluded"), "{whole}");
        assert_eq!(whole["address"]["ok"], true, "the address follows from the Service alone");
        let alias = table.items("healthy").iter().find(|case| case.text("name") == "alias").expect("a case");
        assert_eq!(rendered(alias, &|_| NEEDED.to_vec()).0, json!({"state": "ok"}), "it needs neither");
    }

    #[test]
    fn pods_that_are_not_endpoints_have_a_reason() {
        let table = table();
        let case = table.items("faults").iter().find(|case| case.text("code") == "PodsNotReady").expect("a case");
        let (_, whole) = rendered(case, &|_| Vec::new());
        let excluded = whole["excluded"].as_object().expect("Pods");
        assert!(!excluded.is_empty() && excluded.keys().all(|pod| pod.starts_with("web-")), "{whole}");
    }

    #[test]
    fn b13_rights_in_one_namespace_are_not_rights_in_another() {
        let rights = Rights::new(|kind: &Kind, namespace: &str| match kind.plural {
            "services" => true,
            "pods" => namespace == "shop",
            _ => false,
        });
        assert!(rights.has("services", "") && rights.has("services", "any"));
        assert!(rights.has("pods", "shop") && !rights.has("pods", "") && !rights.has("pods", "bank"));
        assert!(!rights.has("nodes", "") && !rights.has("nodes", "n1"));
    }
}
