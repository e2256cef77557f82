//! The Leases of announcers: what they say; [`api::announcer`] has what they are called.
//!
//! In: JSON. Out: a [`Lease`], and JSON again. A node that may answer for addresses keeps `waypost-announcer-NODE`; every address has
//! `waypost-address-IP`, which names who answers. A *life* is one uninterrupted time in which a node kept its Lease: it never comes
//! back, so who has seen that it is over knows that for ever. Each renewal has a *beat* of its own, so two looks at the same life
//! and beat prove that nothing was renewed between them.

use api::announcer::LIFE;
pub use api::announcer::{Key, LABEL, NAMESPACE};
use api::value::ValueExt as _;
use api::view;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Value, json};

const BEAT: &str = "waypost.dev/beat";

/// What a Lease says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lease {
    /// The node that has it; empty when nobody does.
    pub holder: Box<str>,
    /// The life of that node in which it got it.
    pub life: Box<str>,
    /// Which renewal it is; of addresses always 0.
    pub beat: u64,
}

impl Lease {
    /// Reads one.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        view::Lease::deserialize(object).map_or_else(|_| Self::default(), |lease| Self::from(&lease))
    }

    /// Writes it; `version` is the one that it replaces, as [`version`] tells it.
    #[must_use]
    pub fn write(&self, key: &Key, version: Option<&str>, now: Timestamp) -> Value {
        let now = now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let mut metadata = json!({
            "name": key.name(), "namespace": NAMESPACE, "labels": {LABEL: key.label()},
            "annotations": {LIFE: self.life, BEAT: self.beat.to_string()},
        });
        // Without the uid, a Lease that is gone would be made anew instead of being replaced.
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
            life: note(LIFE).into(),
            beat: note(BEAT).parse().unwrap_or(0),
        }
    }
}

/// Which version of which object this is.
#[must_use]
pub fn version(object: &Value) -> Box<str> {
    format!("{}/{}", object.text("metadata.uid"), object.text("metadata.resourceVersion")).into()
}

/// The conditions under which this version may be deleted.
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
        let lease = Lease { holder: "n1".into(), life: "a-1".into(), beat: 7 };
        let object = lease.write(&Key::Node("n1".into()), Some("u-1/12"), Timestamp::UNIX_EPOCH);
        assert_eq!(Lease::read(&object), lease);
        assert_eq!(&*version(&object), "u-1/12");
        assert_eq!(preconditions("u-1/12").text("preconditions.resourceVersion"), "12");
        assert_eq!(object.text("spec.renewTime"), "1970-01-01T00:00:00.000000Z");
    }
}
