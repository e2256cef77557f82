//! DNS names that mean the API server or a Service in every cluster, whatever its settings.
//!
//! A machine must not be called so: clients that look for the API server by such a name could reach an agent in its place. Names that depend
//! on settings (the cluster domain, `--tls-san`) and on objects (Services) are checked by the caller, who knows those. Pure.

/// Whether a DNS name is one of the API server, of this very machine, or of a Service.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    let name = canonical(name);
    ["kubernetes", "localhost"].iter().any(|first| is_at_or_before(&name, first))
        || ["localhost", "svc"].iter().any(|last| is_at_or_under(&name, last))
}

/// Whether a name is a domain or below it.
#[must_use]
pub fn is_at_or_under(name: &str, domain: &str) -> bool {
    let (name, domain) = (canonical(name), canonical(domain));
    !domain.is_empty() && (name == domain || name.strip_suffix(&domain).is_some_and(|rest| rest.ends_with('.')))
}

/// DNS names are compared without case and without the dot of the root.
#[must_use]
pub fn canonical(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn is_at_or_before(name: &str, first: &str) -> bool {
    name.strip_prefix(first).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_server_and_of_services_are_reserved() {
        for name in [
            "kubernetes",
            "Kubernetes.",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "kubernetes.example.com",
            "localhost",
            "localhost.localdomain",
            "a.localhost",
            "web.shop.svc",
            "svc",
        ] {
            assert!(is_reserved(name), "{name}");
        }
        for name in ["n1", "kubernetes-1", "my.kubernetes.example", "localhost1", "svc1", "svc.example.com", ""] {
            assert!(!is_reserved(name), "{name}");
        }
    }

    #[test]
    fn a_domain_holds_itself_and_what_is_below_it() {
        assert!(
            is_at_or_under("cluster.local", "cluster.local.") && is_at_or_under("A.Cluster.Local", "cluster.local")
        );
        assert!(!is_at_or_under("mycluster.local", "cluster.local") && !is_at_or_under("n1", ""));
    }
}
