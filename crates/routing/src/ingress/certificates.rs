//! Which certificate is shown for which server name (SNI).

use std::collections::BTreeMap;
use std::sync::Arc;

/// Certificates by host. A host `*.x` is for exactly one label, as in certificates.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerCertificates {
    /// None is the default certificate, in place of that of a wildcard.
    pub(super) hosts: BTreeMap<Arc<str>, Option<Arc<str>>>,
    pub(super) default: Option<Arc<str>>,
}

impl ServerCertificates {
    /// `namespace/name` of the Secret with the certificate for a server name in lower case; without one the handshake
    /// fails.
    #[must_use]
    pub fn find(&self, server_name: Option<&str>) -> Option<&Arc<str>> {
        let named = |name: &str| {
            let wildcard = || self.hosts.get(format!("*.{}", name.split_once('.')?.1).as_str());
            self.hosts.get(name).or_else(wildcard)
        };
        server_name.and_then(named).and_then(Option::as_ref).or(self.default.as_ref())
    }

    /// Also the certificates of another one, for the hosts without one in this.
    #[must_use]
    pub fn with_hosts_of(&self, other: &Self) -> Self {
        let mut hosts = other.hosts.clone();
        hosts.extend(self.hosts.iter().map(|(host, secret)| (host.clone(), secret.clone())));
        Self { hosts, default: self.default.clone() }
    }

    /// All Secrets, each once.
    #[must_use]
    pub fn secrets(&self) -> Vec<Arc<str>> {
        let mut all: Vec<_> = self.hosts.values().flatten().chain(&self.default).cloned().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Whether a host of a `tls` entry is, or is a wildcard for, the host of a rule.
pub(super) fn covers(entry: &str, host: &str) -> bool {
    let is_wildcard_for =
        |suffix: &str| host.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(suffix));
    entry.eq_ignore_ascii_case(host) || entry.strip_prefix("*.").is_some_and(is_wildcard_for)
}
