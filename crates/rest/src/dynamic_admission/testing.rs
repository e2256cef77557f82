//! Configurations in a store, and webhooks that respond with a function.

use std::sync::Arc;
use std::time::Duration;

use api::admission::Plugins;
use api::dynamic_admission::fake::Fake;
use api::dynamic_admission::request::{Operation, Request};
use api::kind::Kind;
use api::kinds::admissionregistration::webhooks;
use api::kinds::service;
use api::object;
use api::value::ValueExt as _;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::{Embedded, Op, Options, Store, Txn};

use super::DynamicAdmission;
use crate::auth::User;
use crate::authz::Authorizer;
use crate::conversion::Converter;
use crate::pki::scratch::Scratch;
use crate::registry::key;
use crate::webhooks::target::Target;
use crate::webhooks::{CallError, Caller};

pub(crate) const NULL: &Value = &Value::Null;

/// Responds to a review, by the host of the webhook: a `response` without uid, or an error.
pub(crate) type Answering = dyn Fn(&str, &Value) -> Result<Value, String> + Send + Sync;

/// A store, and admission that follows it.
pub(crate) struct Fixture {
    pub(crate) admission: DynamicAdmission,
    pub(crate) store: Arc<dyn Store>,
    /// Host and `request` of each call.
    pub(crate) calls: Arc<Mutex<Vec<(String, Value)>>>,
    answering: Arc<Answering>,
    _scratch: Scratch,
}

struct Scripted {
    answering: Arc<Answering>,
    calls: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Caller for Scripted {
    fn post<'a>(&'a self, target: &'a Target, body: Bytes, _: Duration) -> BoxFuture<'a, Result<Bytes, CallError>> {
        let review: Value = serde_json::from_slice(&body).expect("a review is JSON");
        let request = review.at("request").clone();
        self.calls.lock().push((target.host(), request.clone()));
        let answered = (self.answering)(&target.host(), &request).map(|mut response| {
            response.put("uid", request.at("uid").clone());
            let api_version = review.at("apiVersion");
            json!({"kind": "AdmissionReview", "apiVersion": api_version, "response": response}).to_string().into()
        });
        async move { answered.map_err(CallError::Exchange) }.boxed()
    }
}

impl Fixture {
    /// A store with a namespace `n` and webhooks with this function.
    pub(crate) fn new(answering: impl Fn(&str, &Value) -> Result<Value, String> + Send + Sync + 'static) -> Self {
        let scratch = Scratch::new();
        let index = |_: &str, _: &[u8]| api::facts::Facts::default();
        let store = Embedded::open(scratch.path().join("store"), index, Options::default()).expect("a store");
        let store: Arc<dyn Store> = Arc::new(store);
        let calls = Arc::new(Mutex::new(Vec::new()));
        let answering: Arc<Answering> = Arc::new(answering);
        let admission = admission(&store, &answering, &calls);
        Self { admission, store, calls, answering, _scratch: scratch }
    }

    /// Another admission over the same store, with the same webhooks.
    pub(crate) fn again(&self) -> DynamicAdmission {
        admission(&self.store, &self.answering, &self.calls)
    }

    /// A converter with the same webhooks.
    pub(crate) fn converter(&self) -> Arc<Converter> {
        Arc::new(Converter::new(Arc::new(Scripted { answering: self.answering.clone(), calls: self.calls.clone() })))
    }

    /// Stores an object, with its defaults.
    pub(crate) async fn put(&self, kind: &'static Kind, mut object: Value) {
        kind.rules.default(&mut object);
        let key = key(kind, object.text("metadata.namespace"), object.text("metadata.name"));
        let (value, facts) = (object::encode(&object), Arc::new(kind.facts(&object)));
        let txn = Txn { compares: Vec::new(), ops: vec![Op::Put { key, value, facts, ttl: None }] };
        self.store.commit(txn).await.expect("stored");
    }

    /// Stores a configuration with one webhook, at the host `NAME.example.com`.
    pub(crate) async fn webhook(&self, kind: &'static Kind, name: &str, change: Value) {
        let mut webhook = json!({
            "name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": format!("https://{name}")},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*", "*/*"]}],
        });
        let Value::Object(change) = change else { panic!("no object") };
        for (field, value) in change {
            webhook.put(&field, value);
        }
        self.put(kind, json!({"metadata": {"name": name}, "webhooks": [webhook]})).await;
    }

    pub(crate) async fn mutating(&self, name: &str, change: Value) {
        self.webhook(&webhooks::MUTATING, name, change).await;
    }

    pub(crate) async fn validating(&self, name: &str, change: Value) {
        self.webhook(&webhooks::VALIDATING, name, change).await;
    }

    /// The hosts that were called.
    pub(crate) fn called(&self) -> Vec<String> {
        self.calls.lock().iter().map(|(host, _)| host.clone()).collect()
    }
}

fn admission(
    store: &Arc<dyn Store>,
    answering: &Arc<Answering>,
    calls: &Arc<Mutex<Vec<(String, Value)>>>,
) -> DynamicAdmission {
    let caller = Arc::new(Scripted { answering: answering.clone(), calls: calls.clone() });
    let authorizer = Arc::new(Authorizer::new(store.clone()));
    let conversion = Arc::new(Converter::new(caller.clone()));
    DynamicAdmission::with(store.clone(), authorizer, caller, conversion, &Plugins::default(), &Fake)
}

/// The creation of a Service.
pub(crate) fn creation(object: &Value) -> Request<'_> {
    Request {
        operation: Operation::Create,
        kind: &service::KIND,
        subresource: None,
        namespace: "n",
        name: "web",
        object,
        old_object: NULL,
        options: NULL,
        dry_run: false,
        user: NULL,
    }
}

/// A Service as it comes to admission.
pub(crate) fn web() -> Value {
    let mut object = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "web", "namespace": "n"},
        "spec": {"ports": [{"port": 80}]}});
    service::KIND.rules.default(&mut object);
    object
}

pub(crate) fn alice() -> User {
    User { name: "alice".to_owned(), ..User::default() }
}

/// An answer with a JSON patch.
pub(crate) fn patch(operations: &Value) -> Value {
    use base64::Engine as _;
    let patch = base64::prelude::BASE64_STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"})
}
