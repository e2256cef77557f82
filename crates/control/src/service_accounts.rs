//! Objects of every namespace: the ServiceAccount `default`, and the ConfigMap `kube-root-ca.crt`.
//!
//! In: namespaces, and these two objects. Out: both, created when missing; the ConfigMap is also restored. A third controller fills Secrets of the type
//! `kubernetes.io/service-account-token`, again when their signing key is no longer accepted, and deletes those without an account.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use api::kinds::{configmap, namespace, secret, serviceaccount};
use api::object;
use api::value::ValueExt as _;
use api::view::annotations::SERVICE_ACCOUNT_NAME;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use store::{Entry, Key, Table};

use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::{ownership, split};
use crate::settings::Settings;
use crate::signers::{SignError, TokenRequest};
use crate::write::Write;

const DEFAULT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
/// The entry of the ConfigMap, and of token Secrets.
const CA: &str = "ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal \
     service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.",
);
/// Secrets with a service account token, valid until the Secret is deleted.
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// Creates the account `default`.
pub(crate) const ACCOUNTS: Controller = Controller {
    name: "serviceaccount",
    enabled: always,
    affected_keys: account_changed,
    reconcile: make_account,
    resync_period: None,
};

/// Publishes the CA.
pub(crate) const ROOT_CAS: Controller = Controller {
    name: "root-ca-certificate-publisher",
    enabled: has_ca,
    affected_keys: ca_changed,
    reconcile: publish_ca,
    resync_period: None,
};

/// Fills token Secrets.
pub(crate) const TOKENS: Controller = Controller {
    name: "serviceaccount-token",
    enabled: has_tokens,
    affected_keys: token_changed,
    reconcile: fill_token,
    resync_period: None,
};

fn has_ca(settings: &Settings) -> bool {
    settings.publish_root_ca && settings.root_ca.is_some()
}

fn has_tokens(settings: &Settings) -> bool {
    settings.token_signer.is_some()
}

/// Adds the namespace of a changed namespace or object of that name.
fn add_namespace(change: &Change, table: &str, name: &str, affected: &mut AffectedKeys<'_>) {
    if change.is_of(namespace::KIND.table) && !change.deleted {
        affected.add(change.key());
    }
    if change.is_of(table) && !change.initial {
        let (namespace, own) = split(change.key());
        if own == name {
            affected.add(namespace);
        }
    }
}

fn account_changed(_: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    add_namespace(change, serviceaccount::KIND.table, DEFAULT, affected);
}

fn ca_changed(_: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    add_namespace(change, configmap::KIND.table, ROOT_CA, affected);
}

/// Whether a namespace exists and is not being deleted.
fn is_open(view: &View<'_>, namespace: &str) -> bool {
    let entry = view.store.get(&Key::new(Table::named(namespace::KIND.table), namespace));
    entry.is_some_and(|entry| !ownership(&entry.value).is_deleting())
}

fn stored(view: &View<'_>, table: &str, namespace: &str, name: &str) -> Option<Arc<Entry>> {
    view.store.get(&Key::new(Table::named(table), format!("{namespace}/{name}")))
}

fn make_account(view: &View<'_>, namespace: &str) -> Outcome {
    let table = serviceaccount::KIND.table;
    if !is_open(view, namespace) || stored(view, table, namespace, DEFAULT).is_some() {
        return Outcome::done();
    }
    let account = json!({"metadata": {"name": DEFAULT, "namespace": namespace}});
    Outcome::write(vec![Write::create(table, account)])
}

fn publish_ca(view: &View<'_>, namespace: &str) -> Outcome {
    let (Some(ca), true) = (&view.settings.root_ca, is_open(view, namespace)) else { return Outcome::done() };
    let (table, data) = (configmap::KIND.table, json!({CA: ca}));
    let Some(entry) = stored(view, table, namespace, ROOT_CA) else {
        let annotations = json!({DESCRIPTION.0: DESCRIPTION.1});
        let metadata = json!({"name": ROOT_CA, "namespace": namespace, "annotations": annotations});
        return Outcome::write(vec![Write::create(table, json!({"metadata": metadata, "data": data}))]);
    };
    let mut map = object::decode_bare(&entry.value);
    let described = map.at("metadata.annotations").get(DESCRIPTION.0).and_then(Value::as_str) == Some(DESCRIPTION.1);
    if map.at("data") == &data && described {
        return Outcome::done();
    }
    map.put("data", data);
    let mut annotations = map.map("metadata.annotations").cloned().unwrap_or_default();
    annotations.insert(DESCRIPTION.0.to_owned(), DESCRIPTION.1.into());
    map.put("metadata.annotations", annotations);
    Outcome::write(vec![Write::Object { table, object: Box::new(map), modified: entry.modified }])
}

/// Adds changed token Secrets, and those of a created or deleted account.
fn token_changed(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if change.is_of(secret::KIND.table) && !change.deleted {
        affected.add(change.key());
    }
    if change.is_of(serviceaccount::KIND.table) && (change.deleted || change.previous.is_none()) {
        let (namespace, _) = split(change.key());
        let range = view.store.range(Table::named(secret::KIND.table), &format!("{namespace}/"), None);
        for entry in range.into_iter().flat_map(|range| range.entries) {
            affected.add(&entry.key.name);
        }
    }
}

fn fill_token(view: &View<'_>, key: &str) -> Outcome {
    let Some(entry) = view.store.get(&Key::new(Table::named(secret::KIND.table), key)) else {
        return Outcome::done();
    };
    let mut secret = object::decode_bare(&entry.value);
    if secret.text("type") != TOKEN_TYPE || secret.has("metadata.deletionTimestamp") {
        return Outcome::done();
    }
    let annotation =
        |name: &str| secret.at("metadata.annotations").get(name).and_then(Value::as_str).unwrap_or_default();
    let (namespace, secret_name) = split(key);
    let account_name = annotation(SERVICE_ACCOUNT_NAME).to_owned();
    let account = stored(view, serviceaccount::KIND.table, namespace, &account_name);
    let account = account.map(|entry| object::decode_light(&entry.value));
    let uid = account.as_ref().map(|account| account.text("metadata.uid").to_owned());
    // The token of a deleted or recreated account is invalid.
    let Some(uid) = uid.filter(|uid| ["", uid.as_str()].contains(&annotation(ACCOUNT_UID))) else {
        tracing::info!(secret = key, account = account_name, "delete token Secret of missing ServiceAccount");
        return Outcome::write(vec![Write::delete(&entry)]);
    };
    let before = secret.clone();
    if let Err(error) =
        fill(view, &mut secret, &TokenRequest { namespace, account: (&account_name, &uid), secret: secret_name })
    {
        tracing::warn!(secret = key, %error, "sign token failed");
        return Outcome::done();
    }
    if secret == before {
        return Outcome::done();
    }
    Outcome::write(vec![Write::Object {
        table: secret::KIND.table,
        object: Box::new(secret),
        modified: entry.modified,
    }])
}

fn fill(view: &View<'_>, secret: &mut Value, order: &TokenRequest<'_>) -> Result<(), SignError> {
    let mut data = secret.map("data").cloned().unwrap_or_default();
    let mut set = |name: &str, text: &str| data.insert(name.to_owned(), STANDARD.encode(text).into());
    if let Some(ca) = &view.settings.root_ca {
        set(CA, ca);
    }
    set("namespace", order.namespace);
    let token = data.get("token").and_then(Value::as_str).and_then(|token| STANDARD.decode(token).ok());
    let token = token.and_then(|token| String::from_utf8(token).ok()).unwrap_or_default();
    if let Some(signer) = &view.settings.token_signer
        && (token.is_empty() || !(signer.accepts)(&token))
    {
        let token = (signer.sign)(order)?;
        data.insert("token".to_owned(), STANDARD.encode(token).into());
    }
    secret.put("data", data);
    let mut annotations = secret.map("metadata.annotations").cloned().unwrap_or_default();
    annotations.insert(ACCOUNT_UID.to_owned(), order.account.1.into());
    secret.put("metadata.annotations", annotations);
    Ok(())
}
