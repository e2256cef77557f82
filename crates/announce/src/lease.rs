//! Contents of the Leases of announcers; [`api::announcer`] has their names.
//!
//! In: JSON. Out: a [`Lease`], and JSON again. A node that may announce addresses renews `waypost-announcer-NODE`; the
//! holder of `waypost-address-IP` announces that address. A *session* is the uninterrupted period in which a node renewed
//! its Lease; its name is never reused. Renewals are numbered, so two reads of the same session and number prove that
//! there was no renewal between them. The annotations of both are `waypost.dev/life` and `waypost.dev/beat`.

use api::announcer::LIFE;
pub use api::announcer::{Key, LABEL, NAMESPACE};
use api::value::ValueExt as _;
use api::view;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Value, json};

/// Annotation with the number of the renewal.
const RENEWAL: &str = "waypost.dev/beat";

/// A Lease of an announcer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lease {
    /// The node that holds it; empty if none does.
    pub holder: Box<str>,
    /// The session of that node in which it was acquired.
    pub session: Box<str>,
    /// Number of the renewal; always 0 for addresses.
    pub renewal: u64,
}

impl Lease {
    /// Parses a Lease; an invalid one has no holder.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        view::Lease::deserialize(object).map_or_else(|_| Self::default(), |lease| Self::from(&lease))
    }

    /// The object; `version` is the one that it replaces, from [`version`].
    #[must_use]
    pub fn write(&self, key: &Key, version: Option<&str>, now: Timestamp) -> Value {
        let now = now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let mut metadata = json!({
            "name": key.name(), "namespace": NAMESPACE, "labels": {LABEL: key.label()},
            "annotations": {LIFE: self.session, RENEWAL: self.renewal.to_string()},
        });
        // Without the uid, a deleted Lease would be created again.
        if let Some((uid, revision)) = version.and_then(|version| version.split_once('/')) {
            metadata.put("uid", uid);
            metadata.put("resourceVersion", revision);
        }
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
            "spec": {"holderIdentity": self.holder, "leaseDurationSeconds": 1, "renewTime": now},
        })
    }
}

impl From<&view::Lease> for Lease {
    fn from(lease: &view::Lease) -> Self {
        let note = |key: &str| lease.metadata.annotations.get(key).unwrap_or_default();
        Self {
            holder: lease.spec.holder_identity.clone(),
            session: note(LIFE).into(),
            renewal: note(RENEWAL).parse().unwrap_or(0),
        }
    }
}

/// uid and resourceVersion of an object.
#[must_use]
pub fn version(object: &Value) -> Box<str> {
    format!("{}/{}", object.text("metadata.uid"), object.text("metadata.resourceVersion")).into()
}

/// Delete options for exactly this version.
#[must_use]
pub fn preconditions(version: &str) -> Value {
    let (uid, revision) = version.split_once('/').unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid, "resourceVersion": revision},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_read_as_it_was_written() {
        let lease = Lease { holder: "n1".into(), session: "a-1".into(), renewal: 7 };
        let object = lease.write(&Key::Node("n1".into()), Some("u-1/12"), Timestamp::UNIX_EPOCH);
        assert_eq!(Lease::read(&object), lease);
        assert_eq!(&*version(&object), "u-1/12");
        assert_eq!(preconditions("u-1/12").text("preconditions.resourceVersion"), "12");
        assert_eq!(object.text("spec.renewTime"), "1970-01-01T00:00:00.000000Z");
    }
}
