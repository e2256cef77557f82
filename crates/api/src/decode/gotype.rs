//! What Go calls the things that a message about a wrong type names.
//!
//! The tables know shapes, not Go types; clients of kube-apiserver read `of type v1.ServiceType` and
//! `Go struct field ServicePort.spec.ports.port`. These functions find those names when an error is reported, never before.

use super::walk::Step;
use crate::schema::{Field, Shape, TypeId};

/// Fields whose Go type is not the one that their shape suggests, sorted.
const NAMED: &[(&str, &str)] = &[
    ("admissionregistration.MatchResources.matchPolicy", "v1.MatchPolicyType"),
    ("admissionregistration.MutatingWebhook.failurePolicy", "v1.FailurePolicyType"),
    ("admissionregistration.MutatingWebhook.matchPolicy", "v1.MatchPolicyType"),
    ("admissionregistration.MutatingWebhook.reinvocationPolicy", "v1.ReinvocationPolicyType"),
    ("admissionregistration.MutatingWebhook.sideEffects", "v1.SideEffectClass"),
    ("admissionregistration.ParamRef.parameterNotFoundAction", "v1.ParameterNotFoundActionType"),
    ("admissionregistration.Rule.scope", "v1.ScopeType"),
    ("admissionregistration.RuleWithOperations.operations", "[]v1.OperationType"),
    ("admissionregistration.ValidatingAdmissionPolicyBindingSpec.validationActions", "[]v1.ValidationAction"),
    ("admissionregistration.ValidatingAdmissionPolicySpec.failurePolicy", "v1.FailurePolicyType"),
    ("admissionregistration.ValidatingWebhook.failurePolicy", "v1.FailurePolicyType"),
    ("admissionregistration.ValidatingWebhook.matchPolicy", "v1.MatchPolicyType"),
    ("admissionregistration.ValidatingWebhook.sideEffects", "v1.SideEffectClass"),
    ("admissionregistration.Validation.reason", "v1.StatusReason"),
    ("apiextensions.CustomResourceConversion.strategy", "v1.ConversionStrategyType"),
    ("apiextensions.CustomResourceDefinitionCondition.status", "v1.ConditionStatus"),
    ("apiextensions.CustomResourceDefinitionCondition.type", "v1.CustomResourceDefinitionConditionType"),
    ("apiextensions.CustomResourceDefinitionSpec.scope", "v1.ResourceScope"),
    ("apiextensions.JSONSchemaProps.$schema", "v1.JSONSchemaURL"),
    ("apiextensions.JSONSchemaProps.definitions", "v1.JSONSchemaDefinitions"),
    ("apiextensions.JSONSchemaProps.dependencies", "v1.JSONSchemaDependencies"),
    ("apiextensions.JSONSchemaProps.x-kubernetes-validations", "v1.ValidationRules"),
    ("apiextensions.ValidationRule.reason", "v1.FieldValueErrorReason"),
    ("apiregistration.APIServiceCondition.status", "v1.ConditionStatus"),
    ("apiregistration.APIServiceCondition.type", "v1.APIServiceConditionType"),
    ("apps.DaemonSetCondition.status", "v1.ConditionStatus"),
    ("apps.DaemonSetCondition.type", "v1.DaemonSetConditionType"),
    ("apps.DaemonSetUpdateStrategy.type", "v1.DaemonSetUpdateStrategyType"),
    ("apps.DeploymentCondition.status", "v1.ConditionStatus"),
    ("apps.DeploymentCondition.type", "v1.DeploymentConditionType"),
    ("apps.DeploymentStrategy.type", "v1.DeploymentStrategyType"),
    ("apps.ReplicaSetCondition.status", "v1.ConditionStatus"),
    ("apps.ReplicaSetCondition.type", "v1.ReplicaSetConditionType"),
    ("apps.StatefulSetCondition.status", "v1.ConditionStatus"),
    ("apps.StatefulSetCondition.type", "v1.StatefulSetConditionType"),
    ("apps.StatefulSetSpec.podManagementPolicy", "v1.PodManagementPolicyType"),
    ("apps.StatefulSetUpdateStrategy.type", "v1.StatefulSetUpdateStrategyType"),
    ("authentication.UserInfo.extra", "map[string]v1.ExtraValue"),
    ("authorization.SubjectAccessReviewSpec.extra", "map[string]v1.ExtraValue"),
    ("autoscaling_v2.ContainerResourceMetricSource.name", "v1.ResourceName"),
    ("autoscaling_v2.ContainerResourceMetricStatus.name", "v1.ResourceName"),
    ("autoscaling_v2.HPAScalingPolicy.type", "v2.HPAScalingPolicyType"),
    ("autoscaling_v2.HPAScalingRules.selectPolicy", "v2.ScalingPolicySelect"),
    ("autoscaling_v2.HorizontalPodAutoscalerCondition.status", "v1.ConditionStatus"),
    ("autoscaling_v2.HorizontalPodAutoscalerCondition.type", "v2.HorizontalPodAutoscalerConditionType"),
    ("autoscaling_v2.MetricSpec.type", "v2.MetricSourceType"),
    ("autoscaling_v2.MetricStatus.type", "v2.MetricSourceType"),
    ("autoscaling_v2.MetricTarget.type", "v2.MetricTargetType"),
    ("autoscaling_v2.ResourceMetricSource.name", "v1.ResourceName"),
    ("autoscaling_v2.ResourceMetricStatus.name", "v1.ResourceName"),
    ("batch.CronJobSpec.concurrencyPolicy", "v1.ConcurrencyPolicy"),
    ("batch.JobCondition.status", "v1.ConditionStatus"),
    ("batch.JobCondition.type", "v1.JobConditionType"),
    ("batch.JobSpec.completionMode", "v1.CompletionMode"),
    ("batch.JobSpec.podReplacementPolicy", "v1.PodReplacementPolicy"),
    ("batch.PodFailurePolicyOnExitCodesRequirement.operator", "v1.PodFailurePolicyOnExitCodesOperator"),
    ("batch.PodFailurePolicyOnPodConditionsPattern.status", "v1.ConditionStatus"),
    ("batch.PodFailurePolicyOnPodConditionsPattern.type", "v1.PodConditionType"),
    ("batch.PodFailurePolicyRule.action", "v1.PodFailurePolicyAction"),
    ("batch.UncountedTerminatedPods.failed", "[]types.UID"),
    ("batch.UncountedTerminatedPods.succeeded", "[]types.UID"),
    ("certificates.CertificateSigningRequestCondition.status", "v1.ConditionStatus"),
    ("certificates.CertificateSigningRequestCondition.type", "v1.RequestConditionType"),
    ("certificates.CertificateSigningRequestSpec.extra", "map[string]v1.ExtraValue"),
    ("certificates.CertificateSigningRequestSpec.usages", "[]v1.KeyUsage"),
    ("coordination.LeaseSpec.strategy", "v1.CoordinatedLeaseStrategy"),
    ("core.AppArmorProfile.type", "v1.AppArmorProfileType"),
    ("core.AttachedVolume.name", "v1.UniqueVolumeName"),
    ("core.AzureDiskVolumeSource.cachingMode", "v1.AzureDataDiskCachingMode"),
    ("core.AzureDiskVolumeSource.kind", "v1.AzureDataDiskKind"),
    ("core.Capabilities.add", "[]v1.Capability"),
    ("core.Capabilities.drop", "[]v1.Capability"),
    ("core.ConfigMapNodeConfigSource.uid", "types.UID"),
    ("core.Container.imagePullPolicy", "v1.PullPolicy"),
    ("core.Container.restartPolicy", "v1.ContainerRestartPolicy"),
    ("core.Container.terminationMessagePolicy", "v1.TerminationMessagePolicy"),
    ("core.ContainerPort.protocol", "v1.Protocol"),
    ("core.ContainerResizePolicy.resourceName", "v1.ResourceName"),
    ("core.ContainerResizePolicy.restartPolicy", "v1.ResourceResizeRestartPolicy"),
    ("core.ContainerRestartRule.action", "v1.ContainerRestartRuleAction"),
    ("core.ContainerRestartRuleOnExitCodes.operator", "v1.ContainerRestartRuleOnExitCodesOperator"),
    ("core.ContainerStatus.allocatedResources", "v1.ResourceList"),
    ("core.ContainerStatus.stopSignal", "v1.Signal"),
    ("core.EmptyDirVolumeSource.medium", "v1.StorageMedium"),
    ("core.EndpointPort.protocol", "v1.Protocol"),
    ("core.EphemeralContainerCommon.imagePullPolicy", "v1.PullPolicy"),
    ("core.EphemeralContainerCommon.restartPolicy", "v1.ContainerRestartPolicy"),
    ("core.EphemeralContainerCommon.terminationMessagePolicy", "v1.TerminationMessagePolicy"),
    ("core.GRPCAction.mode", "v1.GRPCProbeMode"),
    ("core.HTTPGetAction.protocol", "v1.HTTPProtocol"),
    ("core.HTTPGetAction.scheme", "v1.URIScheme"),
    ("core.HostPathVolumeSource.type", "v1.HostPathType"),
    ("core.ImageVolumeSource.pullPolicy", "v1.PullPolicy"),
    ("core.Lifecycle.stopSignal", "v1.Signal"),
    ("core.LimitRangeItem.default", "v1.ResourceList"),
    ("core.LimitRangeItem.defaultRequest", "v1.ResourceList"),
    ("core.LimitRangeItem.max", "v1.ResourceList"),
    ("core.LimitRangeItem.maxLimitRequestRatio", "v1.ResourceList"),
    ("core.LimitRangeItem.min", "v1.ResourceList"),
    ("core.LimitRangeItem.type", "v1.LimitType"),
    ("core.LoadBalancerIngress.ipMode", "v1.LoadBalancerIPMode"),
    ("core.ModifyVolumeStatus.status", "v1.PersistentVolumeClaimModifyVolumeStatus"),
    ("core.NamespaceCondition.status", "v1.ConditionStatus"),
    ("core.NamespaceCondition.type", "v1.NamespaceConditionType"),
    ("core.NamespaceSpec.finalizers", "[]v1.FinalizerName"),
    ("core.NamespaceStatus.phase", "v1.NamespacePhase"),
    ("core.NodeAddress.type", "v1.NodeAddressType"),
    ("core.NodeAllocatableMappedResources.name", "v1.ResourceName"),
    ("core.NodeAllocatableOverheadResources.name", "v1.ResourceName"),
    ("core.NodeCondition.status", "v1.ConditionStatus"),
    ("core.NodeCondition.type", "v1.NodeConditionType"),
    ("core.NodeSelectorRequirement.operator", "v1.NodeSelectorOperator"),
    ("core.NodeStatus.allocatable", "v1.ResourceList"),
    ("core.NodeStatus.capacity", "v1.ResourceList"),
    ("core.NodeStatus.phase", "v1.NodePhase"),
    ("core.NodeStatus.volumesInUse", "[]v1.UniqueVolumeName"),
    ("core.ObjectReference.uid", "types.UID"),
    ("core.PersistentVolumeClaimCondition.status", "v1.ConditionStatus"),
    ("core.PersistentVolumeClaimCondition.type", "v1.PersistentVolumeClaimConditionType"),
    ("core.PersistentVolumeClaimSpec.accessModes", "[]v1.PersistentVolumeAccessMode"),
    ("core.PersistentVolumeClaimSpec.volumeMode", "v1.PersistentVolumeMode"),
    ("core.PersistentVolumeClaimStatus.accessModes", "[]v1.PersistentVolumeAccessMode"),
    ("core.PersistentVolumeClaimStatus.allocatedResourceStatuses", "map[v1.ResourceName]v1.ClaimResourceStatus"),
    ("core.PersistentVolumeClaimStatus.allocatedResources", "v1.ResourceList"),
    ("core.PersistentVolumeClaimStatus.capacity", "v1.ResourceList"),
    ("core.PersistentVolumeClaimStatus.phase", "v1.PersistentVolumeClaimPhase"),
    ("core.PersistentVolumeSpec.accessModes", "[]v1.PersistentVolumeAccessMode"),
    ("core.PersistentVolumeSpec.capacity", "v1.ResourceList"),
    ("core.PersistentVolumeSpec.persistentVolumeReclaimPolicy", "v1.PersistentVolumeReclaimPolicy"),
    ("core.PersistentVolumeSpec.volumeMode", "v1.PersistentVolumeMode"),
    ("core.PersistentVolumeStatus.phase", "v1.PersistentVolumePhase"),
    ("core.PodCondition.status", "v1.ConditionStatus"),
    ("core.PodCondition.type", "v1.PodConditionType"),
    ("core.PodOS.name", "v1.OSName"),
    ("core.PodReadinessGate.conditionType", "v1.PodConditionType"),
    ("core.PodSecurityContext.fsGroupChangePolicy", "v1.PodFSGroupChangePolicy"),
    ("core.PodSecurityContext.seLinuxChangePolicy", "v1.PodSELinuxChangePolicy"),
    ("core.PodSecurityContext.supplementalGroupsPolicy", "v1.SupplementalGroupsPolicy"),
    ("core.PodSpec.dnsPolicy", "v1.DNSPolicy"),
    ("core.PodSpec.overhead", "v1.ResourceList"),
    ("core.PodSpec.preemptionPolicy", "v1.PreemptionPolicy"),
    ("core.PodSpec.restartPolicy", "v1.RestartPolicy"),
    ("core.PodStatus.allocatedResources", "v1.ResourceList"),
    ("core.PodStatus.phase", "v1.PodPhase"),
    ("core.PodStatus.qosClass", "v1.PodQOSClass"),
    ("core.PodStatus.resize", "v1.PodResizeStatus"),
    ("core.PortStatus.protocol", "v1.Protocol"),
    ("core.ReplicationControllerCondition.status", "v1.ConditionStatus"),
    ("core.ReplicationControllerCondition.type", "v1.ReplicationControllerConditionType"),
    ("core.ResourceHealth.health", "v1.ResourceHealthStatus"),
    ("core.ResourceHealth.resourceID", "v1.ResourceID"),
    ("core.ResourceQuotaSpec.hard", "v1.ResourceList"),
    ("core.ResourceQuotaSpec.scopes", "[]v1.ResourceQuotaScope"),
    ("core.ResourceQuotaStatus.hard", "v1.ResourceList"),
    ("core.ResourceQuotaStatus.used", "v1.ResourceList"),
    ("core.ResourceRequirements.limits", "v1.ResourceList"),
    ("core.ResourceRequirements.requests", "v1.ResourceList"),
    ("core.ResourceStatus.name", "v1.ResourceName"),
    ("core.ScopedResourceSelectorRequirement.operator", "v1.ScopeSelectorOperator"),
    ("core.ScopedResourceSelectorRequirement.scopeName", "v1.ResourceQuotaScope"),
    ("core.SeccompProfile.type", "v1.SeccompProfileType"),
    ("core.Secret.type", "v1.SecretType"),
    ("core.SecurityContext.procMount", "v1.ProcMountType"),
    ("core.ServicePort.protocol", "v1.Protocol"),
    ("core.ServiceSpec.externalTrafficPolicy", "v1.ServiceExternalTrafficPolicy"),
    ("core.ServiceSpec.internalTrafficPolicy", "v1.ServiceInternalTrafficPolicy"),
    ("core.ServiceSpec.ipFamilies", "[]v1.IPFamily"),
    ("core.ServiceSpec.ipFamilyPolicy", "v1.IPFamilyPolicy"),
    ("core.ServiceSpec.sessionAffinity", "v1.ServiceAffinity"),
    ("core.ServiceSpec.type", "v1.ServiceType"),
    ("core.Taint.effect", "v1.TaintEffect"),
    ("core.Toleration.effect", "v1.TaintEffect"),
    ("core.Toleration.operator", "v1.TolerationOperator"),
    ("core.TopologySpreadConstraint.nodeAffinityPolicy", "v1.NodeInclusionPolicy"),
    ("core.TopologySpreadConstraint.nodeTaintsPolicy", "v1.NodeInclusionPolicy"),
    ("core.TopologySpreadConstraint.whenUnsatisfiable", "v1.UnsatisfiableConstraintAction"),
    ("core.VolumeHealthCondition.status", "v1.VolumeHealthStatusType"),
    ("core.VolumeMount.mountPropagation", "v1.MountPropagationMode"),
    ("core.VolumeMount.recursiveReadOnly", "v1.RecursiveReadOnlyMode"),
    ("core.VolumeMountStatus.recursiveReadOnly", "v1.RecursiveReadOnlyMode"),
    ("core.VolumeResourceRequirements.limits", "v1.ResourceList"),
    ("core.VolumeResourceRequirements.requests", "v1.ResourceList"),
    ("discovery.EndpointPort.protocol", "v1.Protocol"),
    ("discovery.EndpointSlice.addressType", "v1.AddressType"),
    ("flowcontrol.FlowDistinguisherMethod.type", "v1.FlowDistinguisherMethodType"),
    ("flowcontrol.FlowSchemaCondition.status", "v1.ConditionStatus"),
    ("flowcontrol.FlowSchemaCondition.type", "v1.FlowSchemaConditionType"),
    ("flowcontrol.LimitResponse.type", "v1.LimitResponseType"),
    ("flowcontrol.PriorityLevelConfigurationCondition.status", "v1.ConditionStatus"),
    ("flowcontrol.PriorityLevelConfigurationCondition.type", "v1.PriorityLevelConfigurationConditionType"),
    ("flowcontrol.PriorityLevelConfigurationSpec.type", "v1.PriorityLevelEnablement"),
    ("flowcontrol.Subject.kind", "v1.SubjectKind"),
    ("meta.Condition.status", "v1.ConditionStatus"),
    ("meta.DeleteOptions.propagationPolicy", "v1.DeletionPropagation"),
    ("meta.FieldSelectorRequirement.operator", "v1.FieldSelectorOperator"),
    ("meta.LabelSelectorRequirement.operator", "v1.LabelSelectorOperator"),
    ("meta.ManagedFieldsEntry.operation", "v1.ManagedFieldsOperationType"),
    ("meta.ObjectMeta.uid", "types.UID"),
    ("meta.OwnerReference.uid", "types.UID"),
    ("meta.Preconditions.uid", "types.UID"),
    ("meta.Status.reason", "v1.StatusReason"),
    ("meta.StatusCause.reason", "v1.CauseType"),
    ("meta.StatusDetails.uid", "types.UID"),
    ("networking.HTTPIngressPath.pathType", "v1.PathType"),
    ("networking.IngressPortStatus.protocol", "v1.Protocol"),
    ("networking.NetworkPolicyPort.protocol", "v1.Protocol"),
    ("networking.NetworkPolicySpec.policyTypes", "[]v1.PolicyType"),
    ("node.Overhead.podFixed", "v1.ResourceList"),
    ("policy.PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy", "v1.UnhealthyPodEvictionPolicyType"),
    ("scheduling.PriorityClass.preemptionPolicy", "v1.PreemptionPolicy"),
    ("storage.CSIDriverSpec.fsGroupPolicy", "v1.FSGroupPolicy"),
    ("storage.CSIDriverSpec.volumeLifecycleModes", "[]v1.VolumeLifecycleMode"),
    ("storage.StorageClass.reclaimPolicy", "v1.PersistentVolumeReclaimPolicy"),
    ("storage.StorageClass.volumeBindingMode", "v1.VolumeBindingMode"),
];

/// `v1.Service`: a table is of version 1, unless its name has another.
pub(super) fn message(ty: TypeId) -> String {
    let table = ty.get().name.split('.').next().unwrap_or_default();
    format!("{}.{}", table.split_once('_').map_or("v1", |(_, version)| version), short(ty))
}

fn short(ty: TypeId) -> &'static str {
    let name = ty.get().name;
    name.rsplit_once('.').map_or(name, |(_, short)| short)
}

/// The Go type of the value at the end of the trail.
pub(super) fn of(trail: &[Step], shape: &Shape) -> String {
    let steps = trail.iter().rev().take_while(|step| !matches!(step, Step::Field(..))).count();
    let named = trail.len().checked_sub(steps + 1).and_then(|at| match &trail[at] {
        Step::Field(ty, field) => lookup(*ty, field),
        _ => None,
    });
    let Some(mut name) = named else { return of_shape(shape) };
    for _ in 0..steps {
        match name.strip_prefix("[]").or_else(|| name.strip_prefix("map[string]")) {
            Some(inner) => name = inner,
            None => return of_shape(shape),
        }
    }
    name.to_owned()
}

fn lookup(ty: TypeId, field: &'static Field) -> Option<&'static str> {
    let owner = owners(ty, field).last().copied().unwrap_or(ty);
    let key = format!("{}.{}", owner.get().name, field.json);
    NAMED.binary_search_by(|(name, _)| (*name).cmp(&key)).ok().map(|at| NAMED[at].1)
}

fn of_shape(shape: &Shape) -> String {
    match shape {
        Shape::String => "string".to_owned(),
        Shape::Bool => "bool".to_owned(),
        Shape::Int32 => "int32".to_owned(),
        Shape::Int64 => "int64".to_owned(),
        Shape::Float64 => "float64".to_owned(),
        Shape::Bytes => "[]uint8".to_owned(),
        Shape::Time => "v1.Time".to_owned(),
        Shape::MicroTime => "v1.MicroTime".to_owned(),
        Shape::Duration => "v1.Duration".to_owned(),
        Shape::Quantity => "resource.Quantity".to_owned(),
        Shape::IntOrString => "intstr.IntOrString".to_owned(),
        Shape::Raw => "runtime.RawExtension".to_owned(),
        Shape::FieldsV1 => "v1.FieldsV1".to_owned(),
        Shape::Json => "v1.JSON".to_owned(),
        Shape::Object(ty) => message(*ty),
        Shape::Union(ty, other) => format!("{}{}", message(*ty), alternative(other)),
        Shape::List(inner) => format!("[]{}", of_shape(inner)),
        Shape::Map(inner) => format!("map[string]{}", of_shape(inner)),
    }
}

/// How the Go type of a union ends, by what it may be besides a message.
pub(crate) fn alternative(other: &Shape) -> &'static str {
    match other {
        Shape::Bool => "OrBool",
        Shape::List(item) if **item == Shape::String => "OrStringArray",
        _ => "OrArray",
    }
}

/// `ServicePort.spec.ports.port`: the struct, and the fields from the document root. Indexes and keys are omitted; inlined
/// messages are included.
pub(super) fn field_path(trail: &[Step]) -> Option<String> {
    let mut out = String::new();
    let mut last = None;
    for step in trail {
        let Step::Field(ty, field) = step else { continue };
        last = Some(*ty);
        for owner in owners(*ty, field) {
            out.push('.');
            out.push_str(short(owner));
        }
        out.push('.');
        out.push_str(field.json);
    }
    last.map(|ty| format!("{}{out}", short(ty)))
}

/// The inlined messages between a type and one of its fields.
fn owners(ty: TypeId, field: &'static Field) -> Vec<TypeId> {
    for own in &ty.get().fields {
        if std::ptr::eq(own, field) {
            return Vec::new();
        }
        if let (Shape::Object(inner), true) = (&own.shape, own.inline)
            && inner.get().field(field.json).is_some_and(|found| std::ptr::eq(found, field))
        {
            let mut out = vec![*inner];
            out.extend(owners(*inner, field));
            return out;
        }
    }
    Vec::new()
}

/// `spec.ports[0]`: where strict decoding found something.
pub(super) fn strict_path(trail: &[Step]) -> String {
    let mut out = String::new();
    for step in trail {
        match step {
            Step::Index(index) => out.push_str(&format!("[{index}]")),
            Step::Field(_, Field { json: name, .. }) => push_name(&mut out, name),
            Step::Key(name) => push_name(&mut out, name),
        }
    }
    out
}

fn push_name(out: &mut String, name: &str) {
    if !out.is_empty() {
        out.push('.');
    }
    out.push_str(name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn the_named_fields_are_sorted_and_exist() {
        assert!(NAMED.is_sorted());
        for (path, _) in NAMED {
            let (ty, field) = path.rsplit_once('.').expect("a type and a field");
            assert!(schema::named(ty).get().field(field).is_some(), "{path}");
        }
    }
}
