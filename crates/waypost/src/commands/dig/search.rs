//! The search path of a resolver.
//!
//! In: a namespace, or a Pod with its DNS settings. Out: the search path, and the names in the order in which they are queried.

use std::net::IpAddr;

use api::resolv_conf::{Cluster, Host, Pod, Policy, ResolvConf, Warning, resolv_conf};
use api::value::ValueExt as _;
use serde_json::Value;

/// Placeholder for the address of the cluster's DNS.
const CLUSTER_DNS: &str = "cluster";

/// A search path.
#[derive(Debug)]
pub(in crate::commands) struct Search {
    /// The Pods that have it.
    pub(in crate::commands) whose: String,
    /// resolv.conf of a container.
    pub(in crate::commands) conf: ResolvConf,
    /// Notes about the DNS settings.
    pub(in crate::commands) notes: Vec<String>,
}

impl Search {
    /// The search path of a Pod, or of Pods of a namespace with default settings.
    pub(in crate::commands) fn of(namespace: &str, object: Option<&Value>, domain: &str) -> Self {
        let mut pod = Pod { namespace: namespace.to_owned(), ..Pod::default() };
        let mut whose = format!("a Pod of namespace {namespace}");
        if let Some(object) = object {
            pod.policy = Policy::read(object.text("spec.dnsPolicy"));
            pod.host_network = object.flag("spec.hostNetwork");
            pod.config = own_settings(object);
            whose = format!("Pod {namespace}/{}", object.text("metadata.name"));
        }
        let cluster = Cluster { domain: domain.to_owned(), nameservers: vec![CLUSTER_DNS.to_owned()] };
        // resolv.conf of the Pod's node is not known here.
        let (conf, warnings) = resolv_conf(&pod, &cluster, &Host::File(ResolvConf::default()));
        let text_of = |warning| match warning {
            Warning::Cut(text) | Warning::NoClusterDns(text) => text,
        };
        let mut notes: Vec<String> = warnings.into_iter().map(text_of).collect();
        if !conf.nameservers.iter().any(|server| server == CLUSTER_DNS) {
            let network = if pod.host_network { ", hostNetwork" } else { "" };
            notes.push(format!(
                "{whose} does not ask the cluster's DNS (dnsPolicy {}{network}): names of Services do not resolve in it; \
                 what its node adds to the search path is not known here",
                pod.policy.as_str()
            ));
        }
        Self { whose, conf, notes }
    }

    /// The names to query, in order: with at least `ndots` dots the name itself comes first, otherwise last.
    pub(in crate::commands) fn names(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let itself = format!("{name}.");
        let within = |domain: &String| match domain.trim_end_matches('.') {
            "" => itself.clone(),
            domain => format!("{name}.{domain}."),
        };
        let mut names: Vec<String> = self.conf.searches.iter().map(within).collect();
        let is_long = name.matches('.').count() >= self.conf.ndots();
        names.insert(if is_long { 0 } else { names.len() }, itself);
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    }
}

/// `spec.dnsConfig` of a Pod.
fn own_settings(pod: &Value) -> ResolvConf {
    let list = |path: &str| pod.texts(path).into_iter().map(str::to_owned).collect();
    let option = |option: &Value| match option.text("value") {
        "" => option.text("name").to_owned(),
        value => format!("{}:{value}", option.text("name")),
    };
    ResolvConf {
        nameservers: list("spec.dnsConfig.nameservers"),
        searches: list("spec.dnsConfig.searches"),
        options: pod.items("spec.dnsConfig.options").iter().map(option).collect(),
    }
}

/// The name of the PTR record of an address.
pub(in crate::commands) fn reverse_name(address: IpAddr) -> String {
    let (parts, end): (Vec<String>, _) = match address {
        IpAddr::V4(v4) => (v4.octets().iter().map(u8::to_string).collect(), "in-addr.arpa."),
        IpAddr::V6(v6) => {
            let nibbles = v6.octets().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
            (nibbles.map(|nibble| format!("{nibble:x}")).collect(), "ip6.arpa.")
        }
    };
    parts.iter().rev().map(|part| format!("{part}.")).collect::<String>() + end
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_with_ndots_dots_are_queried_before_the_search_path() {
        let search = Search::of("shop", None, "cluster.local");
        let names = ["web.shop.svc.cluster.local.", "web.svc.cluster.local.", "web.cluster.local.", "web."];
        assert_eq!(search.names("web"), names);
        assert_eq!(search.names("web."), ["web."]);
        assert_eq!(search.names("a.b.c.d.e.f")[..2], ["a.b.c.d.e.f.", "a.b.c.d.e.f.shop.svc.cluster.local."]);
        assert_eq!(search.names("a.b.c.d.e").last().map(String::as_str), Some("a.b.c.d.e."));
        assert!(search.notes.is_empty(), "{search:?}");
    }

    #[test]
    fn dns_settings_of_a_pod_are_applied() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"dnsPolicy": "ClusterFirst", "dnsConfig": {
            "searches": ["example.com"], "options": [{"name": "ndots", "value": "1"}, {"name": "edns0"}]}}});
        let search = Search::of("shop", Some(&pod), "cluster.local");
        assert_eq!(search.names("web.example")[0], "web.example.");
        assert_eq!(search.names("web").iter().rev().nth(1).map(String::as_str), Some("web.example.com."));
        assert!(search.notes.is_empty(), "{search:?}");
        let pod = json!({"metadata": {"name": "p"}, "spec": {"dnsPolicy": "ClusterFirst", "hostNetwork": true}});
        let search = Search::of("shop", Some(&pod), "cluster.local");
        assert_eq!(search.names("web"), ["web."]);
        assert!(search.notes[0].contains("Pod shop/p does not ask the cluster's DNS"), "{search:?}");
    }

    #[test]
    fn addresses_have_reverse_names() {
        assert_eq!(reverse_name([10, 96, 0, 1].into()), "1.0.96.10.in-addr.arpa.");
        let v6 = reverse_name("fd00::1".parse().expect("an address"));
        assert!(v6.starts_with("1.0.0.0.") && v6.ends_with(".0.0.d.f.ip6.arpa.") && v6.len() == 32 * 2 + 9, "{v6}");
    }
}
