//! The gateway of one class: which Ingresses each host has, its rules, its certificates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::certificates::ServerCertificates;
use super::super::host::{Assembled, Parsed, Services, assemble, redirect_to};
use super::super::table::{HostRules, IngressTable};
use super::super::{Finding, Options, Reason, VirtualGateway};
use super::Touched;
use crate::cluster::SecretState;
use crate::model::{GatewayConfig, ListenerConfig, ListenerId, ListenerProtocol};

/// A host; none for the rules without one.
pub type Host = Option<Arc<str>>;

/// How an Ingress has a host. What comes first wins; Ingresses of the same role are ordered by age.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Role {
    /// By its rules.
    Rules,
    /// As an alias of this host.
    Alias(Host),
    /// As the other form, with or without `www.`, of this host.
    Www(Arc<str>),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Member {
    role: Role,
    created: Box<str>,
    key: Arc<str>,
}

/// A class and its gateway.
#[derive(Clone, Debug)]
pub(super) struct ClassState {
    pub(super) gateway: VirtualGateway,
    /// Findings about certificates.
    pub(super) certificates: Vec<(Arc<str>, Finding)>,
    members: BTreeMap<Host, BTreeSet<Member>>,
    findings: BTreeMap<Host, Vec<(Arc<str>, Finding)>>,
}

/// The hosts of an Ingress, and how it has them.
fn roles(parsed: &Parsed) -> BTreeSet<(Host, Role)> {
    let spec = &parsed.ingress.spec;
    let host = |text: &str| (!text.is_empty()).then(|| Arc::<str>::from(text.to_ascii_lowercase()));
    let mut roles: BTreeSet<(Host, Role)> = spec.rules.iter().map(|rule| (host(&rule.host), Role::Rules)).collect();
    if spec.rules.is_empty() && spec.default_backend.is_some() {
        roles.insert((None, Role::Rules));
    }
    if parsed.settings.canary.is_some() {
        return roles;
    }
    let own: Vec<Host> = roles.iter().map(|(host, _)| host.clone()).collect();
    for source in own {
        let aliases = parsed.settings.aliases.iter().filter_map(|alias| host(alias)).map(Some);
        roles.extend(aliases.filter(|alias| *alias != source).map(|alias| (alias, Role::Alias(source.clone()))));
        if let Some(source) = source.filter(|source| parsed.settings.www_redirect && !source.starts_with("*.")) {
            let other = source.strip_prefix("www.").map_or_else(|| format!("www.{source}"), ToOwned::to_owned);
            roles.insert((Some(other.into()), Role::Www(source)));
        }
    }
    roles
}

/// The hosts of an Ingress.
pub(super) fn hosts_of(parsed: &Parsed) -> BTreeSet<Host> {
    roles(parsed).into_iter().map(|(host, _)| host).collect()
}

impl ClassState {
    pub(super) fn new(class: &Arc<str>, options: &Options) -> Self {
        let certificates = Arc::default();
        let config = Arc::new(config(class, options, &ServerCertificates::default()));
        let gateway = VirtualGateway { class: class.clone(), config, certificates, table: IngressTable::default() };
        Self { gateway, certificates: Vec::new(), members: BTreeMap::new(), findings: BTreeMap::new() }
    }

    pub(super) fn hosts(&self) -> BTreeSet<Host> {
        self.members.keys().cloned().collect()
    }

    pub(super) fn findings(&self, host: &Host) -> &[(Arc<str>, Finding)] {
        self.findings.get(host).map_or(&[], Vec::as_slice)
    }

    /// Adds an Ingress; returns its hosts.
    pub(super) fn attach(&mut self, parsed: &Parsed) -> BTreeSet<Host> {
        for (host, member) in members(parsed) {
            self.members.entry(host).or_default().insert(member);
        }
        hosts_of(parsed)
    }

    /// Removes an Ingress; returns its hosts.
    pub(super) fn detach(&mut self, parsed: &Parsed) -> BTreeSet<Host> {
        for (host, member) in members(parsed) {
            let is_empty = self.members.get_mut(&host).is_some_and(|have| {
                have.remove(&member);
                have.is_empty()
            });
            if is_empty {
                self.members.remove(&host);
            }
        }
        hosts_of(parsed)
    }

    /// Computes hosts again, and the hosts that are aliases of them. Whether the table differs.
    pub(super) fn assemble<'a>(
        &mut self,
        hosts: &BTreeSet<Host>,
        parsed: &dyn Fn(&str) -> Option<&'a Parsed>,
        services: Services<'_>,
        touched: &mut Touched,
    ) -> bool {
        let mut all = hosts.clone();
        for owner in
            hosts.iter().filter_map(|host| self.members.get(host)).flatten().filter_map(|member| parsed(&member.key))
        {
            let derived = roles(owner).into_iter().filter(|(_, role)| match role {
                Role::Rules => false,
                Role::Alias(source) => hosts.contains(source),
                Role::Www(source) => hosts.contains(&Some(source.clone())),
            });
            all.extend(derived.map(|(host, _)| host));
        }
        let mut differs = false;
        for host in all {
            let new = self.rules(&host, parsed, services);
            let table = &mut self.gateway.table;
            if table.get(host.as_deref()) != new.rules.as_ref() {
                table.set(host.as_ref(), new.rules);
                touched.hosts.entry(self.gateway.class.clone()).or_default().insert(host.clone());
                differs = true;
            }
            let before = match new.findings.is_empty() {
                true => self.findings.remove(&host),
                false => self.findings.insert(host.clone(), new.findings.clone()),
            };
            if before.as_deref().unwrap_or_default() != new.findings {
                let owners = before.iter().flatten().chain(&new.findings).map(|(owner, _)| owner.clone());
                touched.ingresses.extend(owners);
            }
        }
        differs
    }

    fn rules<'a>(&self, host: &Host, parsed: &dyn Fn(&str) -> Option<&'a Parsed>, services: Services<'_>) -> Assembled {
        let members = || self.members.get(host).into_iter().flatten();
        let direct: Vec<_> =
            members().filter(|member| member.role == Role::Rules).filter_map(|member| parsed(&member.key)).collect();
        let mut assembled = assemble(host.as_deref(), &direct, services);
        for member in members().filter(|member| member.role != Role::Rules) {
            let Some(owner) = parsed(&member.key) else { continue };
            if assembled.rules.is_some() {
                let message =
                    format!("{} has rules of its own, or of an older Ingress", host.as_deref().unwrap_or("*"));
                assembled.findings.push((member.key.clone(), Finding { reason: Reason::AliasIgnored, message }));
                continue;
            }
            assembled.rules = match &member.role {
                Role::Rules => continue,
                Role::Alias(source) => self.source_rules(source, parsed, services),
                Role::Www(source) => Some(Arc::new(redirect_to(source, owner))),
            };
        }
        assembled
    }

    fn source_rules<'a>(
        &self,
        source: &Host,
        parsed: &dyn Fn(&str) -> Option<&'a Parsed>,
        services: Services<'_>,
    ) -> Option<Arc<HostRules>> {
        let members = self.members.get(source)?.iter().filter(|member| member.role == Role::Rules);
        let direct: Vec<_> = members.filter_map(|member| parsed(&member.key)).collect();
        assemble(source.as_deref(), &direct, services).rules
    }

    /// Computes the certificates again. Whether they differ.
    pub(super) fn certify(
        &mut self,
        mut members: Vec<&Parsed>,
        secrets: &BTreeMap<Arc<str>, SecretState>,
        options: &Options,
        touched: &mut Touched,
    ) -> bool {
        members.sort_unstable_by_key(|parsed| (&parsed.ingress.metadata.creation_timestamp, &parsed.key));
        let mut new = ServerCertificates { hosts: BTreeMap::new(), default: options.default_certificate.clone() };
        let mut findings = Vec::new();
        for parsed in members {
            add_certificates(parsed, secrets, &mut new, &mut findings);
        }
        if findings != self.certificates {
            touched.ingresses.extend(findings.iter().chain(&self.certificates).map(|(owner, _)| owner.clone()));
            self.certificates = findings;
        }
        if *self.gateway.certificates == new {
            return false;
        }
        self.gateway.config = Arc::new(config(&self.gateway.class, options, &new));
        self.gateway.certificates = Arc::new(new);
        true
    }
}

fn members(parsed: &Parsed) -> impl Iterator<Item = (Host, Member)> {
    let created = &parsed.ingress.metadata.creation_timestamp;
    let member = |(host, role)| (host, Member { role, created: created.clone(), key: parsed.key.clone() });
    roles(parsed).into_iter().map(member)
}

/// Adds the certificates of an Ingress. A host that an older Ingress has a certificate for keeps it.
fn add_certificates(
    parsed: &Parsed,
    secrets: &BTreeMap<Arc<str>, SecretState>,
    all: &mut ServerCertificates,
    findings: &mut Vec<(Arc<str>, Finding)>,
) {
    let spec = &parsed.ingress.spec;
    for tls in spec.tls.iter().filter(|tls| !tls.secret_name.is_empty()) {
        let key = format!("{}/{}", parsed.ingress.metadata.namespace, tls.secret_name);
        let problem = match secrets.get_key_value(key.as_str()) {
            Some((key, SecretState::Certificate)) => {
                let own: Vec<_> = spec.rules.iter().map(|rule| &rule.host).filter(|host| !host.is_empty()).collect();
                let hosts = if tls.hosts.is_empty() { own } else { tls.hosts.iter().collect() };
                for host in hosts {
                    all.hosts.entry(host.to_ascii_lowercase().into()).or_insert_with(|| key.clone());
                }
                continue;
            }
            Some((_, SecretState::Passwords)) => format!("Secret {key} has no certificate"),
            Some((_, SecretState::Invalid(why))) => format!("Secret {key} has no certificate: {why}"),
            None => format!("there is no Secret {key}"),
        };
        let instead = if all.default.is_some() { "the default certificate is shown" } else { "TLS handshakes fail" };
        let message = format!("{problem}; {instead}");
        findings.push((parsed.key.clone(), Finding { reason: Reason::CertificateInvalid, message }));
    }
}

/// The listeners of a class. No Gateway has such a key, because a namespace has no colon.
fn config(class: &str, options: &Options, certificates: &ServerCertificates) -> GatewayConfig {
    let key: Arc<str> = format!(":ingress/{class}").into();
    let listener = |name: &str, port, protocol, certificates| {
        let id = ListenerId { gateway: key.clone(), set: None, name: name.into() };
        Arc::new(ListenerConfig { id, port, protocol, hostname: None, certificates, client_validation: None })
    };
    let listeners = vec![
        listener("http", 80, ListenerProtocol::Http, Vec::new()),
        listener("https", 443, ListenerProtocol::Https, certificates.secrets()),
    ];
    GatewayConfig { key: key.clone(), service: options.service_of(class), listeners, client_certificate: None }
}
