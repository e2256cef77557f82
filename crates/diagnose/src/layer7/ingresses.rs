//! Ingresses: their class, what `routing` finds in them, and their backends.

use api::view::annotations::INGRESS_CLASS;
use api::view::ingress::CONTROLLER;
use routing::ingress::Reason;

use super::{Layer7, code, kubectl, near};
use crate::finding::{Finding, Level};

impl Layer7<'_> {
    /// The findings for an Ingress.
    pub(super) fn ingress_findings(&self, key: &str) -> Vec<Finding> {
        let Some(state) = self.ingresses.state(key) else { return Vec::new() };
        if state.class.is_none() {
            return self.without_class(key).into_iter().collect();
        }
        let edit = || kubectl("edit", "ingress", key);
        let finding = |one: &routing::ingress::Finding| {
            Finding::new(one.reason.as_str(), one.message.clone(), edit()).at(level(one.reason))
        };
        let mut found: Vec<Finding> = state.findings.iter().map(finding).collect();
        found.extend(self.ingress_backends(key));
        found
    }

    /// Why no class of ours has an Ingress; nothing where no class is ours, because then it is not our concern.
    fn without_class(&self, key: &str) -> Option<Finding> {
        let ingress = self.objects.ingresses.get(key)?;
        let classes = &self.objects.ingress_classes;
        if !classes.values().any(|class| &*class.spec.controller == CONTROLLER) {
            return None;
        }
        let named = ingress.metadata.annotation(INGRESS_CLASS).or(ingress.spec.ingress_class_name.as_deref());
        let names = || classes.keys().map(|name| &**name);
        Some(match named {
            Some(name) => match classes.get(name) {
                Some(class) => {
                    let controller = &class.spec.controller;
                    let message = format!("IngressClass {name} is implemented by controller {controller}");
                    let fix = kubectl("describe", "ingress", key);
                    Finding::new(code::INGRESS_CLASS_FOREIGN, message, fix).at(Level::Degraded)
                }
                None => {
                    let hint = near::hint(name, "IngressClass", names());
                    let message = format!("IngressClass {name} does not exist{hint}");
                    Finding::new(code::INGRESS_CLASS_MISSING, message, kubectl("edit", "ingress", key))
                }
            },
            None if classes.values().any(|class| class.is_default()) => return None,
            None => {
                let hint = near::hint("", "IngressClass", names());
                let message =
                    format!("it names no class (spec.ingressClassName), and no IngressClass is the default{hint}");
                Finding::new(code::INGRESS_WITHOUT_CLASS, message, kubectl("edit", "ingress", key))
            }
        })
    }
}

/// Whether requests fail because of it.
const fn level(reason: Reason) -> Level {
    match reason {
        Reason::AccessRefused
        | Reason::PathInvalid
        | Reason::PathConflict
        | Reason::BackendInvalid
        | Reason::CertificateInvalid => Level::NotWorking,
        Reason::AnnotationNotHonoured | Reason::AnnotationInvalid | Reason::CanaryIgnored | Reason::AliasIgnored => {
            Level::Degraded
        }
    }
}
