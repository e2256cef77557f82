//! Quotas and LimitRanges together: the recorded answers of Kubernetes, and cases beyond them.

use std::collections::BTreeMap;

use serde_json::{Map, json};

use super::*;
use crate::field::Errors;
use crate::kinds::{self, limitrange, resourcequota, serviceaccount};
use crate::status::Status as Answer;
use crate::{decode, limit_range, priority};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/access/quota-limitrange.json");
const NAMESPACE: &str = "n";

/// A namespace with an API server and a quota controller without delay.
#[derive(Default)]
struct Namespace {
    objects: BTreeMap<(&'static str, String), Value>,
}

impl Namespace {
    fn list(&self, kind: &Kind) -> Vec<Value> {
        let here = self.objects.iter().filter(|((table, _), _)| *table == kind.table);
        here.map(|(_, object)| object.clone()).collect()
    }

    /// Writes an object through defaults, admission and validation.
    fn write(&mut self, kind: &'static Kind, body: &Value, patch: bool, dry_run: bool) -> Result<Value, Answer> {
        let mut object = body.clone();
        let name = object.text("metadata.name").to_owned();
        let old = self.objects.get(&(kind.table, name.clone())).cloned();
        if let (Some(old), true) = (&old, patch) {
            object = old.clone();
            merge(&mut object, body);
        }
        decode::check(kind.type_id(), &mut object).map_err(|error| Answer::bad_request(error.to_string()))?;
        object.put("metadata.namespace", NAMESPACE);
        kind.rules.default(&mut object);
        let ranges = self.list(&limitrange::KIND);
        let is_limited = limit_range::concerns(kind.group, kind.plural, "", old.as_ref());
        if is_limited {
            limit_range::fill_pod(&ranges, &mut object);
        }
        self.validate(kind, &mut object, old.as_ref())?;
        let forbidden = |why: String| Answer::forbidden(kind.resource(), &name, &why);
        if is_limited {
            limit_range::check(&ranges, kind.plural, &object).map_err(forbidden)?;
        }
        let quotas = self.list(&resourcequota::KIND);
        let request = Request { old: old.as_ref(), ..request(kind, &object) };
        let charges = check_request(&quotas, &request).map_err(forbidden)?;
        if dry_run {
            return Ok(object);
        }
        for Charge { quota, used } in charges {
            let mut changed = quotas[quota].clone();
            changed.put("status.used", used);
            self.store(&resourcequota::KIND, changed);
        }
        self.store(kind, object.clone());
        let charged = self.list(&resourcequota::KIND);
        self.control();
        if kind.plural == "services" || kind.plural == "pods" {
            assert_eq!(charged, self.list(&resourcequota::KIND), "what was charged is what is counted");
        }
        Ok(object)
    }

    fn validate(&self, kind: &Kind, object: &mut Value, old: Option<&Value>) -> Result<(), Answer> {
        let mut errors = Errors::default();
        match old {
            None => {
                if kind.kind == kinds::pod::KIND.kind {
                    priority::admit(object, None).expect("the priority of a Pod without a class");
                }
                kind.rules.prepare_create(object);
                kind.rules.validate_create(object, &mut errors);
                object.put("metadata.resourceVersion", "1");
            }
            Some(old) => {
                kind.rules.prepare_update(object, old);
                kind.rules.validate_update(object, old, &mut errors);
            }
        }
        // Service addresses are allocated before validation; this server has no allocator.
        errors.0.retain(|error| !error.field.starts_with("spec.clusterIP") && error.field != "spec.ipFamilyPolicy");
        if errors.is_empty() {
            return Ok(());
        }
        Err(Answer::invalid(kind.group, kind.kind, object.text("metadata.name"), &errors))
    }

    fn store(&mut self, kind: &'static Kind, object: Value) {
        self.objects.insert((kind.table, object.text("metadata.name").to_owned()), object);
    }

    /// Runs the quota controller.
    fn control(&mut self) {
        for mut quota in self.list(&resourcequota::KIND) {
            let list = |kind: &'static Kind| self.list(kind).iter().map(object::encode).collect();
            let found = recalculate(&quota, Timestamp::UNIX_EPOCH, std::iter::empty(), list);
            if found.hard != ResourceList::of(quota.at("status.hard"))
                || found.used != ResourceList::of(quota.at("status.used"))
            {
                quota.put("status", json!({"hard": found.hard.to_value(), "used": found.used.to_value()}));
                self.store(&resourcequota::KIND, quota);
            }
        }
    }

    /// Replays a step of a recording.
    fn step(&mut self, step: &Value, id: &str) {
        let Some((kind, name)) = target(step.text("path")) else { return assert!(step.has("sleep"), "{id}") };
        let mut body = step.at("body").clone();
        let answer = match step.text("method") {
            "GET" => {
                self.objects.get(&(kind.table, name)).cloned().ok_or_else(|| Answer::not_found(kind.resource(), ""))
            }
            "DELETE" => {
                let gone = self.objects.remove(&(kind.table, name));
                self.control();
                gone.ok_or_else(|| Answer::not_found(kind.resource(), ""))
            }
            method => {
                if !name.is_empty() {
                    body.put("metadata.name", name);
                }
                self.write(kind, &body, method == "PATCH", step.text("query.dryRun") == "All")
            }
        };
        compare(step, kind, &answer, id);
    }
}

fn compare(step: &Value, kind: &Kind, answer: &Result<Value, Answer>, id: &str) {
    let expect = step.at("expect");
    let answer = match answer {
        Err(status) if status.code == 400 => {
            return assert!(expect.text("body.message").ends_with(&status.message), "{id}: {}", status.message);
        }
        Err(status) => {
            if expect.has("body.message") {
                assert_eq!(status.message, expect.text("body.message"), "{id}");
            }
            return assert_eq!(i64::from(status.code), expect.int("status"), "{id}: {}", status.message);
        }
        Ok(answer) => answer,
    };
    assert!(expect.int("status") < 300, "{id}: accepted, not {}", expect.at("body"));
    let mut shown = answer.clone();
    decode::prune(kind.type_id(), &mut shown);
    for path in step.texts("ignore") {
        shown.drop_path(path);
    }
    for (part, wanted) in expect.map("body").into_iter().flatten() {
        match part.as_str() {
            "spec" | "status" => assert_eq!(shown.at(part), wanted, "{id}"),
            "metadata" => assert_eq!(shown.at("metadata.annotations"), wanted.at("annotations"), "{id}"),
            _ => {}
        }
    }
}

/// The kind and name of a URL.
fn target(path: &str) -> Option<(&'static Kind, String)> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, "namespaces", _, rest @ ..] => ("", version, rest),
        ["apis", group, version, "namespaces", _, rest @ ..] => (*group, version, rest),
        _ => return None,
    };
    let name = rest.get(1).copied().unwrap_or_default();
    kinds::find(group, version, rest.first()?).map(|kind| (kind, name.to_owned()))
}

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key).or_insert_with(|| Map::new().into()), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

fn request<'r>(kind: &'r Kind, new: &'r Value) -> Request<'r> {
    let now = Timestamp::UNIX_EPOCH;
    Request { group: kind.group, plural: kind.plural, subresource: "", old: None, new, now }
}

#[test]
fn recorded_answers() {
    let recorded = std::fs::read_to_string(RECORDED).expect("the recording");
    let recorded: Value = serde_json::from_str(&recorded.replace("<ns>", NAMESPACE)).expect("JSON");
    for case in recorded.items("cases") {
        let mut namespace = Namespace::default();
        namespace.store(&serviceaccount::KIND, json!({"metadata": {"name": "default", "namespace": NAMESPACE}}));
        for step in case.items("steps").iter().filter(|step| !step.text("headers.Accept").contains("as=Table")) {
            namespace.step(step, case.text("id"));
        }
    }
}

fn quota(hard: &Value, used: &Value, spec: &Value) -> Value {
    json!({"metadata": {"name": "q"}, "spec": spec, "status": {"hard": hard, "used": used}})
}

fn pod(cpu: &str) -> Value {
    json!({
        "metadata": {"name": "p", "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
    })
}

#[test]
fn a_quota_without_known_usage_forbids() {
    let quota = quota(&json!({"pods": "5", "services": "1", "requests.cpu": "1"}), &json!({"pods": "0"}), &json!({}));
    let refused = check_request(&[quota], &request(&kinds::pod::KIND, &pod("1")));
    assert_eq!(refused, Err("status unknown for quota: q, resources: pods,requests.cpu".to_owned()));
}

#[test]
fn unlimited_resources_are_not_checked() {
    let quotas = [quota(&json!({"services": "0"}), &json!({"services": "0"}), &json!({}))];
    assert_eq!(check_request(&quotas, &request(&kinds::pod::KIND, &pod("1"))), Ok(Vec::new()));
    let event = json!({"metadata": {"name": "e", "namespace": NAMESPACE}});
    let quotas = [quota(&json!({"count/events": "0"}), &json!({"count/events": "0"}), &json!({}))];
    assert!(!request(&kinds::event::KIND, &event).concerns_quotas());
    assert_eq!(check_request(&quotas, &request(&kinds::event::KIND, &event)), Ok(Vec::new()));
    let node = json!({"metadata": {"name": "x"}});
    assert!(!request(&kinds::node::KIND, &node).concerns_quotas(), "no namespace");
}

#[test]
fn only_increases_are_charged() {
    let quotas = [
        quota(&json!({"services.nodeports": "2"}), &json!({"services.nodeports": "2"}), &json!({})),
        quota(&json!({"services": "1"}), &json!({"services": "1"}), &json!({})),
        quota(&json!({"services.nodeports": "5"}), &json!({"services.nodeports": "2"}), &json!({})),
    ];
    let service = |kind: &str, ports: usize| {
        let ports: Vec<Value> = (0..ports).map(|port| json!({"port": port})).collect();
        json!({"metadata": {"name": "s", "namespace": NAMESPACE}, "spec": {"type": kind, "ports": ports}})
    };
    let change = |quotas: &[Value], old: &Value, new: &Value| {
        check_request(quotas, &Request { old: Some(old), ..request(&kinds::service::KIND, new) })
    };
    assert_eq!(change(&quotas, &service("NodePort", 2), &service("ClusterIP", 2)), Ok(Vec::new()));
    assert_eq!(change(&quotas, &service("NodePort", 2), &service("NodePort", 2)), Ok(Vec::new()));
    assert_eq!(
        change(&quotas[1..], &service("NodePort", 2), &service("NodePort", 3)),
        Ok(vec![Charge { quota: 1, used: json!({"services.nodeports": "3"}) }])
    );
    assert_eq!(
        change(&quotas, &service("NodePort", 1), &service("NodePort", 3)),
        Err("exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=2, limited: \
             services.nodeports=2"
            .to_owned())
    );
}

#[test]
fn a_pod_that_comes_into_scope_is_charged_in_full() {
    let spec = json!({"scopes": ["Terminating"]});
    let quotas = [quota(&json!({"pods": "1"}), &json!({"pods": "0"}), &spec)];
    let (old, mut new) = (pod("1"), pod("1"));
    let change = |new: &Value| check_request(&quotas, &Request { old: Some(&old), ..request(&kinds::pod::KIND, new) });
    assert_eq!(change(&new), Ok(Vec::new()));
    new.put("spec.activeDeadlineSeconds", 5);
    assert_eq!(change(&new), Ok(vec![Charge { quota: 0, used: json!({"pods": "1"}) }]));
}

#[test]
fn negative_usage_is_forbidden() {
    let quotas = [quota(&json!({"requests.cpu": "1"}), &json!({"requests.cpu": "0"}), &json!({}))];
    let refused = check_request(&quotas, &request(&kinds::pod::KIND, &pod("-1")));
    assert_eq!(refused, Err("quota usage is negative for resource(s): cpu,requests.cpu".to_owned()));
}

#[test]
fn usage_is_recalculated() {
    let mut leaving = pod("1");
    leaving.put("metadata.deletionTimestamp", "1970-01-01T00:00:00Z");
    leaving.put("metadata.deletionGracePeriodSeconds", 30);
    let list = |kind: &'static Kind| match kind.plural {
        "pods" => [pod("500m"), leaving.clone()].iter().map(object::encode).collect(),
        "secrets" => vec![Bytes::new(); 3],
        _ => Vec::new(),
    };
    let hard = json!({
        "secrets": "5", "pods": "1", "requests.cpu": "9", "persistentvolumeclaims": "1", "count/frobs.example.com": "1",
        "count/other.example.com": "1",
    });
    let stale = quota(&json!({}), &json!({"count/frobs.example.com": "7", "services": "1"}), &json!({"hard": hard}));
    let found = recalculate(&stale, Timestamp::UNIX_EPOCH, std::iter::empty(), list);
    assert_eq!(found.hard.to_value(), hard);
    assert_eq!(
        found.used.to_value(),
        json!({
            "count/frobs.example.com": "7", "persistentvolumeclaims": "0", "pods": "2", "requests.cpu": "1500m",
            "secrets": "3",
        })
    );
    assert_eq!(found.until, "1970-01-01T00:00:30Z".parse().ok());
    let scoped =
        quota(&json!({}), &json!({}), &json!({"hard": {"secrets": "1", "pods": "1"}, "scopes": ["BestEffort"]}));
    let later = "1970-01-01T00:00:31Z".parse().expect("a time");
    assert_eq!(
        recalculate(&scoped, later, std::iter::empty(), list).used.to_value(),
        json!({"pods": "0", "secrets": "0"})
    );
}
