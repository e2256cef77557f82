//! Which rules a change compiles.

use std::sync::Arc;

use routing::ingress::{Change, IngressTable, Ingresses, Options};
use routing::model::Rule;
use serde_json::{Value, json};

use super::super::rule::CompiledRule;
use super::IngressRule;
use super::class::changed;
use crate::limits::Limits;
use crate::policy::{Enforcer, PasswordStore};

fn compile(rule: &Arc<Rule>) -> IngressRule {
    let enforcer = Enforcer::new(Limits::default(), 1, Box::new(|_| false));
    let means = (&enforcer, &PasswordStore::default());
    let compiled = Arc::new(CompiledRule::new(rule, |_| None, Arc::default(), means));
    IngressRule { source: Arc::clone(rule), compiled }
}

/// An Ingress with these paths of one host.
fn ingress(name: &str, host: &str, paths: &[&str]) -> Change {
    let backend = json!({"service": {"name": "one", "port": {"number": 80}}});
    let paths: Vec<Value> =
        paths.iter().map(|path| json!({"path": path, "pathType": "Prefix", "backend": backend})).collect();
    let object = json!({
        "metadata": {"namespace": "shop", "name": name, "creationTimestamp": format!("2026-01-01T00:00:00Z")},
        "spec": {"ingressClassName": "waypost", "rules": [{"host": host, "http": {"paths": paths}}]},
    });
    Change::Ingress(format!("shop/{name}").into(), Some(Arc::new(serde_json::from_value(object).expect("an Ingress"))))
}

/// The compiled rules of a host, by path.
fn compiled(table: &IngressTable<IngressRule>, host: &str) -> Vec<Arc<CompiledRule>> {
    table.of_host(Some(host)).map(|rule| Arc::clone(&rule.compiled)).collect()
}

#[test]
fn a_change_compiles_the_rules_that_differ() {
    let mut engine = Ingresses::new(Options::default());
    let class = json!({"metadata": {"name": "waypost"}, "spec": {"controller": "waypost.dev/ingress-controller"}});
    engine.apply(Change::Class("waypost".into(), Some(Arc::new(serde_json::from_value(class).expect("a class")))));
    let mut table = IngressTable::default();
    let mut apply = |change| {
        let touched = engine.apply(change);
        let hosts = touched.hosts.get("waypost").cloned().unwrap_or_default();
        let mut count = 0;
        let gateway = engine.gateway("waypost").expect("a gateway");
        table = changed(&table, &hosts, &gateway.table, |rule| {
            count += 1;
            compile(rule)
        });
        (count, table.clone())
    };
    let (count, first) = apply(ingress("one", "a.example", &["/aaa", "/bb"]));
    assert_eq!((count, compiled(&first, "a.example").len()), (2, 2));
    let (count, second) = apply(ingress("two", "a.example", &["/c"]));
    assert_eq!(count, 1);
    let (before, after) = (compiled(&first, "a.example"), compiled(&second, "a.example"));
    assert!(before.iter().zip(&after).all(|(one, other)| Arc::ptr_eq(one, other)), "the others are kept");
    assert_eq!(after.len(), 3);
    let (count, third) = apply(ingress("three", "b.example", &["/"]));
    assert_eq!((count, compiled(&third, "b.example").len()), (1, 1));
    let (count, fourth) = apply(Change::Ingress("shop/two".into(), None));
    assert_eq!((count, compiled(&fourth, "a.example").len()), (0, 2));
}
