//! How a Service of type LoadBalancer names its certificate, and how a Secret declares that it is one.
//!
//! In: a Service and a Secret. Out: whether the Secret is the certificate of the Service, and allows its use. The gateway serves it, the
//! server lets nodes read it and no other, and a controller records which Secret an ARN resolves to: a caller that may not list all
//! Secrets of a namespace reads it from the annotation [`FOUND`]. It is a hint and grants nothing: the Secret must still claim the ARN.

use serde_json::Value;

use crate::value::ValueExt as _;
use crate::view::annotations::SSL_CERT;

/// The annotation of a Service that names the Secret of its namespace that claims the ARN.
pub const FOUND: &str = "waypost.dev/certificate-secret";
/// The annotation, or label, by which a Secret declares that it is the certificate of this name.
pub const CLAIM: &str = "waypost.dev/certificate-arn";
/// The annotation by which a Secret allows its use: names of namespaces, or `*`.
pub const ALLOWED: &str = "waypost.dev/allowed-namespaces";
/// The type of Secrets that hold certificates.
pub const TYPE: &str = "kubernetes.io/tls";
/// The prefix of a name that refers to a Secret directly.
pub const DIRECT: &str = "secret://";

fn note<'a>(object: &'a Value, map: &str, key: &str) -> &'a str {
    object.at(map).get(key).and_then(Value::as_str).unwrap_or_default().trim()
}

/// The ARN that a load balancer requests; none when it requests no certificate, or refers to a Secret directly.
#[must_use]
pub fn arn(service: &Value) -> Option<&str> {
    let asked = note(service, "metadata.annotations", SSL_CERT);
    let is_arn = service.text("spec.type") == "LoadBalancer" && !asked.is_empty() && !asked.starts_with(DIRECT);
    is_arn.then_some(asked)
}

/// Whether a Secret declares that it is the certificate of this name.
#[must_use]
pub fn claims(secret: &Value, arn: &str) -> bool {
    let says = |map: &str| note(secret, map, CLAIM) == arn;
    secret.text("type") == TYPE && (says("metadata.annotations") || says("metadata.labels"))
}

/// Whether a load balancer requests this certificate, and the Secret allows it.
#[must_use]
pub fn may_serve(service: &Value, secret: &Value) -> bool {
    let (from, at) = (service.text("metadata.namespace"), secret.text("metadata.namespace"));
    if let Some(arn) = arn(service) {
        return from == at && claims(secret, arn);
    }
    let asked = note(service, "metadata.annotations", SSL_CERT);
    let Some(path) = asked.strip_prefix(DIRECT) else { return false };
    let (namespace, name) = path.split_once('/').unwrap_or((from, path));
    let is_allowed = || {
        let list = note(secret, "metadata.annotations", ALLOWED);
        list.split(',').map(str::trim).any(|word| word == "*" || word == from)
    };
    secret.text("type") == TYPE
        && service.text("spec.type") == "LoadBalancer"
        && (namespace, name) == (at, secret.text("metadata.name"))
        && (from == at || is_allowed())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(namespace: &str, kind: &str, certificate: &str) -> Value {
        let metadata = json!({"namespace": namespace, "annotations": {SSL_CERT: certificate}});
        json!({"metadata": metadata, "spec": {"type": kind}})
    }

    fn secret(kind: &str, allowed: &str, claim: &str) -> Value {
        let annotations = json!({ALLOWED: allowed, CLAIM: claim});
        json!({"metadata": {"namespace": "shop", "name": "web", "annotations": annotations}, "type": kind})
    }

    #[test]
    fn a_secret_serves_whoever_names_it_and_may() {
        let balancer = service("shop", "LoadBalancer", "secret://shop/web");
        assert!(may_serve(&balancer, &secret(TYPE, "", "")));
        assert!(may_serve(&service("shop", "LoadBalancer", "secret://web"), &secret(TYPE, "", "")));
        assert!(!may_serve(&balancer, &secret("Opaque", "", "")), "no other Secret");
        assert!(!may_serve(&service("shop", "ClusterIP", "secret://shop/web"), &secret(TYPE, "", "")));
        assert!(!may_serve(&service("shop", "LoadBalancer", "secret://shop/wab"), &secret(TYPE, "", "")));
        let foreign = service("blog", "LoadBalancer", "secret://shop/web");
        assert!(!may_serve(&foreign, &secret(TYPE, "news", "")), "the Secret does not let it");
        assert!(may_serve(&foreign, &secret(TYPE, "news, blog", "")));
        assert!(may_serve(&foreign, &secret(TYPE, "*", "")));
    }

    #[test]
    fn a_secret_serves_whoever_asks_for_the_arn_that_it_claims_in_its_namespace() {
        let balancer = service("shop", "LoadBalancer", " arn:x ");
        assert!(may_serve(&balancer, &secret(TYPE, "", "arn:x")));
        assert!(!may_serve(&balancer, &secret(TYPE, "", "arn:y")));
        assert!(!may_serve(&balancer, &secret("Opaque", "", "arn:x")));
        assert!(!may_serve(&service("shop", "ClusterIP", "arn:x"), &secret(TYPE, "", "arn:x")));
        assert!(
            !may_serve(&service("blog", "LoadBalancer", "arn:x"), &secret(TYPE, "*", "arn:x")),
            "not from elsewhere"
        );
        assert!(!may_serve(&service("shop", "LoadBalancer", ""), &secret(TYPE, "", "")));
    }
}
