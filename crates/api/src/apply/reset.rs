//! Fields that a write to a resource cannot change, whatever the client sends ("reset fields").
//!
//! In: a type and the subresource that is written. Out: the [`Reset`] with the paths that no manager acquires by the write, and that an
//! apply preserves.

use std::sync::OnceLock;

use serde_json::Value;

use super::fieldset::Set;
use super::object_type::ObjectType;
use crate::schema::TypeId;
use crate::value::ValueExt as _;

static STATUS: Reset = Reset::of(&["status"]);
static SPEC: Reset = Reset::of(&["spec"]);
static SPEC_AND_METADATA: Reset = Reset::of(&["spec", "metadata"]);
static NOTHING: Reset = Reset::of(&[]);
static SPEC_AND_STATUS: Reset = Reset::of(&["spec", "status"]);
static REQUEST_STATUS: Reset = Reset::of(&["spec", "status.conditions"]);
static REQUEST_APPROVAL: Reset = Reset::of(&["spec", "status.certificate"]);
static POD_STATUS: Reset = Reset::of(&["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]);
static CUSTOM_STATUS: Reset = Reset { paths: &["spec", "metadata"], only_status: true, set: OnceLock::new() };

/// Paths that a write cannot change.
pub(super) struct Reset {
    paths: &'static [&'static str],
    /// Members beside `status` and `metadata` cannot be changed either. Custom kinds may have any; as in kube-apiserver
    /// they are restored without being among the paths.
    only_status: bool,
    set: OnceLock<Set<'static>>,
}

impl Reset {
    const fn of(paths: &'static [&'static str]) -> Self {
        Self { paths, only_status: false, set: OnceLock::new() }
    }

    /// The paths that a write to this resource cannot change.
    pub(super) fn fields(ty: ObjectType<'_>, subresource: &str) -> &'static Self {
        match ty {
            ObjectType::Table(ty) => table_fields(ty, subresource),
            ObjectType::Custom(custom) => match subresource {
                "" if custom.has_status => &STATUS,
                "status" => &CUSTOM_STATUS,
                _ => &NOTHING,
            },
        }
    }

    pub(super) fn set(&self) -> &Set<'static> {
        self.set.get_or_init(|| Set::of_fields(self.paths))
    }

    /// Sets these fields to their values in the live object. A new object keeps its spec and has no status yet. Of `metadata` as a
    /// whole, which also identifies the object and its revision, the rules of the kind keep what must stay.
    pub(super) fn restore(&self, live: Option<&Value>, object: &mut Value) {
        for path in self.paths.iter().filter(|path| **path != "metadata") {
            match live {
                Some(live) if live.has(path) => object.put(path, live.at(path).clone()),
                None if *path == "spec" => {}
                _ => drop(object.drop_path(path)),
            }
        }
        if let (true, Some(Value::Object(live)), Value::Object(object)) = (self.only_status, live, object) {
            let changes = |name: &str| matches!(name, "apiVersion" | "kind" | "metadata" | "status");
            object.retain(|name, _| changes(name));
            let kept = live.iter().filter(|(name, _)| !changes(name));
            object.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
        }
    }
}

fn table_fields(ty: TypeId, subresource: &str) -> &'static Reset {
    match (subresource, ty.get().name) {
        ("", "certificates.CertificateSigningRequest") => &SPEC_AND_STATUS,
        ("status", "certificates.CertificateSigningRequest") => &REQUEST_STATUS,
        ("approval", "certificates.CertificateSigningRequest") => &REQUEST_APPROVAL,
        ("", _) | ("finalize", "core.Namespace") => &STATUS,
        ("status", "core.Pod") => &POD_STATUS,
        ("status", "networking.ServiceCIDR") => &SPEC_AND_METADATA,
        ("status", _) => &SPEC,
        _ => &NOTHING,
    }
}
