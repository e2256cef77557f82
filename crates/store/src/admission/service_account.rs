//! The admission plugin ServiceAccount: sets the account of a new Pod.

use api::admission::Plugin;
use api::admission::service_account as accounts;
use api::field::quote;
use api::kinds::{pod, serviceaccount};
use api::object;
use api::status::Status;
use serde_json::Value;

use super::{Admission, Request};
use crate::{Compare, Key, Table};

impl Admission<'_> {
    /// Sets the account of a new Pod and its token volume.
    pub(super) fn fill_account(&self, request: &Request<'_>, object: &mut Value) -> Result<Option<Compare>, Status> {
        if !self.gives_account(request) {
            return Ok(None);
        }
        let refuse = |why: String| request.refuse(&why);
        let Some(account) = accounts::account_of(object).map_err(refuse)? else { return Ok(None) };
        let key = account_key(request.namespace, &account);
        let Some(entry) = self.store.get(&key) else {
            let place = format!("{}/{account}", request.namespace);
            return Err(refuse(format!(
                "error looking up service account {place}: serviceaccount {} not found",
                quote(&account)
            )));
        };
        let pick = |below: usize| fastrand::usize(..below);
        accounts::admit(object, &object::decode_light(&entry.value), pick).map_err(refuse)?;
        Ok(Some(Compare { key, modified: entry.modified }))
    }

    /// Whether the object of a request gets an account.
    #[must_use]
    pub fn gives_account(&self, request: &Request<'_>) -> bool {
        request.is(&pod::KIND) && request.subresource.is_empty() && self.runs(Plugin::ServiceAccount)
    }
}

/// The key of an account.
#[must_use]
pub fn account_key(namespace: &str, name: &str) -> Key {
    Key::new(Table::named(serviceaccount::KIND.table), format!("{namespace}/{name}"))
}
