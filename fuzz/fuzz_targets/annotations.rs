//! Ingresses with annotations of ingress-nginx, and a request: the gateway does not depend on the order in which Ingresses come, its rules are
//! limited in number, what a rule makes of the request can be sent, and nothing remains of Ingresses that are deleted.
//!
//! An input that begins with `[` contains JSON, a zero byte and the head of a request; any other one chooses them.
#![no_main]

#[path = "annotations/chosen.rs"]
mod chosen;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};

use api::view::{Ingress, Service};
use common::Head;
use http::HeaderValue;
use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use routing::cluster::SecretState;
use routing::filters::Filters;
use routing::hosts::host_of;
use routing::http_table::RequestView;
use routing::ingress::{Change, Ingresses, Options, convert};
use routing::model::Rule;
use routing::policy::{RequestValues, Template};
use serde_json::json;

/// The class of all of them.
const CLASS: &str = "waypost";
/// Ingresses of an input; more say nothing new.
const MOST: usize = 8;

/// A cluster with the class, two Services and a certificate.
static CLUSTER: LazyLock<Ingresses> = LazyLock::new(|| {
    let mut all = Ingresses::new(Options::default());
    let class = json!({"metadata": {"name": CLASS}, "spec": {"controller": api::view::ingress::CONTROLLER}});
    let class = serde_json::from_value(class).expect("a class");
    all.apply(Change::Class(CLASS.into(), Some(Arc::new(class))));
    for service in &*SERVICES {
        all.apply(Change::Service(service.metadata.key().into(), Some(Arc::new(service.clone()))));
    }
    all.apply(Change::Secret("web/tls".into(), Some(SecretState::Certificate)));
    all
});

static SERVICES: LazyLock<[Service; 2]> = LazyLock::new(|| ["a", "b"].map(service));

fn service(name: &str) -> Service {
    let ports = json!([{"name": "web", "port": 80}, {"name": "tls", "port": 443}]);
    let object = json!({"metadata": {"namespace": "web", "name": name}, "spec": {"ports": ports}});
    serde_json::from_value(object).expect("a Service")
}

/// The Ingresses and the request of an input.
fn read(data: &[u8]) -> Option<(Vec<Ingress>, Head)> {
    if data.first() != Some(&b'[') {
        return chosen::choose(&mut Unstructured::new(data)).ok();
    }
    let (objects, request) = common::halves(data);
    Some((serde_json::from_slice(objects).ok()?, common::head(request)?))
}

fuzz_target!(|data: &[u8]| {
    let Some((mut ingresses, request)) = read(data) else { return };
    ingresses.truncate(MOST);
    for ingress in &mut ingresses {
        // In the namespace of the Services, and of the class: everything else is not served.
        ingress.metadata.namespace = "web".into();
        ingress.spec.ingress_class_name = Some(CLASS.into());
    }
    let keys: BTreeSet<Arc<str>> = ingresses.iter().map(|ingress| ingress.metadata.key().into()).collect();
    if keys.len() != ingresses.len() {
        return;
    }
    let _ = convert::convert(&ingresses, &*SERVICES, CLASS);

    let (mut all, mut reversed) = (CLUSTER.clone(), CLUSTER.clone());
    let add = |all: &mut Ingresses, ingress: &Ingress| {
        all.apply(Change::Ingress(ingress.metadata.key().into(), Some(Arc::new(ingress.clone()))));
    };
    ingresses.iter().for_each(|ingress| add(&mut all, ingress));
    ingresses.iter().rev().for_each(|ingress| add(&mut reversed, ingress));
    assert_eq!(all.gateway(CLASS), reversed.gateway(CLASS), "the gateway depends on the order");
    for key in &keys {
        assert_eq!(all.state(key), reversed.state(key), "the state depends on the order");
    }
    let table = &all.gateway(CLASS).expect("the class").table;
    assert!(table.rules().count() <= 64 * (data.len() + 1), "{} rules of {} bytes", table.rules().count(), data.len());
    let host = host_of(&request.host);
    let (path, query) = (request.target.path(), request.target.query());
    let view = RequestView { method: &request.method, host: &host, path, query, headers: &request.headers };
    if let Some(rule) = table.find(&view) {
        assert!(table.rules().any(|(_, _, known)| Arc::ptr_eq(known, rule)));
        apply(rule, &request);
    }
    for key in keys {
        all.apply(Change::Ingress(key, None));
    }
    assert_eq!(all.gateway(CLASS), CLUSTER.gateway(CLASS), "something remains of deleted Ingresses");
});

/// What the rule makes of the request.
fn apply(rule: &Rule, request: &Head) {
    if let Ok(filters) = Filters::compile(&rule.filters) {
        let mut headers = request.headers.clone();
        filters.modify_request(&mut headers);
        filters.modify_response(&mut headers);
    }
    let Some(policy) = &rule.policy else { return };
    let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let _ = policy.admits(client);
    let values = RequestValues {
        scheme: "http",
        authority: &request.host,
        method: request.method.as_str(),
        path: request.target.path(),
        query: request.target.query(),
        headers: &request.headers,
        client,
        port: 80,
        captures: &[],
    };
    let can_be_sent = |template: &Template| assert!(HeaderValue::try_from(template.render(&values)).is_ok());
    if let Some(redirect) = &policy.redirect {
        can_be_sent(&redirect.location);
    }
    if let Some(rewritten) = policy.rewrite.as_ref().and_then(|rewrite| rewrite.apply(&values)) {
        assert!(rewritten.starts_with('/') && !rewritten.contains(char::is_control), "{rewritten:?}");
    }
}
