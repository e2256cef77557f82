//! Host name, `/etc/hosts` and `/etc/resolv.conf` of a Pod.

use std::fmt::Write as _;
use std::net::IpAddr;

use api::resolv_conf::{self, Cluster, Host, Policy, ResolvConf};
use api::value::ValueExt as _;
use serde_json::Value;

/// The longest host name of the kernel, in bytes.
const MAX_HOST_NAME: usize = 64;

/// The host name of a Pod.
#[must_use]
pub fn host_name(pod: &Value, domain: &str) -> String {
    let short = short_name(pod);
    match qualified(pod, &short, domain) {
        Some(long) if pod.flag("spec.setHostnameAsFQDN") && long.len() <= MAX_HOST_NAME => long,
        _ => short,
    }
}

fn short_name(pod: &Value) -> String {
    let own = pod.text("spec.hostname");
    let name = if own.is_empty() { pod.text("metadata.name") } else { own };
    name.get(..63).unwrap_or(name).trim_end_matches(['-', '.']).to_owned()
}

/// The FQDN of a Pod with a subdomain.
fn qualified(pod: &Value, short: &str, domain: &str) -> Option<String> {
    let (subdomain, namespace) = (pod.text("spec.subdomain"), pod.text("metadata.namespace"));
    (!subdomain.is_empty()).then(|| format!("{short}.{subdomain}.{namespace}.svc.{domain}"))
}

/// The `/etc/hosts` of a Pod that is not on the host network.
#[must_use]
pub fn hosts(pod: &Value, addresses: &[IpAddr], domain: &str) -> String {
    let mut out =
        "# Written by Waypost for this Pod.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
                   fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
            .to_owned();
    let short = short_name(pod);
    for ip in addresses {
        // Text can always be appended to.
        let _ = match qualified(pod, &short, domain) {
            Some(long) => writeln!(out, "{ip}\t{long}\t{short}"),
            None => writeln!(out, "{ip}\t{short}"),
        };
    }
    out + &aliases(pod)
}

/// The lines of `hostAliases`.
#[must_use]
pub fn aliases(pod: &Value) -> String {
    let mut out = String::new();
    for alias in pod.items("spec.hostAliases") {
        let _ = writeln!(out, "{}\t{}", alias.text("ip"), alias.texts("hostnames").join("\t"));
    }
    out
}

/// The `/etc/resolv.conf` of a Pod, and warnings about omitted entries.
#[must_use]
pub fn resolver(pod: &Value, domain: &str, servers: &[String], host: &str) -> (String, Vec<resolv_conf::Warning>) {
    let config = pod.at("spec.dnsConfig");
    let option = |option: &Value| match option.text("value") {
        "" => option.text("name").to_owned(),
        value => format!("{}:{value}", option.text("name")),
    };
    let texts = |path: &str| config.texts(path).into_iter().map(str::to_owned).collect();
    let asked = resolv_conf::Pod {
        namespace: pod.text("metadata.namespace").to_owned(),
        policy: Policy::read(pod.text("spec.dnsPolicy")),
        host_network: pod.flag("spec.hostNetwork"),
        config: ResolvConf {
            nameservers: texts("nameservers"),
            searches: texts("searches"),
            options: config.items("options").iter().map(option).collect(),
        },
    };
    let cluster = Cluster { domain: domain.to_owned(), nameservers: servers.to_vec() };
    // An invalid file counts as empty.
    let host = Host::File(ResolvConf::parse(host).unwrap_or_default());
    let (file, warnings) = resolv_conf::resolv_conf(&asked, &cluster, &host);
    (file.to_string(), warnings)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hosts_file_and_host_name() {
        let pod = json!({
            "metadata": {"name": "web-0", "namespace": "shop"},
            "spec": {"hostname": "web", "subdomain": "all", "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["a", "b"]}]},
        });
        let text = hosts(&pod, &[[10, 0, 0, 2].into()], "cluster.local");
        assert!(text.contains("10.0.0.2\tweb.all.shop.svc.cluster.local\tweb\n"), "{text}");
        assert!(text.ends_with("192.0.2.1\ta\tb\n"), "{text}");
        assert_eq!(host_name(&pod, "cluster.local"), "web");
        let mut whole = pod;
        whole.put("spec.setHostnameAsFQDN", true);
        assert_eq!(host_name(&whole, "cluster.local"), "web.all.shop.svc.cluster.local");
    }

    #[test]
    fn cluster_first_uses_the_cluster_dns() {
        let pod = json!({"metadata": {"namespace": "shop"}, "spec": {"dnsPolicy": "ClusterFirst"}});
        let (text, _) =
            resolver(&pod, "cluster.local", &["10.96.0.10".to_owned()], "nameserver 192.0.2.53\nsearch example.com\n");
        assert_eq!(
            text,
            "search shop.svc.cluster.local svc.cluster.local cluster.local example.com\nnameserver 10.96.0.10\noptions ndots:5\n"
        );
    }
}
