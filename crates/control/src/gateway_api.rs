//! Installs the definitions of the Gateway API when a server starts: before it is ready, so that no request meets a missing kind.
//!
//! In: the definitions in the store, and records of what servers installed. Out: definitions that are missing or outdated
//! ([`api::gateway_api::install`]), with their records. Others stay.

use std::sync::Arc;

use api::gateway_api::install::{self, Record, Stored};
use api::gateway_api::{Builder, Channel, EXPERIMENTAL_GROUP, GROUP, builders};
use api::kinds::customresourcedefinition::KIND;
use api::object;
use jiff::Timestamp;
use serde_json::Value;
use store::{CommitError, Compare, Entry, Key, Op, Store, Table, Txn};

use crate::objects::read;

/// How often another server may write a definition in between.
const ATTEMPTS: usize = 5;

/// Creates missing definitions of a channel and replaces outdated ones, in one transaction.
///
/// # Errors
/// When the store cannot write.
pub async fn install(store: &dyn Store, channel: Channel, now: Timestamp) -> Result<(), CommitError> {
    for _ in 0..ATTEMPTS {
        let due = due(store, channel);
        if due.is_empty() {
            return Ok(());
        }
        match store.commit(transaction(store, channel, due, now)).await {
            // Another server wrote one of them.
            Err(error) if error.is_conflict() => {}
            done => return done.map(drop),
        }
    }
    Ok(())
}

fn transaction(store: &dyn Store, channel: Channel, due: Vec<Due>, now: Timestamp) -> Txn {
    // Names are taken by all definitions of a group, those of the same transaction included.
    let mut definitions = of_groups(store);
    let mut txn = Txn::default();
    for Due { builder, entry } in due {
        let modified = entry.as_ref().map_or(0, |entry| entry.modified);
        let old = entry.map(|entry| object::decode(&KIND, &entry.value, entry.modified));
        let others: Vec<&Value> = definitions.iter().collect();
        let new = install::object(builder, channel, old, &others, now, &uuid::Uuid::new_v4().to_string());
        tracing::debug!(definition = builder.name, channel = channel.name(), "install definition");
        txn.compares.push(Compare { key: key(builder.name), modified });
        let facts = Arc::new(KIND.facts(&new));
        txn.ops.push(Op::Put { key: key(builder.name), value: object::encode(&new), facts, ttl: None });
        let record = serde_json::to_vec(&Record::of(&new, channel)).unwrap_or_default().into();
        txn.ops.push(Op::Put { key: record_key(builder.name), value: record, facts: Arc::default(), ttl: None });
        definitions.push(new);
    }
    txn
}

/// A definition that is to be written.
struct Due {
    builder: &'static Builder,
    /// What it replaces.
    entry: Option<Arc<Entry>>,
}

fn due(store: &dyn Store, channel: Channel) -> Vec<Due> {
    let is_outdated = |due: &Due| {
        let Some(entry) = &due.entry else { return true };
        let record = store.get(&record_key(due.builder.name));
        let record = record.and_then(|record| serde_json::from_slice::<Record>(&record.value).ok());
        record.is_some_and(|record| read::<Stored>(&entry.value).is_outdated(&record, channel))
    };
    let all = builders(channel).map(|builder| Due { builder, entry: store.get(&key(builder.name)) });
    all.filter(is_outdated).collect()
}

/// The stored definitions of the groups.
fn of_groups(store: &dyn Store) -> Vec<Value> {
    let entries = store.range(Table::named(KIND.table), "", None).map(|range| range.entries).unwrap_or_default();
    let is_of_groups = |entry: &&Arc<Entry>| {
        entry.key.name.split_once('.').is_some_and(|(_, group)| [GROUP, EXPERIMENTAL_GROUP].contains(&group))
    };
    entries.iter().filter(is_of_groups).map(|entry| object::decode_light(&entry.value)).collect()
}

fn key(name: &str) -> Key {
    Key::new(Table::named(KIND.table), name)
}

/// The record of a definition: not an object of the API.
fn record_key(name: &str) -> Key {
    Key::new(Table::named("gatewayapi"), name)
}

#[cfg(test)]
mod tests {
    use api::custom::facts_of;
    use store::{Embedded, KindCatalog, Options};

    use super::*;

    fn store() -> (tempfile::TempDir, Embedded) {
        let home = tempfile::TempDir::new().expect("a directory");
        let store = Embedded::open(home.path().join("store"), facts_of, Options::default()).expect("a store");
        (home, store)
    }

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().expect("a time")
    }

    fn revisions(store: &dyn Store) -> Vec<(String, u64)> {
        let entries = store.range(Table::named(KIND.table), "", None).expect("a range").entries;
        entries.iter().map(|entry| (entry.key.name.to_string(), entry.modified)).collect()
    }

    #[tokio::test]
    async fn definitions_are_served_and_written_once() {
        let (_home, store) = store();
        install(&store, Channel::Standard, now()).await.expect("definitions");
        let first = revisions(&store);
        assert_eq!(first.len(), 10);
        let kinds = KindCatalog::new(&store).read(&store);
        for (version, plural) in [("v1", "gateways"), ("v1beta1", "httproutes"), ("v1", "referencegrants")] {
            assert!(kinds.find(GROUP, version, plural).is_some(), "{version} {plural}");
        }
        assert!(kinds.find(GROUP, "v1alpha2", "tcproutes").is_none());
        install(&store, Channel::Standard, now()).await.expect("nothing to do");
        assert_eq!(revisions(&store), first);
    }

    #[tokio::test]
    async fn another_channel_replaces_definitions_and_keeps_foreign_ones() {
        let (_home, store) = store();
        install(&store, Channel::Standard, now()).await.expect("definitions");
        let gateways = key("gateways.gateway.networking.k8s.io");
        let entry = store.get(&gateways).expect("a definition");
        let mut foreign = object::decode_light(&entry.value);
        foreign["metadata"]["annotations"] = serde_json::json!({});
        let put = Op::Put { key: gateways.clone(), value: object::encode(&foreign), facts: Arc::default(), ttl: None };
        store.commit(Txn { compares: Vec::new(), ops: vec![put] }).await.expect("a change");
        let before = revisions(&store);
        install(&store, Channel::Experimental, now()).await.expect("definitions");
        let after = revisions(&store);
        assert_eq!(after.len(), 14);
        for (name, revision) in before {
            let now = after.iter().find(|(other, _)| *other == name).expect("kept").1;
            assert_eq!(now == revision, name == *gateways.name, "{name}");
        }
        let kinds = KindCatalog::new(&store).read(&store);
        assert!(kinds.find(GROUP, "v1alpha2", "tcproutes").is_some());
        assert!(kinds.find(EXPERIMENTAL_GROUP, "v1alpha1", "xmeshes").is_some());
    }
}
