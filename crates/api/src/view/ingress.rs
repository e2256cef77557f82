//! Ingresses and IngressClasses, as far as the routing of requests depends on them.

use std::cmp::Reverse;

use serde::Deserialize;

use super::lenient::{number, or_default};
use super::{ObjectMeta, StringMap, annotations};

/// `spec.controller` of the IngressClasses that are implemented here.
pub const CONTROLLER: &str = "waypost.dev/ingress-controller";
/// The prefix of the annotations of ingress-nginx.
pub const NGINX: &str = "nginx.ingress.kubernetes.io/";
/// Our own prefix of the same annotations; it wins over that of ingress-nginx.
pub const OWN: &str = "waypost.dev/";

/// The value of an annotation with one of both prefixes, without the spaces around it; none when it is empty.
#[must_use]
pub fn setting<'a>(annotations: &'a StringMap, key: &str) -> Option<&'a str> {
    let get = |prefix: &str| annotations.get(&format!("{prefix}{key}"));
    get(OWN).or_else(|| get(NGINX)).map(str::trim).filter(|text| !text.is_empty())
}

/// `namespace/name` of the Secret with the passwords of an Ingress (`auth-secret`), which must be in its namespace.
///
/// # Errors
/// When there is none, or one of another namespace.
pub fn password_secret(annotations: &StringMap, namespace: &str) -> Result<Box<str>, PasswordSecretError> {
    let secret = setting(annotations, "auth-secret").ok_or(PasswordSecretError::Missing)?;
    match secret.split_once('/') {
        Some((other, _)) if other != namespace => Err(PasswordSecretError::OtherNamespace(secret.into())),
        Some(_) => Ok(secret.into()),
        None => Ok(format!("{namespace}/{secret}").into()),
    }
}

/// Why an Ingress has no Secret with passwords.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PasswordSecretError {
    /// The annotation is missing.
    #[error("the Secret with the passwords is missing")]
    Missing,
    /// The Secret is in another namespace.
    #[error("`{0}` is in another namespace")]
    OtherNamespace(Box<str>),
}

/// An IngressClass.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct IngressClass {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: IngressClassSpec,
}

/// The spec of an IngressClass.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct IngressClassSpec {
    /// The controller of its Ingresses.
    #[serde(deserialize_with = "or_default")]
    pub controller: Box<str>,
}

impl IngressClass {
    /// Whether Ingresses that name no class belong to it.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.metadata.annotation(annotations::DEFAULT_INGRESS_CLASS) == Some("true")
    }

    /// The class of Ingresses that name none: of the default classes the newest, then the first by name, as in the
    /// admission of new Ingresses.
    pub fn default_of<'a>(classes: impl Iterator<Item = &'a Self>) -> Option<&'a Self> {
        let defaults = classes.filter(|class| class.is_default());
        defaults.min_by_key(|class| (Reverse(&class.metadata.creation_timestamp), &class.metadata.name))
    }
}

/// An Ingress.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Ingress {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: IngressSpec,
}

impl Ingress {
    /// The class that it names: the annotation wins over the member.
    #[must_use]
    pub fn class_name(&self) -> Option<&str> {
        self.metadata.annotation(annotations::INGRESS_CLASS).or(self.spec.ingress_class_name.as_deref())
    }

    /// `namespace/name` of the Secrets with its certificates.
    #[must_use]
    pub fn certificates(&self) -> Vec<Box<str>> {
        let named = self.spec.tls.iter().filter(|tls| !tls.secret_name.is_empty());
        named.map(|tls| format!("{}/{}", self.metadata.namespace, tls.secret_name).into()).collect()
    }

    /// `namespace/name` of the Secret with its passwords, if it asks for basic authentication.
    #[must_use]
    pub fn passwords(&self) -> Option<Box<str>> {
        let annotations = &self.metadata.annotations;
        setting(annotations, "auth-type").filter(|kind| *kind == "basic")?;
        password_secret(annotations, &self.metadata.namespace).ok()
    }
}

/// The spec of an Ingress.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressSpec {
    /// Its class.
    pub ingress_class_name: Option<Box<str>>,
    /// The backend of requests that no rule takes.
    pub default_backend: Option<IngressBackend>,
    /// Certificates.
    #[serde(deserialize_with = "or_default")]
    pub tls: Vec<IngressTls>,
    /// Its rules.
    #[serde(deserialize_with = "or_default")]
    pub rules: Vec<IngressRule>,
}

/// The certificate of some hosts.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressTls {
    /// The hosts; all hosts of the rules when empty.
    #[serde(deserialize_with = "or_default")]
    pub hosts: Vec<Box<str>>,
    /// The Secret with the certificate, of the same namespace; the default certificate when empty.
    #[serde(deserialize_with = "or_default")]
    pub secret_name: Box<str>,
}

/// The paths of a host.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct IngressRule {
    /// The host; all hosts when empty.
    #[serde(deserialize_with = "or_default")]
    pub host: Box<str>,
    /// Its paths.
    #[serde(deserialize_with = "or_default")]
    pub http: IngressPaths,
}

/// Paths.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct IngressPaths {
    /// The paths, with their backends.
    #[serde(deserialize_with = "or_default")]
    pub paths: Vec<IngressPath>,
}

/// A path and its backend.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressPath {
    /// The path; `/` when empty.
    #[serde(deserialize_with = "or_default")]
    pub path: Box<str>,
    /// How it is compared.
    #[serde(deserialize_with = "or_default")]
    pub path_type: PathType,
    /// Where requests go.
    #[serde(deserialize_with = "or_default")]
    pub backend: IngressBackend,
}

/// How a path is compared.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum PathType {
    /// The whole path.
    Exact,
    /// A prefix, by path elements.
    Prefix,
    /// As the controller decides.
    #[default]
    ImplementationSpecific,
    /// A type of a later version.
    #[serde(other)]
    Unknown,
}

impl PathType {
    /// Its name in an object.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "Exact",
            Self::Prefix => "Prefix",
            Self::ImplementationSpecific => "ImplementationSpecific",
            Self::Unknown => "Unknown",
        }
    }
}

/// A backend: a Service, or an object of another kind.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct IngressBackend {
    /// A port of a Service of the same namespace.
    pub service: Option<IngressService>,
    /// An object of another kind.
    pub resource: Option<IngressResource>,
}

/// A port of a Service.
#[derive(Deserialize, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[serde(default)]
pub struct IngressService {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// The port.
    #[serde(deserialize_with = "or_default")]
    pub port: IngressPort,
}

/// A port of a Service, by name or by number.
#[derive(Deserialize, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[serde(default)]
pub struct IngressPort {
    /// Its name; empty for a port by number.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its number; 0 for a port by name.
    #[serde(deserialize_with = "number")]
    pub number: u16,
}

/// An object of another kind.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressResource {
    /// Its group; absent is the core group.
    pub api_group: Option<Box<str>>,
    /// Its kind.
    #[serde(deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_ingress_is_read() {
        let ingress: Ingress = serde_json::from_value(json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "shop", "namespace": "web"},
            "spec": {
                "ingressClassName": "waypost",
                "defaultBackend": {"resource": {"apiGroup": "x.io", "kind": "Bucket", "name": "files"}},
                "tls": [{"hosts": ["a.example"], "secretName": "a"}, {"hosts": null}],
                "rules": [{"host": "a.example", "http": {"paths": [
                    {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}},
                    {"path": "/x", "pathType": "Later", "backend": {"service": {"name": "s", "port": {"name": "web"}}}},
                ]}}, {"host": null, "http": null}],
            }
        }))
        .unwrap();
        let spec = ingress.spec;
        assert_eq!(spec.ingress_class_name.as_deref(), Some("waypost"));
        assert_eq!(&*spec.default_backend.unwrap().resource.unwrap().kind, "Bucket");
        assert_eq!((spec.tls.len(), &*spec.tls[0].secret_name, spec.tls[1].hosts.len()), (2, "a", 0));
        let paths = &spec.rules[0].http.paths;
        assert_eq!((paths[0].path_type, paths[1].path_type), (PathType::Prefix, PathType::Unknown));
        let port = |at: usize| paths[at].backend.service.clone().unwrap().port;
        assert_eq!((port(0).number, &*port(0).name), (80, ""));
        assert_eq!((port(1).number, &*port(1).name), (0, "web"));
        assert_eq!((&*spec.rules[1].host, spec.rules[1].http.paths.len()), ("", 0));
    }

    #[test]
    fn a_class_is_read() {
        let class: IngressClass = serde_json::from_value(json!({
            "metadata": {"name": "waypost", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
            "spec": {"controller": CONTROLLER, "parameters": null}
        }))
        .unwrap();
        assert!(class.is_default() && &*class.spec.controller == CONTROLLER);
        assert!(!IngressClass::default().is_default());
    }
}
