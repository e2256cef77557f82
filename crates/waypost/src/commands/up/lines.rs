//! What `waypost up` says when it is ready: five lines, each with what to do next.
//!
//! In: where things are. Out: text. Everything else goes to the log.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Where things are.
pub(super) struct Lines<'a> {
    pub(super) api: String,
    pub(super) kubeconfig: &'a Path,
    /// The context that was added to the user's own kubeconfig.
    pub(super) context: Option<&'a str>,
    /// The addresses of the Service of names, and where names are answered on this machine.
    pub(super) names: Option<(&'a [IpAddr], &'a [SocketAddr], &'a str)>,
    /// The mode of the proxy, and why that one.
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
            None => writeln!(f, "DNS      nobody answers names: --dns-listen is none")?,
        }
        match self.proxy {
            Some((mode, why)) => writeln!(f, "proxy    {mode}: {why}")?,
            None => {
                writeln!(f, "proxy    none: Services have addresses, and nobody serves them here; the log says why")?;
            }
        }
        writeln!(f, "page     {}/page/, after `waypost page` has given you a link", self.api)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_five_whatever_is_missing() {
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
