//! Pod Security: the labels of a Namespace say what its Pods may do ([`api::pod_security`] decides).
//!
//! In: an object that passed the rules of its kind. Out: 403 for a Pod that the Namespace does not allow, 422 for labels that mean nothing, and
//! warnings. It runs last, so that an object that is wrong in itself is refused for that.

use std::time::{Duration, Instant};

use api::kinds::{namespace, pod};
use api::object;
use api::pod_security::{Configuration, LIST_FAILED, LevelVersion, NamespaceUpdate, Request, is_controller};
use api::status::Status;
use serde_json::Value;
use store::{Key, Table};

use super::create::{invalid, note};
use super::{Call, Registry};
use crate::admission::Plugin;
use crate::view;

/// How long the Pods of a Namespace are looked at when its labels become stricter.
const EXISTING: Duration = Duration::from_secs(1);

impl Registry {
    /// Before an object is stored; `old` is what it replaces.
    pub(super) fn check_pod_security(
        &self,
        call: &Call<'_>,
        name: &str,
        new: &Value,
        old: Option<&Value>,
        noted: &mut Vec<String>,
    ) -> Result<(), Status> {
        if !self.plugins.has(Plugin::PodSecurity) {
            return Ok(());
        }
        let configuration = Configuration::default();
        if (call.kind.group, call.kind.kind) == (namespace::KIND.group, namespace::KIND.kind) {
            return if call.is_main() { self.check_namespace(call, name, new, old, noted) } else { Ok(()) };
        }
        let is_pod = (call.kind.group, call.kind.kind) == (pod::KIND.group, pod::KIND.kind);
        if !is_pod && !is_controller(call.kind.group, call.kind.kind) {
            return Ok(());
        }
        let key = Key { table: Table::named(namespace::KIND.table), name: call.namespace.into() };
        let Some(entry) = self.store.get(&key) else { return Ok(()) };
        let request = Request {
            namespace: &object::decode_light(&entry.value),
            user: &call.user.name,
            subresource: call.subresource.map_or("", |part| part.name),
        };
        let outcome = if is_pod {
            configuration.admit_pod(&request, new, old)
        } else {
            configuration.admit_controller(&request, call.kind.group, call.kind.kind, new)
        };
        if let Some(refusal) = outcome.refusal {
            return Err(Status::forbidden(call.kind.resource(), name, &refusal));
        }
        note(noted, outcome.warnings);
        Ok(())
    }

    fn check_namespace(
        &self,
        call: &Call<'_>,
        name: &str,
        new: &Value,
        old: Option<&Value>,
        noted: &mut Vec<String>,
    ) -> Result<(), Status> {
        let configuration = Configuration::default();
        let refused = |errors| invalid(call.kind, name, &errors);
        let Some(old) = old else {
            note(noted, configuration.admit_new_namespace(new).map_err(refused)?);
            return Ok(());
        };
        match configuration.admit_namespace_update(new, old).map_err(refused)? {
            NamespaceUpdate::Allowed(warnings) => note(noted, warnings),
            NamespaceUpdate::CheckPods(enforce) => note(noted, self.existing_pods(&configuration, name, enforce)),
        }
        Ok(())
    }

    /// Warnings about the Pods of a Namespace that its new labels would not allow.
    fn existing_pods(&self, configuration: &Configuration, namespace: &str, enforce: LevelVersion) -> Vec<String> {
        let Ok(range) = self.store.range(Table::named(pod::KIND.table), &format!("{namespace}/"), None) else {
            return vec![LIST_FAILED.to_owned()];
        };
        let pods: Vec<Value> = range.entries.iter().map(|entry| view::read(&pod::KIND, entry)).collect();
        let begun = Instant::now();
        configuration.existing_pods(namespace, enforce, &pods, || begun.elapsed() > EXISTING)
    }
}
