//! Bootstrap tokens: signs `cluster-info` with each, and deletes expired ones.
//!
//! In: the Secrets of tokens, and the kubeconfig of the cluster. Out: deletions of Secrets, and the ConfigMap `kube-public/cluster-info` with a signature per
//! token, by which a joining machine verifies it. Not created before the first token exists.

#[cfg(test)]
mod tests;

use std::time::Duration;

use api::bootstrap_token::{
    CLUSTER_INFO, KUBECONFIG, Kept, NAME_PREFIX, NAMESPACE, SIGNATURE_PREFIX, TYPE, Until, until,
};
use api::object;
use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::{Key, Table};

use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, SINGLETON_KEY, View, always};
use crate::write::Write;

const SECRETS: &str = "secrets";
const CONFIG_MAPS: &str = "configmaps";

/// Deletes expired tokens.
pub(crate) const CLEANER: Controller = Controller {
    name: "tokencleaner",
    enabled: always,
    affected_keys: kept_changed,
    reconcile: clean,
    resync_period: None,
};

/// Signs with valid tokens.
pub(crate) const SIGNER: Controller = Controller {
    name: "bootstrapsigner",
    enabled: always,
    affected_keys: signed_changed,
    reconcile: sign,
    resync_period: None,
};

/// Whether a key may be that of a token Secret.
fn is_token(key: &str) -> bool {
    let name = key.strip_prefix(NAMESPACE).and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| name.starts_with(NAME_PREFIX))
}

fn kept_changed(_: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if change.is_of(SECRETS) && !change.deleted && is_token(change.key()) {
        affected.add(change.key());
    }
}

fn clean(view: &View<'_>, key: &str) -> Outcome {
    let Some(entry) = view.store.get(&Key::new(Table::named(SECRETS), key)) else { return Outcome::done() };
    let secret = object::decode_bare(&entry.value);
    let end = until(&secret);
    if secret.text("type") != TYPE {
        return Outcome::done();
    }
    if end.is_over(view.now) {
        tracing::info!(secret = key, "deleting expired bootstrap token");
        return Outcome::write(vec![Write::delete(&entry)]);
    }
    let Until::Time(end) = end else { return Outcome::done() };
    Outcome { requeue_after: Some(time_until(end, view.now)), ..Outcome::done() }
}

fn time_until(end: Timestamp, now: Timestamp) -> Duration {
    // A margin, so that it has expired then.
    Duration::try_from(end.duration_since(now)).unwrap_or_default() + Duration::from_millis(10)
}

fn cluster_info() -> Key {
    Key::new(Table::named(CONFIG_MAPS), format!("{}/{}", CLUSTER_INFO.0, CLUSTER_INFO.1))
}

fn signed_changed(_: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    let is_info = || change.is_of(CONFIG_MAPS) && change.key() == &*cluster_info().name;
    if (change.is_of(SECRETS) && is_token(change.key())) || is_info() {
        affected.add(SINGLETON_KEY);
    }
}

fn sign(view: &View<'_>, _: &str) -> Outcome {
    let (entry, tokens) = (view.store.get(&cluster_info()), good_tokens(view));
    if entry.is_none() && tokens.is_empty() {
        return Outcome::done();
    }
    let mut map = entry.as_ref().map_or_else(
        || json!({"metadata": {"name": CLUSTER_INFO.1, "namespace": CLUSTER_INFO.0}}),
        |entry| object::decode_bare(&entry.value),
    );
    let before = map.map("data").cloned().unwrap_or_default();
    let said = before.get(KUBECONFIG).and_then(Value::as_str).unwrap_or_default();
    let text = view.settings.cluster_info.as_deref().unwrap_or(said);
    if text.is_empty() {
        return Outcome::done();
    }
    let mut data = before.clone();
    data.retain(|key, _| !key.starts_with(SIGNATURE_PREFIX));
    data.insert(KUBECONFIG.to_owned(), text.into());
    let signs = tokens.iter().filter(|kept| kept.signs);
    data.extend(signs.map(|kept| (format!("{SIGNATURE_PREFIX}{}", kept.token.id()), kept.token.sign(text).into())));
    if data == before {
        return Outcome::done();
    }
    map.put("data", data);
    let modified = entry.map_or(0, |entry| entry.modified);
    Outcome::write(vec![Write::Object { table: CONFIG_MAPS, object: Box::new(map), modified }])
}

/// The valid tokens.
fn good_tokens(view: &View<'_>) -> Vec<Kept> {
    let prefix = format!("{NAMESPACE}/{NAME_PREFIX}");
    let Ok(found) = view.store.range(Table::named(SECRETS), &prefix, None) else { return Vec::new() };
    let kept = found.entries.iter().filter_map(|entry| Kept::read(&object::decode_bare(&entry.value)));
    kept.filter(|kept| !kept.until.is_over(view.now)).collect()
}
