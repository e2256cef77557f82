//! The admission plugin PodSecurity: enforces the Pod Security Standards of a Namespace ([`api::pod_security`]).

use std::time::{Duration, Instant};

use api::admission::{Notes, Plugin};
use api::kinds::{namespace, pod};
use api::object;
use api::pod_security::{self, Configuration, LIST_FAILED, LevelVersion, NamespaceUpdate, is_controller};
use api::status::Status;
use serde_json::Value;

use super::{Admission, Request};
use crate::{Key, Table};

/// The time limit for checking the Pods of a Namespace when its labels become stricter.
const EXISTING: Duration = Duration::from_secs(1);

impl Admission<'_> {
    pub(super) fn check_pod_security(
        &self,
        request: &Request<'_>,
        new: &Value,
        old: Option<&Value>,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let kind = request.kind;
        let is_pod = request.is(&pod::KIND);
        if !self.runs(Plugin::PodSecurity) {
            return Ok(());
        }
        if request.is(&namespace::KIND) && request.subresource.is_empty() {
            return self.check_namespace(request, new, old, &mut notes.warnings);
        }
        if !is_pod && !is_controller(kind.group, kind.kind) {
            return Ok(());
        }
        let key = Key::new(Table::named(namespace::KIND.table), request.namespace);
        let Some(entry) = self.store.get(&key) else { return Ok(()) };
        let (configuration, namespace) = (Configuration::default(), object::decode_light(&entry.value));
        let requested =
            pod_security::Request { namespace: &namespace, user: request.user, subresource: request.subresource };
        let outcome = if is_pod {
            configuration.admit_pod(&requested, new, old)
        } else {
            configuration.admit_controller(&requested, kind.group, kind.kind, new)
        };
        notes.warnings.extend(outcome.warnings);
        notes.annotations.extend(outcome.audit_annotations);
        outcome.refusal.map_or(Ok(()), |why| Err(request.refuse(&why)))
    }

    fn check_namespace(
        &self,
        request: &Request<'_>,
        new: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let configuration = Configuration::default();
        let refuse = |errors| Status::invalid(request.kind.group, request.kind.kind, request.name, &errors);
        let Some(old) = old else {
            warnings.extend(configuration.admit_new_namespace(new).map_err(refuse)?);
            return Ok(());
        };
        warnings.extend(match configuration.admit_namespace_update(new, old).map_err(refuse)? {
            NamespaceUpdate::Allowed(warnings) => warnings,
            NamespaceUpdate::CheckPods(enforce) => self.existing_pods(&configuration, request.name, enforce),
        });
        Ok(())
    }

    /// Warnings about Pods of a Namespace that violate its new labels.
    fn existing_pods(&self, configuration: &Configuration, namespace: &str, enforce: LevelVersion) -> Vec<String> {
        let Ok(range) = self.store.range(Table::named(pod::KIND.table), &format!("{namespace}/"), None) else {
            return vec![LIST_FAILED.to_owned()];
        };
        let pods: Vec<Value> = range.entries.iter().map(|entry| object::decode_light(&entry.value)).collect();
        let begun = Instant::now();
        configuration.existing_pods(namespace, enforce, &pods, || begun.elapsed() > EXISTING)
    }
}
