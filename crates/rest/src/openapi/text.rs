//! Descriptions: the schemas of the `k8s-openapi` crate in, the text of a type or a field out.
//!
//! Our own tables give types their structure but carry no prose. The crate has the prose of the release we serve, so it
//! is asked once per build of a document and dropped afterwards. The prose of our own kinds is in [`own`].

use k8s_openapi::api::{
    admissionregistration, apps, authentication, authorization, autoscaling, certificates, coordination, core,
    discovery, events, networking, policy, rbac,
};
use k8s_openapi::apimachinery::pkg::apis::meta;
use schemars::SchemaGenerator;
use serde_json::{Map, Value};

use super::own;

/// The descriptions of all types that can be reached from the kinds.
pub(super) struct Texts(Map<String, Value>);

/// Asks the crate for these types and everything below them.
macro_rules! describe {
    ($generator:ident: $($type:ty),+ $(,)?) => { $( $generator.subschema_for::<$type>(); )+ };
}

impl Texts {
    pub(super) fn gather() -> Self {
        let mut generator = SchemaGenerator::default();
        describe!(generator:
            admissionregistration::v1::MutatingWebhookConfiguration,
            admissionregistration::v1::ValidatingAdmissionPolicy,
            admissionregistration::v1::ValidatingAdmissionPolicyBinding,
            admissionregistration::v1::ValidatingWebhookConfiguration,
            apps::v1::ControllerRevision,
            apps::v1::Deployment,
            apps::v1::ReplicaSet,
            apps::v1::StatefulSet,
            authentication::v1::SelfSubjectReview,
            authentication::v1::TokenRequest,
            authentication::v1::TokenReview,
            authorization::v1::LocalSubjectAccessReview,
            authorization::v1::SelfSubjectAccessReview,
            authorization::v1::SelfSubjectRulesReview,
            authorization::v1::SubjectAccessReview,
            autoscaling::v1::Scale,
            certificates::v1::CertificateSigningRequest,
            coordination::v1::Lease,
            core::v1::Binding,
            core::v1::ConfigMap,
            core::v1::Endpoints,
            core::v1::Event,
            core::v1::LimitRange,
            core::v1::Namespace,
            core::v1::Node,
            core::v1::Pod,
            core::v1::ReplicationController,
            core::v1::ResourceQuota,
            core::v1::Secret,
            core::v1::Service,
            core::v1::ServiceAccount,
            discovery::v1::EndpointSlice,
            events::v1::Event,
            meta::v1::DeleteOptions,
            meta::v1::ListMeta,
            meta::v1::Patch,
            meta::v1::Status,
            meta::v1::WatchEvent<()>,
            networking::v1::IPAddress,
            networking::v1::Ingress,
            networking::v1::IngressClass,
            networking::v1::ServiceCIDR,
            policy::v1::Eviction,
            rbac::v1::ClusterRole,
            rbac::v1::ClusterRoleBinding,
            rbac::v1::Role,
            rbac::v1::RoleBinding,
        );
        Self(generator.take_definitions(false))
    }

    /// What a type is for, by the name of its definition.
    pub(super) fn of_type(&self, definition: &str) -> Option<&str> {
        if let Some(text) = own::of_type(definition) {
            return Some(text);
        }
        self.0.get(definition)?.get("description")?.as_str()
    }

    /// What a field is for.
    pub(super) fn of_field(&self, definition: &str, field: &str) -> Option<&str> {
        if let Some(text) = own::of_field(definition, field) {
            return Some(text);
        }
        self.0.get(definition)?.get("properties")?.get(field)?.get("description")?.as_str()
    }
}
