//! Bound tokens: the objects that a token depends on.
//!
//! In: the bound object, or the claims of a signed token. Out: the claims, in the form of Kubernetes; and, while the account and the bound
//! object are the same ones (same uid) and not deleted, the extras of the user.

use std::collections::BTreeMap;

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{LEEWAY, TokenError};
use crate::auth::objects::Referent;

/// Extras of users with a bound token.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";

/// The name and uid of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference<'a> {
    /// The name.
    pub name: &'a str,
    /// The uid; empty for a Node of a Pod that does not exist.
    pub uid: &'a str,
}

impl<'a> Reference<'a> {
    /// A reference to an object.
    #[must_use]
    pub fn to(object: &'a Value) -> Self {
        Self { name: object.text("metadata.name"), uid: object.text("metadata.uid") }
    }

    fn claim(self) -> Value {
        if self.uid.is_empty() { json!({"name": self.name}) } else { json!({"name": self.name, "uid": self.uid}) }
    }

    fn of_claim(claims: &'a Value, member: &str) -> Option<Self> {
        let claim = claims.get(member).filter(|claim| claim.is_object())?;
        Some(Self { name: claim.text("name"), uid: claim.text("uid") })
    }
}

/// The bound object besides the account: a Pod with its Node, a Secret, or a Node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Binding<'a> {
    /// The Pod.
    pub pod: Option<Reference<'a>>,
    /// The Secret.
    pub secret: Option<Reference<'a>>,
    /// The Node of the Pod, which only describes it; alone, the bound object.
    pub node: Option<Reference<'a>>,
}

impl<'a> Binding<'a> {
    /// Adds the binding to the claim `kubernetes.io`.
    pub(super) fn write(&self, claim: &mut Value) {
        for (member, reference) in [("pod", self.pod), ("secret", self.secret), ("node", self.node)] {
            if let Some(reference) = reference {
                claim[member] = reference.claim();
            }
        }
    }

    /// Reads the binding from the claim `kubernetes.io`.
    pub(super) fn read(claim: &'a Value) -> Self {
        let reference = |member| Reference::of_claim(claim, member);
        Self { pod: reference("pod"), secret: reference("secret"), node: reference("node") }
    }

    /// Whether the bound object still exists with the uid in the token.
    pub(super) fn check(&self, namespace: &str, now: Timestamp, lookup: super::Lookup<'_>) -> Result<(), TokenError> {
        if let Some(secret) = self.secret {
            exists(Referent::Secret, namespace, secret, now, lookup)?;
        }
        match (self.pod, self.node) {
            (Some(pod), _) => exists(Referent::Pod, namespace, pod, now, lookup),
            (None, Some(node)) => exists(Referent::Node, "", node, now, lookup),
            (None, None) => Ok(()),
        }
    }

    /// The extras of the user.
    pub(super) fn extras(&self, extra: &mut BTreeMap<String, Vec<String>>) {
        let mut add = |key: &str, value: &str| extra.insert(key.to_owned(), vec![value.to_owned()]);
        if let Some(pod) = self.pod {
            add(POD_NAME, pod.name);
            add(POD_UID, pod.uid);
        }
        if let Some(node) = self.node {
            add(NODE_NAME, node.name);
            if !node.uid.is_empty() {
                add(NODE_UID, node.uid);
            }
        }
    }
}

fn exists(
    what: Referent,
    namespace: &str,
    claimed: Reference<'_>,
    now: Timestamp,
    lookup: super::Lookup<'_>,
) -> Result<(), TokenError> {
    let found = lookup(what, namespace, claimed.name).ok_or(TokenError::Invalidated)?;
    let uid = found.text("metadata.uid");
    if uid != claimed.uid {
        let (have, claimed) = (uid.to_owned(), claimed.uid.to_owned());
        return Err(TokenError::OtherObject { what: what.kind().kind.to_ascii_lowercase(), have, claimed });
    }
    if is_over(&found, now) { Err(TokenError::Invalidated) } else { Ok(()) }
}

/// Whether an object should have been gone for a while. Its deletion timestamp is the end of its grace period.
pub(super) fn is_over(object: &Value, now: Timestamp) -> bool {
    let deleted: Option<Timestamp> = object.text("metadata.deletionTimestamp").parse().ok();
    deleted.is_some_and(|deleted| deleted.as_second() < now.as_second().saturating_sub(LEEWAY))
}
