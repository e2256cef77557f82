//! Settings of Ingresses. They must be the same for the server and all nodes.

use std::sync::Arc;

use anyhow::ensure;
use clap::Args;
use rest::authz::ServedIngresses;

/// Settings of Ingresses.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct IngressArguments {
    /// Also serve the Ingresses of another controller, by the `spec.controller` of their IngressClasses, such as
    /// k8s.io/ingress-nginx; may be repeated
    #[arg(
        long,
        env = "WAYPOST_INGRESS_CONTROLLER",
        value_delimiter = ',',
        value_parser = controller,
        value_name = "NAME"
    )]
    pub(crate) ingress_controller: Vec<Box<str>>,
    /// The certificate for hosts of Ingresses that have none: a Secret of type kubernetes.io/tls
    #[arg(
        long,
        env = "WAYPOST_INGRESS_DEFAULT_CERTIFICATE",
        value_parser = secret,
        value_name = "NAMESPACE/NAME"
    )]
    pub(crate) ingress_default_certificate: Option<Arc<str>>,
}

impl IngressArguments {
    /// The settings of whoever reads Ingresses: the gateway of each node, and the controllers.
    pub(crate) fn options(&self) -> routing::ingress::Options {
        let usual = routing::ingress::Options::default();
        let mut controllers = usual.controllers;
        controllers.extend(self.ingress_controller.iter().cloned());
        let default_certificate = self.ingress_default_certificate.clone();
        routing::ingress::Options { controllers, default_certificate, ..usual }
    }

    /// Which Secrets of Ingresses the nodes may read.
    pub(crate) fn served(&self) -> ServedIngresses {
        let routing::ingress::Options { controllers, default_certificate, .. } = self.options();
        ServedIngresses { controllers, default_certificate: default_certificate.map(|key| (*key).into()) }
    }
}

fn controller(text: &str) -> anyhow::Result<Box<str>> {
    let text = text.trim();
    let (domain, path) = text.split_once('/').unwrap_or_default();
    ensure!(
        api::names::dns_subdomain(domain).is_empty() && !path.is_empty(),
        "expected a domain and a path, as in spec.controller of an IngressClass, such as k8s.io/ingress-nginx"
    );
    Ok(text.into())
}

fn secret(text: &str) -> anyhow::Result<Arc<str>> {
    let (namespace, name) = text.split_once('/').unwrap_or_default();
    ensure!(
        api::names::dns_label(namespace).is_empty() && api::names::dns_subdomain(name).is_empty(),
        "expected the namespace and the name of a Secret, such as default/certificate"
    );
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        arguments: IngressArguments,
    }

    fn parse(words: &[&str]) -> Result<IngressArguments, clap::Error> {
        let all = ["x"].iter().chain(words);
        Whole::try_parse_from(all).map(|whole| whole.arguments)
    }

    #[test]
    fn controllers_are_added_to_our_own() {
        assert_eq!(parse(&[]).expect("good arguments").options(), routing::ingress::Options::default());
        let words = ["--ingress-controller", "k8s.io/ingress-nginx", "--ingress-controller=a.example/b,a.example/c"];
        let options = parse(&words).expect("good arguments").options();
        let expected = ["waypost.dev/ingress-controller", "k8s.io/ingress-nginx", "a.example/b", "a.example/c"];
        assert!(options.controllers.iter().map(|name| &**name).eq(expected), "{:?}", options.controllers);
        for wrong in ["", "nginx", "k8s.io/", "/x", "UPPER.io/x"] {
            assert!(parse(&["--ingress-controller", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_default_certificate_is_a_secret_of_a_namespace() {
        let arguments = parse(&["--ingress-default-certificate", "web/wild.example"]).expect("good arguments");
        assert_eq!(arguments.options().default_certificate.as_deref(), Some("web/wild.example"));
        assert_eq!(arguments.served().default_certificate.as_deref(), Some("web/wild.example"));
        for wrong in ["", "web", "web/", "/x", "a/b/c"] {
            assert!(parse(&["--ingress-default-certificate", wrong]).is_err(), "{wrong}");
        }
    }
}
