//! Dynamic admission control against the cluster: which policies and webhooks are configured, and calling webhooks.
//!
//! ```text
//! mutate: webhooks by name, each on the result of the one before ─▶ plugins again ─▶ reinvocation of webhooks
//! validate: policies ─▶ webhooks, in parallel
//! ```
//! In: a [`Request`] and its user. Out: a changed object, or an error; warnings and audit annotations in [`Notes`]. Matching and
//! evaluation of policies are pure and in `api::dynamic_admission`; here are the configuration that follows the store ([`configuration`]), the
//! exchange with a webhook ([`review`], [`exchange`]). The HTTPS client is in [`crate::webhooks`].

mod cluster;
mod configuration;
mod controllers;
mod exchange;
mod mutate;
mod review;
mod rights;
#[cfg(test)]
pub(crate) mod testing;
mod validate;
mod webhook;

use std::sync::Arc;

use api::admission::{Notes, Plugin, Plugins};
use api::dynamic_admission::expression::Compiler;
use api::dynamic_admission::language::Cel;
use api::dynamic_admission::matching::labels;
use api::dynamic_admission::request::Request;
use api::status::Status;
use serde_json::{Value, json};
use store::{KindCatalog, Store};

use crate::auth::User;
use crate::authz::Authorizer;
use crate::conversion::Converter;
use crate::webhooks::Caller;
use cluster::{ConvertedParams, Stored};
use configuration::{Configuration, Tracked};

/// Runs plugins again after webhooks changed an object.
pub(crate) type Refill<'a> = dyn Fn(&mut Value) -> Result<(), Status> + Sync + 'a;

/// Policies and webhooks of a cluster.
pub(crate) struct DynamicAdmission {
    store: Arc<dyn Store>,
    authorizer: Arc<Authorizer>,
    configuration: Tracked,
    catalog: KindCatalog,
    caller: Arc<dyn Caller>,
    conversion: Arc<Converter>,
    asks_policies: bool,
    asks_mutating: bool,
    asks_validating: bool,
}

impl DynamicAdmission {
    /// Watches the configurations of a store, unless the plugins are disabled.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        authorizer: Arc<Authorizer>,
        caller: Arc<dyn Caller>,
        conversion: Arc<Converter>,
        plugins: &Plugins,
    ) -> Self {
        Self::with(store, authorizer, caller, conversion, plugins, &Cel)
    }

    fn with(
        store: Arc<dyn Store>,
        authorizer: Arc<Authorizer>,
        caller: Arc<dyn Caller>,
        conversion: Arc<Converter>,
        plugins: &Plugins,
        compiler: &'static dyn Compiler,
    ) -> Self {
        Self {
            configuration: Tracked::new(&*store, compiler),
            catalog: KindCatalog::new(&*store),
            store,
            authorizer,
            caller,
            conversion,
            asks_policies: plugins.has(Plugin::ValidatingAdmissionPolicy),
            asks_mutating: plugins.has(Plugin::MutatingAdmissionWebhook),
            asks_validating: plugins.has(Plugin::ValidatingAdmissionWebhook),
        }
    }

    /// The current configuration.
    fn configuration(&self) -> Arc<Configuration> {
        self.configuration.read(&*self.store)
    }

    /// Whether there are mutating webhooks.
    pub(crate) fn mutates(&self) -> bool {
        self.asks_mutating && !self.configuration().mutating.is_empty()
    }

    /// Whether there are validating webhooks or policies.
    pub(crate) fn validates(&self) -> bool {
        let configuration = self.configuration();
        (self.asks_validating && !configuration.validating.is_empty())
            || (self.asks_policies && !configuration.bindings.is_empty())
    }

    fn cluster<'a>(&'a self, params: &'a ConvertedParams) -> Stored<'a> {
        Stored { store: &*self.store, catalog: &self.catalog, params }
    }

    /// The labels of a namespace.
    fn namespace_labels(&self, name: &str) -> Option<api::facts::Facts> {
        use api::dynamic_admission::policy::Cluster as _;
        self.cluster(&ConvertedParams::default()).namespace(name).map(|namespace| labels(&namespace))
    }
}

/// The user of a request as in reviews and expressions.
pub(crate) fn user_info(user: &User) -> Value {
    let mut out = json!({"username": user.name, "groups": user.groups});
    if user.groups.is_empty() {
        out = json!({"username": user.name});
    }
    if !user.uid.is_empty() {
        out["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        out["extra"] = json!(user.extra);
    }
    out
}

/// The object of a request as in a rule, for the log.
fn described(request: &Request<'_>) -> String {
    format!("{} {}/{}", request.operation.name(), request.kind.plural, request.name)
}
