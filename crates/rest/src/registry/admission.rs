//! Built-in admission: NamespaceLifecycle, DefaultIngressClass, NodeRestriction.

use api::admission::Plugin;
use api::kind::Kind;
use api::kinds;
use api::kinds::priorityclass::{self, SystemClass};
use api::object;
use api::status::{Resource, Status};
use api::value::ValueExt as _;
use api::view::annotations::{DEFAULT_INGRESS_CLASS, INGRESS_CLASS};
use serde_json::Value;
use store::{Compare, Key, Table};

use super::{Call, Registry, restriction, signer};

/// Namespaces that cannot be deleted.
const PROTECTED_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

impl Registry {
    /// Admits a new object. Returns the conditions that must hold when it is stored.
    pub(super) fn admit_create(&self, call: &Call<'_>, name: &str, object: &mut Value) -> Result<Vec<Compare>, Status> {
        let filled =
            if call.is_main() { self.admission(call).fill(&call.admission(name), object)? } else { Vec::new() };
        signer::on_create(call, name, object)?;
        if self.plugins.has(Plugin::NodeRestriction) {
            restriction::on_create(call, name, object, &|node| self.node_uid(node))?;
        }
        self.check_grant(call, name, object, None)?;
        if call.kind.plural == "ingresses" {
            self.default_ingress_class(object);
        }
        if !call.kind.namespaced {
            return Ok(Vec::new());
        }
        let key = Key { table: Table::named("namespaces"), name: call.namespace.into() };
        let Some(entry) = self.store.get(&key) else {
            let namespaces = Resource { group: "", plural: "namespaces", kind: "Namespace" };
            return Err(Status::not_found(namespaces, call.namespace));
        };
        let namespace = object::decode_light(&entry.value);
        if namespace.has("metadata.deletionTimestamp") {
            return Err(being_terminated(call, name));
        }
        let namespace = Compare { key, modified: entry.modified };
        Ok(std::iter::once(namespace).chain(filled).collect())
    }

    /// The uid of a Node; `None` when it does not exist.
    fn node_uid(&self, name: &str) -> Option<String> {
        let entry = self.store.get(&Key { table: Table::named(kinds::node::KIND.table), name: name.into() })?;
        Some(object::decode_light(&entry.value).text("metadata.uid").to_owned())
    }

    /// Refuses the deletion of required objects.
    pub(super) fn admit_delete(&self, call: &Call<'_>, name: &str) -> Result<(), Status> {
        why_required(call.kind, name).map_or(Ok(()), |why| Err(Status::forbidden(call.kind.resource(), name, why)))
    }

    /// Sets the default IngressClass: the newest, then the first by name.
    fn default_ingress_class(&self, ingress: &mut Value) {
        if ingress.has("spec.ingressClassName") || ingress.at("metadata.annotations").get(INGRESS_CLASS).is_some() {
            return;
        }
        let Ok(classes) = self.store.range(Table::named("ingressclasses"), "", None) else { return };
        let Some(kind) = kinds::by_table("ingressclasses") else { return };
        let mut marked: Vec<Value> = classes
            .entries
            .iter()
            .map(|entry| object::decode(kind, &entry.value, entry.modified))
            .filter(|class| {
                class.at("metadata.annotations").get(DEFAULT_INGRESS_CLASS).and_then(Value::as_str) == Some("true")
            })
            .collect();
        marked.sort_by(|a, b| {
            let newest_first = b.text("metadata.creationTimestamp").cmp(a.text("metadata.creationTimestamp"));
            newest_first.then_with(|| a.text("metadata.name").cmp(b.text("metadata.name")))
        });
        if let Some(class) = marked.first() {
            ingress.put("spec.ingressClassName", class.text("metadata.name"));
        }
    }
}

/// Why an object cannot be deleted, if it is one of those that every cluster has.
pub(crate) fn why_required(kind: &Kind, name: &str) -> Option<&'static str> {
    if kind.plural == "namespaces" && PROTECTED_NAMESPACES.contains(&name) {
        return Some("this namespace may not be deleted");
    }
    let is_system = (kind.group, kind.plural) == (priorityclass::KIND.group, priorityclass::KIND.plural)
        && SystemClass::find(name).is_some();
    is_system.then_some("this is a system priority class and cannot be deleted")
}

fn being_terminated(call: &Call<'_>, name: &str) -> Status {
    let namespace = call.namespace;
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    Status::forbidden(call.kind.resource(), name, &why).with_cause(
        "NamespaceTerminating",
        &format!("namespace {namespace} is being terminated"),
        "metadata.namespace",
    )
}
