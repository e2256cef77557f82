//! The Leases of announcers: what they are called, and what they say.
//!
//! In: JSON. Out: a [`Lease`], and JSON again. A node that may answer for addresses keeps `waypost-announcer-NODE`; every address has
//! `waypost-address-IP`, which names who answers. A *life* is one uninterrupted time in which a node kept its Lease: it never comes
//! back, so who has seen that it is over knows that for ever. Each renewal has a *beat* of its own, so two looks at the same life
//! and beat prove that nothing was renewed between them.

use std::net::IpAddr;

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Where the Leases are.
pub const NAMESPACE: &str = "kube-system";
/// The label of Leases of announcers.
pub const LABEL: &str = "waypost.dev/announcer";
const LIFE: &str = "waypost.dev/life";
const BEAT: &str = "waypost.dev/beat";
const NODE_PREFIX: &str = "waypost-announcer-";
const ADDRESS_PREFIX: &str = "waypost-address-";

/// Which Lease.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// That of a node.
    Node(Box<str>),
    /// That of an address.
    Address(IpAddr),
}

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

impl Key {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Node(node) => format!("{NODE_PREFIX}{node}"),
            Self::Address(ip) => {
                // A name ends with a letter or a digit, and so does an address, but for `::`.
                let text = ip.to_string().replace(':', "-");
                format!("{ADDRESS_PREFIX}{text}{}", if text.ends_with('-') { "0" } else { "" })
            }
        }
    }

    /// The Lease of this name, if it is one of ours.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if let Some(node) = name.strip_prefix(NODE_PREFIX) {
            return Some(Self::Node(node.into()));
        }
        let text = name.strip_prefix(ADDRESS_PREFIX)?;
        let ip = text.parse().or_else(|_| text.replace('-', ":").parse()).ok()?;
        Some(Self::Address(ip))
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Node(_) => "node",
            Self::Address(_) => "address",
        }
    }
}

impl Lease {
    /// Reads one.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let note = |key: &str| object.at("metadata.annotations").get(key).and_then(Value::as_str).unwrap_or_default();
        Self {
            holder: object.text("spec.holderIdentity").into(),
            life: note(LIFE).into(),
            beat: note(BEAT).parse().unwrap_or(0),
        }
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
    fn a_lease_has_a_name_that_can_be_read_back() {
        for text in ["192.0.2.7", "2001:db8::7", "2001:db8::", "fd00:1:2:3:4:5:6:7"] {
            let key = Key::Address(text.parse().expect("an address"));
            let name = key.name();
            assert!(api::names::name_is_subdomain(&name, false).is_empty(), "{name}");
            let Some(Key::Address(back)) = Key::named(&name) else { panic!("{name}") };
            assert_eq!(back.to_string(), text);
        }
        assert_eq!(Key::named("waypost-announcer-n1"), Some(Key::Node("n1".into())));
        assert_eq!(Key::named("waypost-controllers"), None);
    }

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
