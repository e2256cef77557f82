//! GatewayClasses: which of them are ours, and the features that are offered.

use api::view::gateway_api::GatewayClass;

use crate::cluster::{ClassState, Verdict};

/// The versions of the definitions that are supported: major and minor number.
const VERSIONS: [&str; 2] = ["v1.6", "v1.7"];

/// The features of the Gateway API that are offered, in the order of `status.supportedFeatures`. Features of meshes are
/// not among them, and neither are `ClusterTrustBundle`, `GatewayAddressRoutability`, `GatewayAddressRoutabilityCluster`
/// and `GatewayListenerFilters`.
pub const FEATURES: [&str; 50] = [
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "GRPCRouteRequestHeaderModifier",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayInfrastructure",
    "GatewayPort8080",
    "GatewayRouteHostnameIntersectionPrecedence",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteBackendURLRewrite",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetryCodes",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// Judges a GatewayClass; none unless it is ours.
pub(crate) fn judge(class: &GatewayClass, is_used: bool, bundle_version: &str) -> Option<ClassState> {
    if !class.is_ours() {
        return None;
    }
    let accepted = match &class.spec.parameters_ref {
        None => Verdict::good("Accepted", "Gateways of the class are implemented by this controller"),
        Some(parameters) => {
            let message = format!(
                "spec.parametersRef: {}/{} is not a kind of parameters; remove the reference",
                parameters.group, parameters.kind
            );
            Verdict::bad("InvalidParameters", message)
        }
    };
    let supported_version = if is_supported(bundle_version) {
        Verdict::good("SupportedVersion", format!("Version {bundle_version} of the Gateway API is supported"))
    } else {
        let message = format!(
            "Version {bundle_version} of the Gateway API is not supported; install {}",
            crate::cluster::BUNDLE_VERSION
        );
        Verdict::bad("UnsupportedVersion", message)
    };
    Some(ClassState { generation: class.metadata.generation, accepted, supported_version, is_used })
}

fn is_supported(version: &str) -> bool {
    VERSIONS.iter().any(|supported| version.strip_prefix(supported).is_some_and(|rest| rest.starts_with('.')))
}
