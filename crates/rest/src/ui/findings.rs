//! `GET /page/findings`: what [`diagnose`] finds for the objects that the user may list.
//!
//! In: the user of a session, the store, and what the request is about: `?service=NAMESPACE/NAME`, one of those of [`layer7`], or all
//! Services. Out: JSON: the state of each Service, or the stages of one. Only objects that the user may list are read, so no finding names
//! an object that the user may not see. Kinds that the user may not list everywhere are in `missing`; where they are Pods or
//! EndpointSlices of its own namespace, a Service has no diagnosis but its address.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kind::Kind;
use api::kinds;
use api::status::Status;
use bytes::Bytes;
use diagnose::{Object, Objects, Service, Snapshot, diagnose, excluded};
use http::{Method, header, request};
use jiff::Timestamp;
use serde_json::{Value, json};
use store::{Entry, Table, TableSize};

use super::layer7::{self, Subject};
use super::rights::{Lists, Rights};
use super::{JSON, check_same_origin, documents, layer7_kinds, user};
use crate::auth::User;
use crate::authz::Attributes;
use crate::fairness;
use crate::handler::Shared;
use crate::query;
use crate::reply::Reply;
use crate::request::RequestInfo;

/// The kinds that the diagnosis of Services reads.
static KINDS: [&Kind; 5] = [
    &kinds::service::KIND,
    &kinds::endpointslice::KIND,
    &kinds::pod::KIND,
    &kinds::node::KIND,
    &kinds::servicecidr::KIND,
];
/// The kinds that the diagnosis of a Service with a selector needs.
const NEEDED: [&str; 2] = ["endpointslices", "pods"];

/// What a request is about.
#[derive(Clone, Debug)]
enum Wanted {
    Services,
    Service(String),
    Layer7(Subject),
}

impl Wanted {
    fn of(query: &[(String, String)]) -> Result<Self, Status> {
        let named = |name| query::first(query, name).map(str::to_owned);
        if let Some(object) = named("object") {
            let subject = Subject::object(&object);
            return subject.map(Self::Layer7).ok_or_else(|| Status::bad_request("object must be KIND/NAMESPACE/NAME"));
        }
        Ok(match (named("service"), named("routes"), named("view").as_deref()) {
            (Some(service), ..) => Self::Service(service),
            (None, Some(service), _) => Self::Layer7(Subject::Routes(service)),
            (None, None, Some("gateways")) => Self::Layer7(Subject::Gateways),
            (None, None, None) => Self::Services,
            (None, None, Some(_)) => return Err(Status::bad_request("view must be gateways")),
        })
    }

    /// The kinds that are read.
    fn kinds(&self, shared: &Shared) -> Vec<&'static Kind> {
        let more = match self {
            Self::Services | Self::Service(_) => Vec::new(),
            Self::Layer7(_) => layer7_kinds(shared),
        };
        KINDS.into_iter().chain(more).collect()
    }

    /// The object, which the user must be allowed to list: kind and `namespace/name`.
    fn object(&self, kinds: &[&'static Kind]) -> Option<(&'static Kind, &str)> {
        let (plural, key) = match self {
            Self::Services | Self::Layer7(Subject::Gateways) => return None,
            Self::Service(key) | Self::Layer7(Subject::Routes(key)) => ("services", key),
            Self::Layer7(Subject::Object(kind, key)) => (kind.plural(), key),
        };
        kinds.iter().copied().find(|kind| kind.plural == plural).map(|kind| (kind, &**key))
    }
}

/// Handles the request.
pub(super) async fn answer(shared: &Arc<Shared>, parts: &request::Parts, now: Timestamp) -> Result<Reply, Status> {
    check_same_origin(parts)?;
    let user = user(shared, &parts.headers, now).ok_or_else(Status::unauthorized)?;
    let wanted = Wanted::of(&query::parse(parts.uri.query().unwrap_or_default()))?;
    let kinds = wanted.kinds(shared);
    let account = shared.downloads.admit(&user)?;
    // Offloaded like a list of all objects that are read.
    let sizes = kinds.iter().map(|kind| shared.registry.store.size(Table::named(kind.table)));
    let size = sizes.fold(TableSize::default(), |sum, size| TableSize {
        entries: sum.entries + size.entries,
        bytes: sum.bytes + size.bytes,
    });
    let info = RequestInfo::of(&Method::GET, "/api/v1/services", &[]);
    let _permit = shared.fairness.admit(&info, &user, || fairness::width(&info, &[], || size)).await?;
    let (owned, reader) = (shared.clone(), user.clone());
    let work = move || find(&owned, &reader, &wanted, kinds);
    let document = shared.offload.run(&user, size.bytes, work).await?;
    let reply = Reply::bytes(200, JSON, document).with(header::CACHE_CONTROL, "no-store");
    Ok(Reply { account: Some(account), ..reply })
}

fn find(shared: &Shared, user: &User, wanted: &Wanted, kinds: Vec<&'static Kind>) -> Result<Bytes, Status> {
    let authorizer = &shared.registry.authorizer;
    let object = wanted.object(&kinds);
    if let Some((kind, (namespace, _))) = object.and_then(|(kind, key)| Some((kind, key.split_once('/')?))) {
        authorizer.require(&listing(user, kind, namespace))?;
    }
    let rights = Rights::new(kinds, |kind, namespace| authorizer.authorize(&listing(user, kind, namespace)).allowed);
    let store = &*shared.registry.store;
    let lists = rights.lists(store);
    let identity = documents::identity(store, user, &format!("{wanted:?}"), &lists);
    if let Some(known) = shared.documents.get(&identity) {
        return Ok(known);
    }
    let has = |plural: &str, namespace: &str| rights.has(plural, namespace);
    let missing = |namespace: &str| NEEDED.into_iter().filter(|plural| !has(plural, namespace)).collect();
    let document = match wanted {
        Wanted::Services => Some(all(&objects(&lists), &missing)),
        Wanted::Service(key) => one(&objects(&lists), &missing, key),
        Wanted::Layer7(subject) => layer7::document(subject, &lists, &has),
    };
    let mut document = document.ok_or_else(|| match object {
        Some((kind, key)) => Status::not_found(kind.resource(), key),
        None => Status::no_such_resource(),
    })?;
    document["missing"] = json!(rights.missing());
    let document = Bytes::from(document.to_string());
    shared.documents.put(identity, &document);
    Ok(document)
}

/// The attributes of a list of a kind in a namespace.
const fn listing<'a>(user: &'a User, kind: &'static Kind, namespace: &'a str) -> Attributes<'a> {
    let (verb, group, resource) = ("list", kind.group, kind.plural);
    Attributes { user, verb, group, resource, subresource: "", name: "", namespace, fields: &[], path: None }
}

/// The entries as input of the diagnosis.
pub(super) fn objects(lists: &Lists) -> Objects<'_> {
    let list = |kind: &Kind| lists.get(kind.plural).into_iter().flatten().map(object).collect();
    Objects::new(KINDS.map(list), "cluster.local")
}

pub(super) fn object(entry: &Arc<Entry>) -> Object<'_> {
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
}
