//! A cluster in which nothing is exposed, for tests of checks.

use api::rbac::defaults::DEFAULTS;
use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Evidence, Pods, Rbac};

pub(super) fn fixture() -> Evidence {
    let of = |bindings: bool, namespaced: bool| -> Vec<Value> {
        let all = DEFAULTS.iter().map(|default| default.object.clone());
        let fits = |object: &Value| object.has("roleRef") == bindings && object.has("metadata.namespace") == namespaced;
        all.filter(fits).collect()
    };
    let rbac = Rbac {
        cluster_roles: of(false, false),
        roles: of(false, true),
        cluster_bindings: of(true, false),
        bindings: of(true, true),
    };
    Evidence {
        now: Timestamp::from_second(1_800_000_000).expect("a time"),
        rbac: Ok(rbac),
        pods: Ok(Pods::default()),
        tokens: Ok(Vec::new()),
        metrics: Ok("waypost_store_secrets_encrypted 1\napiserver_audit_event_total 3\n".to_owned()),
        anonymous: Ok(401),
        certificates: Vec::new(),
        webhooks: Ok(Vec::new()),
    }
}

impl Evidence {
    pub(super) fn rbac(self) -> Rbac {
        self.rbac.expect("roles")
    }
}

pub(super) fn role(name: &str, rules: &Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

/// A binding to a ClusterRole; of a namespace where one is named.
pub(super) fn binding(namespace: &str, name: &str, role: &str, subject: &Value) -> Value {
    let mut metadata = json!({"name": name});
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    json!({"metadata": metadata, "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [subject]})
}
