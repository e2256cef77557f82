//! Waits for the ServiceAccount `default` of a new namespace, which a controller creates, before a Pod uses it.

use std::time::Duration;

use api::admission::service_account::DEFAULT;
use api::value::ValueExt as _;
use serde_json::Value;
use store::admission::account_key;
use store::{Key, Table};

use super::{Call, Registry};

/// The longest wait for the account.
const ACCOUNT_TIMEOUT: Duration = Duration::from_secs(2);

impl Registry {
    /// Waits for the account `default` if a new Pod needs it.
    pub(super) async fn await_default_account(&self, call: &Call<'_>, object: &Value) {
        let named = object.text("spec.serviceAccountName");
        if !self.admission(call).gives_account(&call.admission("")) || !["", DEFAULT].contains(&named) {
            return;
        }
        let key = account_key(call.namespace, DEFAULT);
        let begun = self.store.revision();
        let namespace = Key::new(Table::named("namespaces"), call.namespace);
        if self.store.get(&key).is_some() || self.store.get(&namespace).is_none() {
            return;
        }
        let Ok(mut watch) = self.store.watch(key.table, &key.name, begun) else { return };
        // On a timeout, admission reports the missing account.
        let _ = tokio::time::timeout(ACCOUNT_TIMEOUT, watch.next()).await;
    }
}
