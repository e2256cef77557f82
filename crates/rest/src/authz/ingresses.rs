//! Secrets of Ingresses: any node may receive packets for an Ingress, so every node may read its certificates and
//! passwords.
//!
//! In: IngressClasses, Ingresses and Secrets in the store. Out: whether an Ingress that is served refers to a Secret. Only
//! Secrets of the types that Ingresses use: nobody can make nodes read tokens of ServiceAccounts by an annotation.

use api::view::ingress::CONTROLLER;
use api::view::{Ingress, IngressClass, Secret};
use store::{Key, Store, Table};

use super::gateways::{TLS, read};

const CLASSES: &str = "ingressclasses";
const INGRESSES: &str = "ingress";
const SECRETS: &str = "secrets";
/// Types of Secrets with passwords; other types of Kubernetes have other purposes.
const PASSWORDS: [&str; 2] = ["", "Opaque"];

/// Which Ingresses the nodes serve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServedIngresses {
    /// `spec.controller` of their IngressClasses.
    pub controllers: Vec<Box<str>>,
    /// `namespace/name` of the Secret whose certificate is shown for hosts without one.
    pub default_certificate: Option<Box<str>>,
}

impl Default for ServedIngresses {
    fn default() -> Self {
        Self { controllers: vec![CONTROLLER.into()], default_certificate: None }
    }
}

impl ServedIngresses {
    /// Whether an Ingress that is served refers to a Secret.
    pub(super) fn refer_to(&self, store: &dyn Store, namespace: &str, name: &str) -> bool {
        let key = format!("{namespace}/{name}");
        let entry = store.get(&Key::new(Table::named(SECRETS), key.as_str()));
        let Some(secret) = entry.and_then(|entry| read::<Secret>(&entry)) else { return false };
        let is_certificate = &*secret.kind == TLS;
        if is_certificate && self.default_certificate.as_deref() == Some(&key) {
            return true;
        }
        if !is_certificate && !PASSWORDS.contains(&&*secret.kind) {
            return false;
        }
        let refers = |ingress: &Ingress| match is_certificate {
            true => ingress.certificates().iter().any(|secret| **secret == *key),
            false => ingress.passwords().is_some_and(|secret| *secret == *key),
        };
        let Ok(found) = store.range(Table::named(INGRESSES), &format!("{namespace}/"), None) else { return false };
        found
            .entries
            .iter()
            .filter(|entry| says(&entry.value, name))
            .filter_map(|entry| read::<Ingress>(entry))
            .any(|ingress| refers(&ingress) && self.serve(store, &ingress))
    }

    /// Whether an Ingress belongs to a class that is implemented here.
    fn serve(&self, store: &dyn Store, ingress: &Ingress) -> bool {
        let is_ours = |class: &IngressClass| self.controllers.contains(&class.spec.controller);
        if let Some(name) = ingress.class_name() {
            let entry = store.get(&Key::new(Table::named(CLASSES), name));
            return entry.and_then(|entry| read(&entry)).is_some_and(|class| is_ours(&class));
        }
        let Ok(found) = store.range(Table::named(CLASSES), "", None) else { return false };
        let classes: Vec<IngressClass> = found.entries.iter().filter_map(|entry| read(entry)).collect();
        IngressClass::default_of(classes.iter()).is_some_and(is_ours)
    }
}

/// Whether the bytes of an object contain a text, which may be part of a string: `auth-secret` may be `namespace/name`.
fn says(object: &[u8], text: &str) -> bool {
    !text.is_empty() && object.windows(text.len()).any(|window| window == text.as_bytes())
}

#[cfg(test)]
mod tests;
