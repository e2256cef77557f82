//! Admission against what is stored: what the cluster adds to an object, and what it refuses, in the transaction that writes it.
//!
//! ```text
//! new object ─▶ fill (ServiceAccount, LimitRanger) ─▶ rules of the kind ─▶ check (LimitRanger, PodSecurity, ResourceQuota) ─▶ commit
//! ```
//! What a plugin relied on, and the use that a quota counts, become part of the transaction. The API server and controllers use this alike: no
//! Pod evades it by coming from a template.

mod dynamic;
mod limits;
mod pod_security;
mod service_account;

use api::admission::{Notes, Plugin, Plugins};
use api::kind::Kind;
use api::status::Status;
use jiff::Timestamp;
use serde_json::Value;

use crate::{Compare, Store, Txn};

pub use dynamic::{AdmitNew, Dynamic};
pub use service_account::account_key;

/// Decides with these plugins.
pub struct Admission<'a> {
    /// Where namespaces, accounts, limits and quotas are.
    pub store: &'a dyn Store,
    /// Which plugins run.
    pub plugins: &'a Plugins,
    /// The time of the request.
    pub now: Timestamp,
}

/// What is written, and by whom.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The kind of the object.
    pub kind: &'static Kind,
    /// Its namespace; empty for objects without one.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The part that is written; empty for the object itself.
    pub subresource: &'a str,
    /// The name of the user who writes.
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
    /// Completes a new object, before the rules of its kind; what that relied on must still hold when it is stored.
    ///
    /// # Errors
    /// 403, when the object names what it may not use.
    pub fn fill(&self, request: &Request<'_>, object: &mut Value) -> Result<Vec<Compare>, Status> {
        let account = self.fill_account(request, object)?;
        self.fill_limits(request, object);
        Ok(account.into_iter().collect())
    }

    /// Checks an object that passed the rules of its kind; `old` is what it replaces. What quotas count goes into the transaction.
    ///
    /// # Errors
    /// 403, or 422 for labels of a Namespace that mean nothing.
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
        self.charge_quotas(request, new, old, txn)
    }

    fn runs(&self, plugin: Plugin) -> bool {
        self.plugins.has(plugin)
    }
}
