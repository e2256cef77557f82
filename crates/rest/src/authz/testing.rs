//! An authorizer over a store with the default roles, for tests.

use std::sync::Arc;

use api::facts::Facts;
use api::kind::Kind;
use api::object;
use api::rbac::defaults::DEFAULTS;
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Embedded, Key, Op, Options, Store, Table, Txn};

use super::Authorizer;
use crate::pki::scratch::Scratch;

/// An authorizer, the store it reads, and the folder of the store.
pub(crate) struct Granted {
    pub(crate) authorizer: Authorizer,
    store: Arc<Embedded>,
    _folder: Scratch,
}

impl Granted {
    /// What every cluster grants.
    pub(crate) fn by_default() -> Self {
        let folder = Scratch::new();
        let index = |_: &str, _: &[u8]| Facts::default();
        let store = Arc::new(Embedded::open(folder.path().join("store"), index, Options::default()).unwrap());
        let shared: Arc<dyn Store> = store.clone();
        let granted = Self { authorizer: Authorizer::new(shared), store, _folder: folder };
        granted.put(DEFAULTS.iter().map(|default| (default.kind, &default.object)));
        granted
    }

    /// Stores roles and bindings.
    pub(crate) fn put<'a>(&self, objects: impl Iterator<Item = (&'static Kind, &'a Value)>) {
        let mut txn = Txn::default();
        for (kind, object) in objects {
            let name = object.text("metadata.name");
            let name = match object.text("metadata.namespace") {
                "" => name.to_owned(),
                namespace => format!("{namespace}/{name}"),
            };
            let (key, value) = (Key::new(Table::named(kind.table), name), object::encode(object));
            txn.ops.push(Op::Put { key, value, facts: Arc::default(), ttl: None });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(self.store.commit(txn)).unwrap();
    }
}
