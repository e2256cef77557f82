//! Admission plugins that read the store: they complete and check an object in the transaction that writes it.
//!
//! ```text
//! new object ─▶ fill (ServiceAccount, LimitRanger, Priority) ─▶ rules of the kind ─▶ check (LimitRanger, PodSecurity, Priority, ResourceQuota) ─▶ commit
//! ```
//! The objects that a plugin relied on become conditions of the transaction, and the usage of a quota becomes part of it. The API
//! server and controllers share this code, so that Pods from templates are checked too.

mod dynamic;
mod limits;
mod pod_security;
mod priority;
mod service_account;

use api::admission::{Notes, Plugin, Plugins};
use api::kind::Kind;
use api::status::Status;
use jiff::Timestamp;
use serde_json::Value;

use crate::{Compare, Store, Txn};

pub use dynamic::{AdmitNew, Dynamic};
pub use service_account::account_key;

/// The plugins that run, and their input.
pub struct Admission<'a> {
    /// The store of namespaces, accounts, limits and quotas.
    pub store: &'a dyn Store,
    /// Which plugins run.
    pub plugins: &'a Plugins,
    /// The time of the request.
    pub now: Timestamp,
}

/// The write that is checked.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The kind of the object.
    pub kind: &'static Kind,
    /// Its namespace; empty for objects without one.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The name of the user.
    pub user: &'a str,
}

impl Request<'_> {
    fn is(&self, kind: &Kind) -> bool {
        (self.kind.group, self.kind.kind) == (kind.group, kind.kind)
    }

    fn refuse(&self, why: &str) -> Status {
        Status::forbidden(self.kind.resource(), self.name, why)
    }
}

impl Admission<'_> {
    /// Completes a new object, before the rules of its kind. Returns the conditions that must hold when it is stored.
    ///
    /// # Errors
    /// 403 when the object refers to something that it may not use.
    pub fn fill(&self, request: &Request<'_>, object: &mut Value) -> Result<Vec<Compare>, Status> {
        let account = self.fill_account(request, object)?;
        self.fill_limits(request, object);
        let class = self.fill_priority(request, object)?;
        Ok(account.into_iter().chain(class).collect())
    }

    /// Checks an object that passed the rules of its kind; `old` is the object it replaces. The usage of quotas is added to the transaction.
    ///
    /// # Errors
    /// 403, or 422 for invalid labels of a Namespace.
    pub fn check(
        &self,
        request: &Request<'_>,
        new: &Value,
        old: Option<&Value>,
        txn: &mut Txn,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        self.check_limits(request, new, old)?;
        self.check_pod_security(request, new, old, notes)?;
        self.check_default_class(request, new, old)?;
        self.charge_quotas(request, new, old, txn)
    }

    fn runs(&self, plugin: Plugin) -> bool {
        self.plugins.has(plugin)
    }
}
