//! The output of `waypost up` when it is ready: five lines.
//!
//! In: addresses and files. Out: text. Everything else goes to the log.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Addresses and files.
pub(super) struct Lines<'a> {
    pub(super) api: String,
    pub(super) kubeconfig: &'a Path,
    /// The context that was added to the user's own kubeconfig.
    pub(super) context: Option<&'a str>,
    /// The addresses of the DNS Service, and the listen addresses of the DNS server.
    pub(super) names: Option<(&'a [IpAddr], &'a [SocketAddr], &'a str)>,
    /// The proxy mode, and why it was selected.
    pub(super) proxy: Option<(&'a str, &'a str)>,
}

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "API      {}", self.api)?;
        match self.context {
            Some(name) => writeln!(f, "kubectl  kubectl --context {name} get services")?,
            None => writeln!(f, "kubectl  export KUBECONFIG={}", self.kubeconfig.display())?,
        }
        match self.names {
            Some((ips, places, domain)) => {
                let all: Vec<String> =
                    ips.iter().map(ToString::to_string).chain(places.iter().map(ToString::to_string)).collect();
                writeln!(f, "DNS      {domain} at {}", all.join(", "))?;
            }
            None => writeln!(f, "DNS      off: --dns-listen is none")?,
        }
        match self.proxy {
            Some((mode, why)) => writeln!(f, "proxy    {mode}: {why}")?,
            None => {
                writeln!(f, "proxy    none: Services are not served on this machine; see the log")?;
            }
        }
        writeln!(f, "page     {}/page/ (log in with the link of `waypost page`)", self.api)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_five_lines_in_every_case() {
        let ips = [IpAddr::from([10, 96, 0, 10])];
        let places = [SocketAddr::from(([192, 0, 2, 1], 10053))];
        let full = Lines {
            api: "https://127.0.0.1:6443".to_owned(),
            kubeconfig: Path::new("/var/lib/waypost/kubeconfig"),
            context: None,
            names: Some((&ips, &places, "cluster.local")),
            proxy: Some(("nftables", "the kernel has it")),
        };
        let text = full.to_string();
        assert_eq!(text.lines().count(), 5);
        assert!(text.contains("export KUBECONFIG=/var/lib/waypost/kubeconfig"), "{text}");
        assert!(text.contains("DNS      cluster.local at 10.96.0.10, 192.0.2.1:10053\n"), "{text}");
        let bare = Lines { context: Some("here"), names: None, proxy: None, ..full };
        assert_eq!(bare.to_string().lines().count(), 5);
        assert!(bare.to_string().contains("kubectl --context here get services"));
    }
}
