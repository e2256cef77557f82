//! The engine against a start from scratch, and the table against a naive reading of all Ingresses.

use std::sync::Arc;

use api::view::Ingress;
use api::view::ingress::PathType;
use proptest::prelude::*;
use serde_json::json;

use super::super::testing::{CLASS, cluster, ingress, rule};
use super::*;

const HOSTS: [&str; 4] = ["-", "h.x", "*.x", "g.h.x"];
const PATHS: [&str; 6] = ["/", "/a", "/a/", "/a/b", "/a/b/c", "/b"];
const REQUESTS: [&str; 8] = ["/", "/a", "/A", "/a/", "/a/b", "/a/bc", "/a/b/c/d", "/c"];
const REQUEST_HOSTS: [&str; 5] = ["h.x", "i.x", "g.h.x", "k.h.x", "z"];

#[derive(Clone, Debug)]
enum Step {
    Set(Box<Ingress>),
    Remove(usize),
    Service(usize, bool),
    Secret(bool),
}

fn any_ingress(annotated: bool) -> impl Strategy<Value = Ingress> {
    let path = (0..HOSTS.len(), 0..PATHS.len(), 0..3_usize, 0..4_usize);
    let paths = prop::collection::vec(path, 0..4);
    (0..6_usize, 0..4_u32, paths, any::<bool>(), 0..8_u32).prop_map(move |(name, minute, paths, default, mode)| {
        let paths: Vec<_> = paths
            .into_iter()
            .map(|(host, path, kind, service)| {
                format!("{} {} {} {}", HOSTS[host], PATHS[path], ["E", "P", "I"][kind], ["a", "b", "c", "zzz"][service])
            })
            .collect();
        let paths: Vec<_> = paths.iter().map(String::as_str).collect();
        let annotations: &[(&str, &str)] = match mode {
            _ if !annotated => &[],
            0 => &[("use-regex", "true")],
            1 => &[("canary", "true"), ("canary-weight", "30")],
            2 => &[("server-alias", "g.h.x,k.h.x")],
            3 => &[("from-to-www-redirect", "true"), ("force-ssl-redirect", "true")],
            4 => &[("app-root", "/app"), ("auth-type", "digest")],
            _ => &[],
        };
        let mut ingress = ingress(&format!("i{name}"), minute, annotations, &paths);
        if default {
            ingress.spec.default_backend =
                serde_json::from_value(json!({"service": {"name": "d", "port": {"number": 80}}})).unwrap();
        }
        if mode == 5 {
            ingress.spec.tls = serde_json::from_value(json!([{"hosts": ["h.x"], "secretName": "tls"}])).unwrap();
        }
        if mode == 6 && annotated {
            ingress.spec.ingress_class_name = Some("other".into());
        }
        ingress
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any_ingress(true).prop_map(|ingress| Step::Set(Box::new(ingress))),
        2 => (0..6_usize).prop_map(Step::Remove),
        1 => (0..4_usize, any::<bool>()).prop_map(|(at, exists)| Step::Service(at, exists)),
        1 => any::<bool>().prop_map(Step::Secret),
    ]
}

fn change(step: &Step) -> Change {
    match step {
        Step::Set(ingress) => Change::Ingress(ingress.metadata.key().into(), Some(Arc::new((**ingress).clone()))),
        Step::Remove(name) => Change::Ingress(format!("web/i{name}").into(), None),
        Step::Service(at, exists) => {
            let service = json!({"spec": {"ports": [{"name": "web", "port": 80}]}});
            let service = exists.then(|| Arc::new(serde_json::from_value(service).unwrap()));
            Change::Service(format!("web/{}", ["a", "b", "c", "d"][*at]).into(), service)
        }
        Step::Secret(is_valid) => {
            let state = if *is_valid { SecretState::Certificate } else { SecretState::Invalid("no key".into()) };
            Change::Secret("web/tls".into(), Some(state))
        }
    }
}

/// The same objects, applied to a new engine: Ingresses first, everything they refer to later.
fn from_scratch(all: &Ingresses) -> Ingresses {
    let mut new = Ingresses::new(all.options.clone());
    for (key, entry) in all.ingresses.iter().rev() {
        new.apply(Change::Ingress(key.clone(), Some(entry.parsed.ingress.clone())));
    }
    for (key, service) in &all.services {
        new.apply(Change::Service(key.clone(), Some(service.clone())));
    }
    for (key, state) in &all.secrets {
        new.apply(Change::Secret(key.clone(), Some(state.clone())));
    }
    for (name, class) in &all.classes {
        new.apply(Change::Class(name.clone(), Some(class.clone())));
    }
    new
}

/// A path of an Ingress, as the naive reading sees it.
struct Candidate<'a> {
    age: (&'a str, String, usize),
    host: &'a str,
    path: &'a str,
    kind: PathType,
    service: &'a str,
    is_default: bool,
}

/// Reads all Ingresses for one request, without an index.
fn naive<'a>(ingresses: &'a [Ingress], host: &str, path: &str) -> Option<&'a str> {
    let mut all = Vec::new();
    for one in ingresses {
        let age = |index| (&*one.metadata.creation_timestamp, one.metadata.key(), index);
        for (index, rule) in one.spec.rules.iter().enumerate() {
            let entry = &rule.http.paths[0];
            let service = &*entry.backend.service.as_ref().unwrap().name;
            let (path, kind) = (&*entry.path, entry.path_type);
            all.push(Candidate { age: age(index), host: &rule.host, path, kind, service, is_default: false });
            let default = one.spec.default_backend.as_ref();
            all.extend(default.map(|_| Candidate {
                age: age(9),
                host: &rule.host,
                path: "/",
                kind,
                service: "d",
                is_default: true,
            }));
        }
        if one.spec.rules.is_empty() && one.spec.default_backend.is_some() {
            all.push(Candidate {
                age: age(9),
                host: "",
                path: "/",
                kind: PathType::Prefix,
                service: "d",
                is_default: true,
            });
        }
    }
    let wildcard = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
    let chosen = [Some(host.to_owned()), wildcard, Some(String::new())]
        .into_iter()
        .flatten()
        .find(|name| all.iter().any(|candidate| candidate.host == *name))?;
    all.retain(|candidate| candidate.host == chosen);
    let is_prefix = |candidate: &Candidate<'_>| {
        let prefix = candidate.path.trim_end_matches('/');
        path == prefix || path.starts_with(&format!("{prefix}/"))
    };
    let matches = |candidate: &&Candidate<'_>| match candidate.kind {
        _ if candidate.is_default => true,
        PathType::Exact => candidate.path == path,
        _ => is_prefix(candidate),
    };
    all.iter().filter(matches).min_by_key(|candidate| rank(candidate)).map(|candidate| candidate.service)
}

/// The order of precedence: exact, then the longest prefix, then the default backend; the oldest of equal ones.
fn rank<'a>(candidate: &Candidate<'a>) -> (u8, usize, (&'a str, String, usize)) {
    let class = match candidate.kind {
        _ if candidate.is_default => 2,
        PathType::Exact => 0,
        _ => 1,
    };
    (class, usize::MAX - candidate.path.trim_end_matches('/').len(), candidate.age.clone())
}

fn service_of(all: &Ingresses, host: &str, path: &str) -> Option<String> {
    let rule = rule(all, host, path, &[])?;
    Some(match &rule.backends[0].target {
        crate::model::Target::Service(service) => service.service.trim_start_matches("web/").to_owned(),
        crate::model::Target::Invalid(_) => "zzz".to_owned(),
    })
}

proptest! {
    #[test]
    fn the_table_is_a_naive_reading(ingresses in prop::collection::vec(any_ingress(false), 1..6)) {
        let mut all = cluster();
        for one in &ingresses {
            all.apply(change(&Step::Set(Box::new(one.clone()))));
        }
        let latest: Vec<_> = all.ingresses.values().map(|entry| (*entry.parsed.ingress).clone()).collect();
        for host in REQUEST_HOSTS {
            for path in REQUESTS {
                let found = service_of(&all, host, path);
                prop_assert_eq!(found.as_deref(), naive(&latest, host, path), "{}{}", host, path);
            }
        }
    }

    #[test]
    fn changes_lead_to_the_state_of_a_start_from_scratch(steps in prop::collection::vec(step(), 1..14)) {
        let mut all = cluster();
        for step in &steps {
            let before = all.clone();
            let touched = all.apply(change(step));
            for class in before.gateways.keys() {
                let is_same = before.gateway(class) == all.gateway(class);
                prop_assert!(is_same || touched.classes.contains(class), "{:?} is not touched", class);
                // The hosts that are touched are all that a copy of the table needs.
                let mut copy = before.gateway(class).map(|gateway| gateway.table.clone()).unwrap_or_default();
                let Some(now) = all.gateway(class) else { continue };
                for host in touched.hosts.get(class).into_iter().flatten() {
                    copy.take(host.as_ref(), &now.table, Arc::clone);
                }
                prop_assert_eq!(&copy, &now.table);
            }
            for key in before.ingresses.keys().chain(all.ingresses.keys()) {
                let is_same = before.state(key) == all.state(key);
                prop_assert!(is_same || touched.ingresses.contains(key), "{:?} is not touched by {:?}", key, step);
            }
        }
        let mut at_once = cluster();
        at_once.apply_all(steps.iter().map(change));
        prop_assert_eq!(all.gateway(CLASS), at_once.gateway(CLASS));
        let new = from_scratch(&all);
        prop_assert_eq!(all.gateway(CLASS), new.gateway(CLASS));
        for key in all.ingresses.keys() {
            prop_assert_eq!(all.state(key), new.state(key));
        }
        prop_assert_eq!(&all.by_service, &new.by_service);
    }
}

#[test]
fn a_change_that_changes_nothing_touches_nothing() {
    let mut all = cluster();
    let one = change(&Step::Set(Box::new(ingress("i0", 1, &[], &["h.x / P a"]))));
    assert!(!all.apply(one.clone()).classes.is_empty());
    assert_eq!(all.apply(one), Touched::default());
    assert_eq!(all.apply(change(&Step::Service(3, true))), Touched::default());
}

#[test]
fn services_of_classes_have_short_names() {
    let mut all = cluster();
    let long = "l".repeat(80);
    for name in ["a.b", "a-b", long.as_str()] {
        let class = json!({"metadata": {"name": name}, "spec": {"controller": super::super::CONTROLLER}});
        all.apply(Change::Class(name.into(), Some(Arc::new(serde_json::from_value(class).unwrap()))));
    }
    let names: BTreeSet<_> = all.gateways().map(|gateway| gateway.config.service.to_string()).collect();
    assert_eq!(names.len(), 4);
    for name in names {
        let name = name.split_once('/').unwrap().1;
        assert_eq!(api::names::dns_label(name), [""; 0], "{name}");
    }
}
