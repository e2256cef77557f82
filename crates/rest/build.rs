//! Extracts the descriptions of types and fields from the crate `k8s-openapi`.
//!
//! In: the schemas of the release that is served. Out: `descriptions.json.gz` in the build directory: definition ─▶ its description and those of its
//! fields. Extracted here so that the program contains the text and not the code that builds all schemas.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::{
    admissionregistration, apps, authentication, authorization, autoscaling, batch, certificates, coordination, core,
    discovery, events, flowcontrol, networking, node, policy, rbac, scheduling, storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

/// Adds these types and everything below them to a generator.
macro_rules! describe {
    ($generator:ident: $($type:ty),+ $(,)?) => { $( $generator.subschema_for::<$type>(); )+ };
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let mut generator = SchemaGenerator::default();
    describe!(generator:
        admissionregistration::v1::MutatingWebhookConfiguration,
        admissionregistration::v1::ValidatingAdmissionPolicy,
        admissionregistration::v1::ValidatingAdmissionPolicyBinding,
        admissionregistration::v1::ValidatingWebhookConfiguration,
        apiextensions::v1::CustomResourceDefinition,
        apiregistration::v1::APIService,
        apps::v1::ControllerRevision,
        apps::v1::DaemonSet,
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
        autoscaling::v1::HorizontalPodAutoscaler,
        autoscaling::v1::Scale,
        autoscaling::v2::HorizontalPodAutoscaler,
        batch::v1::CronJob,
        batch::v1::Job,
        certificates::v1::CertificateSigningRequest,
        coordination::v1::Lease,
        core::v1::Binding,
        core::v1::ConfigMap,
        core::v1::Endpoints,
        core::v1::Event,
        core::v1::LimitRange,
        core::v1::Namespace,
        core::v1::Node,
        core::v1::PersistentVolume,
        core::v1::PersistentVolumeClaim,
        core::v1::Pod,
        core::v1::PodTemplate,
        core::v1::ReplicationController,
        core::v1::ResourceQuota,
        core::v1::Secret,
        core::v1::Service,
        core::v1::ServiceAccount,
        discovery::v1::EndpointSlice,
        events::v1::Event,
        flowcontrol::v1::FlowSchema,
        flowcontrol::v1::PriorityLevelConfiguration,
        meta::v1::DeleteOptions,
        meta::v1::ListMeta,
        meta::v1::Patch,
        meta::v1::Status,
        meta::v1::WatchEvent<()>,
        networking::v1::IPAddress,
        networking::v1::Ingress,
        networking::v1::IngressClass,
        networking::v1::NetworkPolicy,
        networking::v1::ServiceCIDR,
        node::v1::RuntimeClass,
        policy::v1::Eviction,
        policy::v1::PodDisruptionBudget,
        rbac::v1::ClusterRole,
        rbac::v1::ClusterRoleBinding,
        rbac::v1::Role,
        rbac::v1::RoleBinding,
        scheduling::v1::PriorityClass,
        storage::v1::CSIDriver,
        storage::v1::CSINode,
        storage::v1::CSIStorageCapacity,
        storage::v1::StorageClass,
        storage::v1::VolumeAttachment,
    );
    let schemas = generator.take_definitions(false);
    let descriptions: Map<String, Value> =
        schemas.iter().map(|(name, schema)| (name.clone(), extract(schema))).collect();
    let out = std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    let file = File::create(Path::new(&out).join("descriptions.json.gz"))?;
    let mut encoder = GzEncoder::new(file, Compression::best());
    serde_json::to_writer(&mut encoder, &descriptions)?;
    encoder.finish()?;
    Ok(())
}

/// `{"description": …, "fields": {FIELD: …}}`
fn extract(schema: &Value) -> Value {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields: Map<String, Value> = fields.map(|(name, field)| (name.clone(), field["description"].clone())).collect();
    json!({"description": schema["description"], "fields": fields})
}
