//! The `resolv.conf` of a Pod.
//!
//! In: the DNS settings of the Pod (`dnsPolicy`, `dnsConfig`), those of the cluster, the file of the host. Out:
//! the file, and a list of what was omitted. Resolvers truncate long files silently; so the limits are enforced and
//! reported here.

use std::fmt;

use crate::ip::Family;

#[cfg(test)]
mod tests;

/// Nameservers a resolver reads.
pub const MAX_NAMESERVERS: usize = 3;
/// Search domains a file may have.
pub const MAX_SEARCHES: usize = 32;
/// Characters of all search domains with the spaces between them.
pub const MAX_SEARCH_CHARACTERS: usize = 2048;
/// Characters of one search domain.
const MAX_SEARCH_DOMAIN: usize = 253;
/// With fewer dots than this, a name is tried in the cluster's domains first.
const CLUSTER_OPTIONS: &str = "ndots:5";

/// The content of a `resolv.conf`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ResolvConf {
    /// Addresses, in order.
    pub nameservers: Vec<String>,
    /// Domains, in order.
    pub searches: Vec<String>,
    /// `ndots:5`, `edns0`, …
    pub options: Vec<String>,
}

/// A file that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: `nameserver` without an address; write one, or remove the line")]
pub struct Malformed {
    /// Where, from 1.
    pub line: usize,
}

/// `spec.dnsPolicy` of a Pod.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Policy {
    /// The cluster's DNS, unless the Pod is in the host's network.
    #[default]
    ClusterFirst,
    /// The cluster's DNS, also in the host's network.
    ClusterFirstWithHostNet,
    /// What the host uses.
    Default,
    /// Only the settings of `dnsConfig`.
    None,
}

impl Policy {
    /// Parses the field; unset is `ClusterFirst`, and so is an unknown value, because names of Services must resolve.
    #[must_use]
    pub fn read(text: &str) -> Self {
        match text {
            "None" => Self::None,
            "Default" => Self::Default,
            "ClusterFirstWithHostNet" => Self::ClusterFirstWithHostNet,
            _ => Self::ClusterFirst,
        }
    }

    /// As the API spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterFirst => "ClusterFirst",
            Self::ClusterFirstWithHostNet => "ClusterFirstWithHostNet",
            Self::Default => "Default",
            Self::None => "None",
        }
    }
}

/// The DNS settings of a Pod.
#[derive(Clone, Default, Debug)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// `spec.dnsPolicy`
    pub policy: Policy,
    /// `spec.hostNetwork`
    pub host_network: bool,
    /// `spec.dnsConfig`; options as `name` or `name:value`.
    pub config: ResolvConf,
}

/// What the cluster offers.
#[derive(Clone, Default, Debug)]
pub struct Cluster {
    /// `cluster.local`, or nothing.
    pub domain: String,
    /// Addresses of its DNS.
    pub nameservers: Vec<String>,
}

/// What the host uses.
#[derive(Clone, Debug)]
pub enum Host {
    /// This file.
    File(ResolvConf),
    /// Configured to use none; the families of the node's addresses.
    Nothing(Vec<Family>),
}

/// A warning for the owner of a Pod; the messages are the kubelet's, because people search for them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Warning {
    /// `DNSConfigForming`: a limit cut something off.
    Cut(String),
    /// `MissingClusterDNS`: the cluster has no DNS to offer.
    NoClusterDns(String),
}

impl ResolvConf {
    /// Reads a file as the kubelet does: the last `search` counts, options add up, trailing dots go.
    ///
    /// # Errors
    /// When a `nameserver` line has no address.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut out = Self::default();
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().ok_or(Malformed { line: index + 1 })?;
                    out.nameservers.push(address.to_owned());
                }
                Some("search") => {
                    let domains = words.map(|word| word.strip_suffix('.').unwrap_or(word));
                    out.searches = domains.filter(|word| !word.is_empty()).map(str::to_owned).collect();
                }
                Some("options") => words.for_each(|word| merge_option(&mut out.options, word)),
                _ => {}
            }
        }
        Ok(out)
    }

    /// What the options say about `ndots`; 1 when they do not, as resolvers have it.
    #[must_use]
    pub fn ndots(&self) -> usize {
        let value = self.options.iter().rev().find_map(|option| option.strip_prefix("ndots:"));
        value.and_then(|value| value.parse().ok()).unwrap_or(1)
    }
}

impl fmt::Display for ResolvConf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.searches.is_empty() {
            writeln!(f, "search {}", self.searches.join(" "))?;
        }
        for nameserver in &self.nameservers {
            writeln!(f, "nameserver {nameserver}")?;
        }
        if !self.options.is_empty() {
            writeln!(f, "options {}", self.options.join(" "))?;
        }
        Ok(())
    }
}

/// The file of a Pod.
#[must_use]
pub fn resolv_conf(pod: &Pod, cluster: &Cluster, host: &Host) -> (ResolvConf, Vec<Warning>) {
    let mut warnings = Vec::new();
    let mut out = base(pod, cluster, host, &mut warnings);
    extend_distinct(&mut out.nameservers, &pod.config.nameservers);
    extend_distinct(&mut out.searches, &pod.config.searches);
    for option in &pod.config.options {
        merge_option(&mut out.options, option);
    }
    fit_nameservers(&mut out.nameservers, &mut warnings);
    fit_searches(&mut out.searches, &mut warnings);
    (out, warnings)
}

/// What the policy gives, before the Pod's own settings.
fn base(pod: &Pod, cluster: &Cluster, host: &Host, warnings: &mut Vec<Warning>) -> ResolvConf {
    let from_cluster = match pod.policy {
        Policy::None => return ResolvConf::default(),
        Policy::Default => false,
        Policy::ClusterFirst => !pod.host_network,
        Policy::ClusterFirstWithHostNet => true,
    };
    if !from_cluster {
        return from_host(host);
    }
    if cluster.nameservers.is_empty() {
        warnings.push(Warning::NoClusterDns(format!(
            "the node knows no address of a cluster DNS and cannot follow policy {:?}; it follows \"Default\"",
            pod.policy.as_str()
        )));
        return from_host(host);
    }
    let mut searches = Vec::new();
    if !cluster.domain.is_empty() {
        let domain = &cluster.domain;
        let own = [format!("{}.svc.{domain}", pod.namespace), format!("svc.{domain}"), domain.clone()];
        extend_distinct(&mut searches, &own);
    }
    if let Host::File(file) = host {
        extend_distinct(&mut searches, &file.searches);
    }
    ResolvConf { nameservers: cluster.nameservers.clone(), searches, options: vec![CLUSTER_OPTIONS.to_owned()] }
}

fn from_host(host: &Host) -> ResolvConf {
    let families = match host {
        Host::File(file) => return file.clone(),
        Host::Nothing(families) if families.is_empty() => &[Family::V4][..],
        Host::Nothing(families) => families,
    };
    let loopback = |family: &Family| if *family == Family::V4 { "127.0.0.1" } else { "::1" }.to_owned();
    ResolvConf {
        nameservers: families.iter().map(loopback).collect(),
        searches: vec![".".to_owned()],
        options: Vec::new(),
    }
}

fn extend_distinct(list: &mut Vec<String>, more: &[String]) {
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

/// An option replaces the one with the same name, in its position.
fn merge_option(options: &mut Vec<String>, option: &str) {
    let name = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
    match options.iter_mut().find(|old| name(old) == name(option)) {
        Some(old) => option.clone_into(old),
        None => options.push(option.to_owned()),
    }
}

fn fit_nameservers(nameservers: &mut Vec<String>, warnings: &mut Vec<Warning>) {
    if nameservers.len() > MAX_NAMESERVERS {
        nameservers.truncate(MAX_NAMESERVERS);
        warnings.push(Warning::Cut(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            nameservers.join(" ")
        )));
    }
}

fn fit_searches(searches: &mut Vec<String>, warnings: &mut Vec<Warning>) {
    let before = searches.len();
    searches.retain(|domain| domain.len() <= MAX_SEARCH_DOMAIN);
    searches.truncate(MAX_SEARCHES);
    while joined_length(searches) > MAX_SEARCH_CHARACTERS {
        searches.pop();
    }
    if searches.len() < before {
        warnings.push(Warning::Cut(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            searches.join(" ")
        )));
    }
}

fn joined_length(words: &[String]) -> usize {
    words.iter().map(|word| word.len() + 1).sum::<usize>().saturating_sub(1)
}
