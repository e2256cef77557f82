//! CertificateSigningRequest: a key and a subject, to be certified by a CA of the cluster.
//!
//! The server records the requester, approval is decided through `approval`, and the certificate is written through
//! `status`; each of the three preserves the others' parts.

pub mod request;
pub mod server_names;
pub mod signers;
#[cfg(test)]
mod tests;
mod validate;

use serde_json::{Value, json};

use crate::field::Errors;
use crate::kind::{Kind, Rules, Selectable, Subresource, keep_status, status_of};
use crate::meta;
use crate::names;
use crate::table::{self, AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;

/// Certificates with which nodes are clients of the API.
pub const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Certificates with which agents of nodes serve.
pub const NODE_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Certificates with which others are clients of the API.
pub const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// The condition of a request that was granted.
pub const APPROVED: &str = "Approved";
/// The condition of a request that was refused.
pub const DENIED: &str = "Denied";
/// The condition of a request that was granted and could not be signed.
pub const FAILED: &str = "Failed";
/// The part through which requests are granted or refused.
pub const APPROVAL: &str = "approval";

/// The kind.
pub static KIND: Kind = Kind {
    group: "certificates.k8s.io",
    kind: "CertificateSigningRequest",
    plural: "certificatesigningrequests",
    singular: "certificatesigningrequest",
    short_names: &["csr"],
    namespaced: false,
    schema: "certificates.CertificateSigningRequest",
    table: "certificatesigningrequests",
    subresources: &[
        Subresource { name: APPROVAL, kind: "CertificateSigningRequest", verbs: &["get", "patch", "update"] },
        status_of("CertificateSigningRequest"),
    ],
    selectable: &[Selectable { label: "spec.signerName", value: |object| object.text("spec.signerName").to_owned() }],
    table_view: &TABLE,
    ..Kind::common(&RequestRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        AGE,
        column("SignerName", "Who is asked to sign."),
        column("Requestor", "Who asks."),
        column("RequestedDuration", "How long the certificate is to be good."),
        column("Condition", "Whether it was granted, and signed."),
    ],
    row: |object, now| {
        let seconds = object.at("spec.expirationSeconds").as_i64();
        vec![
            object.text("metadata.name").into(),
            age(object, now).into(),
            object.text("spec.signerName").into(),
            object.text("spec.username").into(),
            seconds.map_or_else(|| "<none>".to_owned(), |seconds| table::duration(seconds * 1000)).into(),
            condition_cell(object).into(),
        ]
    },
    conditions: no_conditions,
};

/// Whether a request has a condition.
#[must_use]
pub fn has_condition(object: &Value, kind: &str) -> bool {
    object.items("status.conditions").iter().any(|condition| condition.text("type") == kind)
}

/// A request with one condition more; times are those of `now`.
#[must_use]
pub fn with_condition(object: &Value, kind: &str, reason: &str, message: &str, now: &str) -> Value {
    let mut conditions = object.items("status.conditions").to_vec();
    conditions.push(json!({
        "type": kind, "status": "True", "reason": reason, "message": message, "lastUpdateTime": now, "lastTransitionTime": now,
    }));
    let mut out = object.clone();
    out.put("status.conditions", conditions);
    out
}

fn condition_cell(object: &Value) -> String {
    let mut out = match (has_condition(object, DENIED), has_condition(object, APPROVED)) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        _ => "Pending",
    }
    .to_owned();
    if has_condition(object, FAILED) {
        out.push_str(",Failed");
    }
    if !object.text("status.certificate").is_empty() {
        out.push_str(",Issued");
    }
    out
}

struct RequestRules;

impl Rules for RequestRules {
    fn prepare_create(&self, object: &mut Value) {
        object.put("status", json!({}));
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        new.put("spec", old.at("spec").clone());
        keep_status(new, old);
    }

    fn prepare_status(&self, new: &mut Value, old: &Value) {
        new.put("spec", old.at("spec").clone());
        // Decisions stay; everything else may be written here.
        let decided = |condition: &&Value| [APPROVED, DENIED].contains(&condition.text("type"));
        let kept = old.items("status.conditions").iter().filter(decided);
        let conditions: Vec<Value> = kept
            .chain(new.items("status.conditions").iter().filter(|condition| !decided(condition)))
            .cloned()
            .collect();
        set_conditions(new, conditions);
    }

    fn prepare_part(&self, part: &str, new: &mut Value, old: &Value) {
        if part != APPROVAL {
            return self.prepare_status(new, old);
        }
        new.put("spec", old.at("spec").clone());
        let conditions = new.items("status.conditions").to_vec();
        keep_status(new, old);
        set_conditions(new, conditions);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, false, names::name_is_path_segment, errors);
        validate::spec(object, errors);
        validate::status(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        self.validate_create(new, errors);
        meta::validate_update(new, old, errors);
        validate::change("", new, old, errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        self.validate_part("status", new, old, errors);
    }

    fn validate_part(&self, part: &str, new: &Value, old: &Value, errors: &mut Errors) {
        self.validate_create(new, errors);
        meta::validate_update(new, old, errors);
        validate::change(part, new, old, errors);
    }
}

fn set_conditions(object: &mut Value, conditions: Vec<Value>) {
    if !conditions.is_empty() || object.has("status.conditions") {
        object.put("status.conditions", conditions);
    }
}

/// Gives new conditions the times that their author left out: when they were written, and since when they hold.
pub fn stamp_conditions(new: &mut Value, old: &Value, now: &str) {
    if !new.has("status.conditions") {
        return;
    }
    let before = old.items("status.conditions");
    let mut conditions = new.items("status.conditions").to_vec();
    for condition in conditions.iter_mut().filter(|condition| !before.contains(condition)) {
        if condition.text("lastUpdateTime").is_empty() {
            condition.put("lastUpdateTime", now);
        }
        if condition.text("lastTransitionTime").is_empty() {
            let same = |old: &&Value| ["type", "status"].iter().all(|field| old.text(field) == condition.text(field));
            let since =
                before.iter().find(same).map(|old| old.text("lastTransitionTime")).filter(|time| !time.is_empty());
            let since = since.unwrap_or(now).to_owned();
            condition.put("lastTransitionTime", since);
        }
    }
    new.put("status.conditions", conditions);
}
