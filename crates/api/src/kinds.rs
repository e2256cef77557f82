//! The table of kinds. A new kind is one file and one line here.
//!
//! Sorted as discovery lists them: by group (core first), then by plural.

pub mod admissionregistration;
pub mod bgppeer;
pub mod binding;
pub mod certificatesigningrequest;
mod common;
pub mod configmap;
pub mod controllerrevision;
pub mod customresourcedefinition;
pub mod daemonset;
pub mod deployment;
pub mod endpoints;
pub mod endpointslice;
pub mod event;
pub mod events_event;
pub mod ingress;
pub mod ingressclass;
pub mod ipaddress;
pub mod ippool;
pub mod job;
pub mod lease;
pub mod limitrange;
pub mod namespace;
pub mod node;
pub mod pod;
pub mod poddisruptionbudget;
pub mod priorityclass;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resourcequota;
pub mod reviews;
pub mod role;
pub mod rolebinding;
pub mod scale;
pub mod secret;
pub mod service;
pub mod serviceaccount;
pub mod servicecidr;
pub mod statefulset;
pub mod stored;
#[cfg(test)]
pub(crate) mod testing;
pub mod trafficpolicy;
mod workload;

use crate::kind::Kind;

/// All kinds of the server.
pub static KINDS: &[&Kind] = &[
    &binding::KIND,
    &configmap::KIND,
    &endpoints::KIND,
    &event::KIND,
    &limitrange::KIND,
    &namespace::KIND,
    &node::KIND,
    &stored::persistentvolumeclaim::KIND,
    &stored::persistentvolume::KIND,
    &pod::KIND,
    &stored::podtemplate::KIND,
    &replicationcontroller::KIND,
    &resourcequota::KIND,
    &secret::KIND,
    &serviceaccount::KIND,
    &service::KIND,
    &admissionregistration::webhooks::MUTATING,
    &admissionregistration::policy::KIND,
    &admissionregistration::binding::KIND,
    &admissionregistration::webhooks::VALIDATING,
    &customresourcedefinition::KIND,
    &stored::apiservice::KIND,
    &controllerrevision::KIND,
    &daemonset::KIND,
    &deployment::KIND,
    &replicaset::KIND,
    &statefulset::KIND,
    &reviews::SELF_SUBJECT_REVIEW,
    &reviews::TOKEN_REVIEW,
    &reviews::LOCAL_SUBJECT_ACCESS_REVIEW,
    &reviews::SELF_SUBJECT_ACCESS_REVIEW,
    &reviews::SELF_SUBJECT_RULES_REVIEW,
    &reviews::SUBJECT_ACCESS_REVIEW,
    &stored::horizontalpodautoscaler::V2,
    &stored::horizontalpodautoscaler::V1,
    &stored::cronjob::KIND,
    &job::KIND,
    &certificatesigningrequest::KIND,
    &lease::KIND,
    &endpointslice::KIND,
    &events_event::KIND,
    &stored::flowcontrol::FLOW_SCHEMA,
    &stored::flowcontrol::PRIORITY_LEVEL,
    &ingressclass::KIND,
    &ingress::KIND,
    &ipaddress::KIND,
    &stored::networkpolicy::KIND,
    &servicecidr::KIND,
    &stored::runtimeclass::KIND,
    &poddisruptionbudget::KIND,
    &rolebinding::CLUSTER_ROLE_BINDING,
    &role::CLUSTER_ROLE,
    &rolebinding::ROLE_BINDING,
    &role::ROLE,
    &priorityclass::KIND,
    &stored::storage::CSI_DRIVER,
    &stored::storage::CSI_NODE,
    &stored::storage::CSI_STORAGE_CAPACITY,
    &stored::storage::STORAGE_CLASS,
    &stored::storage::VOLUME_ATTACHMENT,
    &bgppeer::KIND,
    &ippool::KIND,
    &trafficpolicy::KIND,
];

/// The kind behind a URL.
#[must_use]
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    KINDS.iter().copied().find(|kind| kind.group == group && kind.version == version && kind.plural == plural)
}

/// The kind that an object declares.
#[must_use]
pub fn find_kind(group: &str, version: &str, name: &str) -> Option<&'static Kind> {
    KINDS.iter().copied().find(|kind| kind.group == group && kind.version == version && kind.kind == name)
}

/// The kind whose form objects of a table are stored in; the first one where several show the same table.
#[must_use]
pub fn by_table(table: &str) -> Option<&'static Kind> {
    KINDS.iter().copied().find(|kind| !table.is_empty() && kind.table == table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_complete() {
        let keys: Vec<_> = KINDS.iter().map(|kind| (kind.group, kind.plural)).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        for kind in KINDS {
            assert!(crate::schema::find(kind.schema).is_some(), "{}", kind.schema);
            assert!(kind.verbs.is_sorted() && kind.subresources.is_sorted_by_key(|sub| sub.name), "{}", kind.plural);
            assert!(kind.selectable.is_sorted_by_key(|field| field.label), "{}", kind.plural);
            assert!(kind.table_view.columns.iter().any(|column| column.format == "name"), "{}", kind.plural);
            assert_eq!(kind.table.is_empty(), kind.verbs == ["create"], "{}", kind.plural);
        }
    }

    #[test]
    fn kinds_are_found() {
        assert_eq!(find("", "v1", "pods").map(|kind| kind.kind), Some("Pod"));
        assert!(find("", "v1", "nothing").is_none() && find("", "v2", "pods").is_none());
        assert_eq!(find_kind("networking.k8s.io", "v1", "Ingress").map(|kind| kind.table), Some("ingress"));
        assert_eq!(by_table("events").map(|kind| kind.group), Some(""));
        assert!(by_table("").is_none());
    }

    #[test]
    fn rules_stand_any_shape() {
        // Rules get what the schema lets through; they must not panic on what it should have stopped either.
        for kind in KINDS {
            for object in [serde_json::json!({}), serde_json::json!(null), serde_json::json!({"spec": [], "status": 1})]
            {
                let (mut new, mut errors) = (object.clone(), crate::field::Errors::default());
                kind.rules.default(&mut new);
                kind.rules.prepare_create(&mut new);
                kind.rules.validate_create(&new, &mut errors);
                kind.rules.prepare_update(&mut new, &object);
                kind.rules.prepare_status(&mut new, &object);
                kind.rules.validate_update(&new, &object, &mut errors);
                kind.rules.validate_status(&new, &object, &mut errors);
                kind.rules.warnings(&new, None, &mut Vec::new());
                kind.rules.status_warnings(&new, &object, &mut Vec::new());
                let _ = kind.rules.new_generation(&new, &object);
                let _ = (kind.table_view.row)(&new, jiff::Timestamp::UNIX_EPOCH);
                let _ = (kind.table_view.conditions)(&new);
                let _ = kind.facts(&new);
                let _ = kind.rules.stored_to_shown(kind.rules.shown_to_stored(new));
            }
        }
    }
}
