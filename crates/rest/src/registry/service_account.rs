//! The ServiceAccount of a new Pod: found in the store, or waited for where a controller is about to make it.

use std::time::Duration;

use api::kinds::{pod, serviceaccount};
use api::object;
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Compare, Key, Table};

use super::{Call, Registry};
use crate::admission::Plugin;
use crate::admission::service_account::{self as admission, DEFAULT};

/// How long the account `default` of a new namespace is waited for.
const ACCOUNT_TIMEOUT: Duration = Duration::from_secs(2);

impl Registry {
    /// Gives a new Pod its account and what comes with it; what it relied on is returned as compare.
    pub(super) fn admit_account(
        &self,
        call: &Call<'_>,
        name: &str,
        object: &mut Value,
    ) -> Result<Option<Compare>, Status> {
        if !self.gives_accounts(call) {
            return Ok(None);
        }
        let refuse = |why: String| Status::forbidden(call.kind.resource(), name, &why);
        let Some(account) = admission::account_of(object).map_err(refuse)? else { return Ok(None) };
        let key = account_key(call.namespace, &account);
        let Some(entry) = self.store.get(&key) else {
            let place = format!("{}/{account}", call.namespace);
            return Err(refuse(format!(
                "error looking up service account {place}: serviceaccount {} not found",
                api::field::quote(&account)
            )));
        };
        admission::admit(object, &object::decode_light(&entry.value)).map_err(refuse)?;
        Ok(Some(Compare { key, modified: entry.modified }))
    }

    /// Waits for the account `default` where a new Pod needs it: a controller makes it for each new namespace.
    pub(super) async fn await_default_account(&self, call: &Call<'_>, object: &Value) {
        let named = object.text("spec.serviceAccountName");
        if !self.gives_accounts(call) || !["", DEFAULT].contains(&named) {
            return;
        }
        let key = account_key(call.namespace, DEFAULT);
        let begun = self.store.revision();
        let namespace = Key::new(Table::named("namespaces"), call.namespace);
        if self.store.get(&key).is_some() || self.store.get(&namespace).is_none() {
            return;
        }
        let Ok(mut watch) = self.store.watch(key.table, &key.name, begun) else { return };
        // Whether it came is seen by who asked for it.
        let _ = tokio::time::timeout(ACCOUNT_TIMEOUT, watch.next()).await;
    }

    fn gives_accounts(&self, call: &Call<'_>) -> bool {
        call.kind.plural == pod::KIND.plural && call.is_main() && self.plugins.has(Plugin::ServiceAccount)
    }
}

fn account_key(namespace: &str, name: &str) -> Key {
    Key::new(Table::named(serviceaccount::KIND.table), format!("{namespace}/{name}"))
}
