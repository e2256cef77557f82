//! References to objects of other namespaces, and the ReferenceGrant that would permit one.

use api::view::gateway_api::GROUP;
use routing::cluster::not_permitted;
use serde_json::{Value, json};

use super::{Layer7, code, name_of, namespace_of};
use crate::finding::Finding;
use crate::words::quoted;

/// A reference: from objects of a kind in a namespace, to an object of the core group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference<'a> {
    /// The kind of the object with the reference.
    pub(super) from: &'a str,
    /// Its key.
    pub(super) own: &'a str,
    /// The kind of the other object: `Service`, `Secret` or `ConfigMap`.
    pub(super) to: &'a str,
    /// Its key.
    pub(super) key: &'a str,
}

impl Layer7<'_> {
    /// Whether a ReferenceGrant permits a reference, or it needs none.
    pub(super) fn permits(&self, reference: Reference<'_>) -> bool {
        let Reference { from, own, to, key } = reference;
        let (namespace, there) = (namespace_of(own), namespace_of(key));
        let mut grants = self.objects.grants.iter().filter(|(grant, _)| namespace_of(grant) == there);
        namespace == there || grants.any(|(_, grant)| grant.permits((GROUP, from, namespace), ("", to, name_of(key))))
    }
}

/// The finding for a reference without grant; `place` says where the reference is. The evidence is the grant as YAML.
pub(super) fn missing(reference: Reference<'_>, place: &str) -> Finding {
    let Reference { from, own, to, key } = reference;
    let message = format!("{place}: {}", not_permitted((from, namespace_of(own)), (to, key)));
    let grant = grant(reference);
    let fix = format!("echo {} | kubectl apply -f -", quoted(&grant.to_string()));
    let mut finding = Finding::new(code::REFERENCE_NOT_PERMITTED, message, fix);
    finding.evidence.push("the ReferenceGrant that permits it, if the owner of the namespace agrees:".to_owned());
    finding.evidence.extend(api::yaml::to_yaml(&grant).lines().map(str::to_owned));
    finding
}

/// The narrowest grant for a reference.
fn grant(Reference { from, own, to, key }: Reference<'_>) -> Value {
    let (namespace, name) = (namespace_of(own), name_of(key));
    let named = format!("{namespace}-{}-to-{name}", from.to_ascii_lowercase());
    json!({
        "apiVersion": format!("{GROUP}/v1beta1"), "kind": "ReferenceGrant",
        "metadata": {"name": named, "namespace": namespace_of(key)},
        "spec": {
            "from": [{"group": GROUP, "kind": from, "namespace": namespace}],
            "to": [{"group": "", "kind": to, "name": name}],
        },
    })
}
