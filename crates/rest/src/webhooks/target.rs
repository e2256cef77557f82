//! The URL of a webhook and the CAs to verify it with.

use api::dynamic_admission::url;
use api::value::ValueExt as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

/// The target of a webhook.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Target {
    /// The backend.
    pub(crate) place: Backend,
    /// The path of the URL; empty, or with a slash in front.
    pub(crate) path: String,
    /// PEM of the CAs; empty: those of the system.
    pub(crate) authorities: Vec<u8>,
}

/// The backend of a webhook.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Backend {
    /// A port of a Service of this cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// A host, by name or address.
    Host {
        /// The name or address, without brackets.
        name: String,
        /// The port.
        port: u16,
        /// Host and port as the URL has them.
        shown: String,
    },
}

impl Target {
    /// Parses a validated `clientConfig`.
    pub(crate) fn read(config: &Value) -> Self {
        let authorities = BASE64_STANDARD.decode(config.text("caBundle")).unwrap_or_default();
        let service = config.at("service");
        if service.is_object() {
            let place = Backend::Service {
                namespace: service.text("namespace").to_owned(),
                name: service.text("name").to_owned(),
                port: u16::try_from(service.int("port")).unwrap_or_default(),
            };
            return Self { place, path: slashed(service.text("path")), authorities };
        }
        let url = url::parse(config.text("url")).unwrap_or_default();
        let (name, port) = (url.hostname().to_owned(), url.port().unwrap_or(443));
        Self { place: Backend::Host { name, port, shown: url.host.to_owned() }, path: slashed(url.path), authorities }
    }

    /// The host of the URL: `web.default.svc:443`, or that of the URL.
    pub(crate) fn host(&self) -> String {
        match &self.place {
            Backend::Service { namespace, name, port } => format!("{name}.{namespace}.svc:{port}"),
            Backend::Host { shown, .. } => shown.clone(),
        }
    }

    /// The name in the certificate.
    pub(crate) fn server_name(&self) -> String {
        match &self.place {
            Backend::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
            Backend::Host { name, .. } => name.clone(),
        }
    }
}

fn slashed(path: &str) -> String {
    if path.is_empty() || path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_has_a_name_in_the_cluster() {
        let service = json!({"name": "web", "namespace": "n", "port": 8443, "path": "/check"});
        let target = Target::read(&json!({"service": service, "caBundle": "eHg="}));
        assert_eq!((target.host().as_str(), target.server_name().as_str()), ("web.n.svc:8443", "web.n.svc"));
        assert_eq!((target.path.as_str(), &target.authorities[..]), ("/check", &b"xx"[..]));
    }

    #[test]
    fn a_url_is_parsed() {
        let target = Target::read(&json!({"url": "https://[::1]:8443/a"}));
        assert_eq!((target.host().as_str(), target.server_name().as_str()), ("[::1]:8443", "::1"));
        assert!(matches!(target.place, Backend::Host { port: 8443, .. }));
        let plain = Target::read(&json!({"url": "https://hooks.example.com"}));
        assert!(matches!(plain.place, Backend::Host { port: 443, .. }));
        assert_eq!((plain.host().as_str(), plain.path.as_str()), ("hooks.example.com", ""));
    }
}
