//! The gateway of one class: which Ingresses each host has, its rules, its certificates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::certificates::ServerCertificates;
use super::super::host::{Parsed, Services, assemble, limits, redirect_to};
use super::super::table::{IngressTable, Served};
use super::super::{Finding, Options, Reason, VirtualGateway};
use super::Touched;
use crate::cluster::SecretState;
use crate::cluster::objects::namespace_of;
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
    /// As a canary.
    Canary,
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
    let role = if parsed.settings.canary.is_some() { Role::Canary } else { Role::Rules };
    let host = |text: &str| (!text.is_empty()).then(|| Arc::<str>::from(text.to_ascii_lowercase()));
    let own: BTreeSet<Host> = limits::rules(&parsed.ingress).map(|rule| host(&rule.host)).collect();
    let mut roles: BTreeSet<(Host, Role)> = own.iter().map(|host| (host.clone(), role.clone())).collect();
    if spec.rules.is_empty() && spec.default_backend.is_some() {
        roles.insert((None, role.clone()));
    }
    if role == Role::Canary {
        return roles;
    }
    // All aliases have the rules of one host: it could have only one of them.
    for alias in parsed.settings.aliases.iter().filter_map(|alias| host(alias)).map(Some) {
        let source =
            roles.iter().find(|(host, role)| *role == Role::Rules && *host != alias).map(|(host, _)| host.clone());
        roles.extend(source.map(|source| (alias, Role::Alias(source))));
    }
    for source in own.into_iter().flatten().filter(|source| parsed.settings.www_redirect && !source.starts_with("*.")) {
        let other = source.strip_prefix("www.").map_or_else(|| format!("www.{source}"), ToOwned::to_owned);
        roles.insert((Some(other.into()), Role::Www(source)));
    }
    if parsed.settings.policy.restricts() {
        // Rules for less specific hosts, of anybody, must not take the requests of hosts beyond the limit.
        let beyond = spec.rules.iter().skip(limits::MOST_RULES).map(|rule| host(&rule.host));
        roles.extend(beyond.map(|host| (host, Role::Rules)));
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

    /// Adds an Ingress; returns its hosts, and whether one of them has another owner now.
    pub(super) fn attach(&mut self, parsed: &Parsed) -> (BTreeSet<Host>, bool) {
        self.change(parsed, |have, member| have.insert(member))
    }

    /// Removes an Ingress; returns the same.
    pub(super) fn detach(&mut self, parsed: &Parsed) -> (BTreeSet<Host>, bool) {
        self.change(parsed, |have, member| have.remove(&member))
    }

    fn change(
        &mut self,
        parsed: &Parsed,
        apply: impl Fn(&mut BTreeSet<Member>, Member) -> bool,
    ) -> (BTreeSet<Host>, bool) {
        let mut differs = false;
        for (host, member) in members(parsed) {
            let have = self.members.entry(host.clone()).or_default();
            let before = owner(have).map(|owner| owner.key.clone());
            apply(have, member);
            let after = owner(have).map(|owner| &owner.key);
            differs |= before.as_deref().map(namespace_of) != after.map(|key| namespace_of(key));
            if have.is_empty() {
                self.members.remove(&host);
            }
        }
        (hosts_of(parsed), differs)
    }

    /// The Ingress to whose namespace a host belongs: the oldest one with rules for it, or for its wildcard.
    fn owner(&self, host: &str) -> Option<&Member> {
        let of = |host: &str| self.members.get(&Some(host.into())).and_then(owner);
        of(host).or_else(|| of(&format!("*.{}", host.split_once('.')?.1)))
    }

    /// The key of that Ingress.
    pub(super) fn owner_key(&self, host: &str) -> Option<&Arc<str>> {
        self.owner(host).map(|owner| &owner.key)
    }

    /// Computes hosts again. Whether the table differs.
    pub(super) fn assemble<'a>(
        &mut self,
        hosts: &BTreeSet<Host>,
        parsed: &dyn Fn(&str) -> Option<&'a Parsed>,
        services: Services<'_>,
        touched: &mut Touched,
    ) -> bool {
        let mut differs = false;
        for host in hosts {
            let (served, findings) = self.served(host, parsed, services);
            let table = &mut self.gateway.table;
            if table.get(host.as_deref()) != served.as_ref() {
                table.set(host.as_ref(), served);
                touched.hosts.entry(self.gateway.class.clone()).or_default().insert(host.clone());
                differs = true;
            }
            let before = match findings.is_empty() {
                true => self.findings.remove(host),
                false => self.findings.insert(host.clone(), findings.clone()),
            };
            if before.as_deref().unwrap_or_default() != findings {
                let owners = before.iter().flatten().chain(&findings).map(|(owner, _)| owner.clone());
                touched.ingresses.extend(owners);
            }
        }
        differs
    }

    /// What a host has, and what the owners of Ingresses should know.
    fn served<'a>(
        &self,
        host: &Host,
        parsed: &dyn Fn(&str) -> Option<&'a Parsed>,
        services: Services<'_>,
    ) -> (Option<Served>, Vec<(Arc<str>, Finding)>) {
        let members = || self.members.get(host).into_iter().flatten();
        let is_direct = |member: &&Member| matches!(member.role, Role::Rules | Role::Canary);
        let direct: Vec<_> = members().filter(is_direct).filter_map(|member| parsed(&member.key)).collect();
        let assembled = assemble(host.as_deref(), &direct, services);
        let (mut served, mut findings) = (assembled.rules.map(Served::Rules), assembled.findings);
        for member in members().filter(|member| !is_direct(member)) {
            let Some(owner) = parsed(&member.key) else { continue };
            if served.is_some() {
                let message =
                    format!("{} has rules of its own, or of an older Ingress", host.as_deref().unwrap_or("*"));
                findings.push((member.key.clone(), Finding { reason: Reason::AliasIgnored, message }));
                continue;
            }
            served = match &member.role {
                Role::Rules | Role::Canary => continue,
                Role::Alias(source) => Some(Served::Alias(source.clone())),
                Role::Www(source) => Some(Served::Rules(Arc::new(redirect_to(source, owner)))),
            };
        }
        (served, findings)
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
            self.add_certificates(parsed, secrets, &mut new, &mut findings);
        }
        self.refuse_wildcards(&mut new);
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
    /// Adds the certificates of an Ingress. A host that an older Ingress has a certificate for keeps it; one whose rules are of
    /// another namespace gets none.
    fn add_certificates(
        &self,
        parsed: &Parsed,
        secrets: &BTreeMap<Arc<str>, SecretState>,
        all: &mut ServerCertificates,
        findings: &mut Vec<(Arc<str>, Finding)>,
    ) {
        let (spec, namespace) = (&parsed.ingress.spec, &*parsed.ingress.metadata.namespace);
        let mut find = |message: String| {
            findings.push((parsed.key.clone(), Finding { reason: Reason::CertificateInvalid, message }));
        };
        for tls in spec.tls.iter().filter(|tls| !tls.secret_name.is_empty()).take(limits::MOST_RULES) {
            let key = format!("{namespace}/{}", tls.secret_name);
            let problem = match secrets.get_key_value(key.as_str()) {
                Some((key, SecretState::Certificate)) => {
                    let own = limits::rules(&parsed.ingress).map(|rule| &rule.host).filter(|host| !host.is_empty());
                    let hosts = if tls.hosts.is_empty() { own.collect() } else { tls.hosts.iter().collect::<Vec<_>>() };
                    for host in hosts.into_iter().map(|host| host.to_ascii_lowercase()) {
                        match self.owner(&host).filter(|owner| namespace_of(&owner.key) != namespace) {
                            Some(Member { key: owner, .. }) => find(format!(
                                "the certificate of Secret {key} is not shown for {host}, which belongs to the \
                                 namespace of Ingress {owner}"
                            )),
                            None => drop(all.hosts.entry(host.into()).or_insert_with(|| Some(key.clone()))),
                        }
                    }
                    continue;
                }
                Some((_, SecretState::Passwords)) => format!("Secret {key} has no certificate"),
                Some((_, SecretState::Invalid(why))) => format!("Secret {key} has no certificate: {why}"),
                None => format!("there is no Secret {key}"),
            };
            let instead =
                if all.default.is_some() { "the default certificate is shown" } else { "TLS handshakes fail" };
            find(format!("{problem}; {instead}"));
        }
    }

    /// Keeps hosts from the certificate of a wildcard of another namespace.
    fn refuse_wildcards(&self, all: &mut ServerCertificates) {
        for (host, owner) in self.members.iter().filter_map(|(host, have)| Some((host.as_ref()?, owner(have)?))) {
            let wildcard = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
            let secret = wildcard.and_then(|wildcard| all.hosts.get(wildcard.as_str())?.as_ref());
            let is_foreign = secret.is_some_and(|secret| namespace_of(secret) != namespace_of(&owner.key));
            if is_foreign && !all.hosts.contains_key(host) {
                all.hosts.insert(host.clone(), None);
            }
        }
    }
}

/// The one of the members of a host to whose namespace it belongs.
fn owner(members: &BTreeSet<Member>) -> Option<&Member> {
    members.first().filter(|member| member.role != Role::Canary)
}

fn members(parsed: &Parsed) -> impl Iterator<Item = (Host, Member)> {
    let created = &parsed.ingress.metadata.creation_timestamp;
    let member = |(host, role)| (host, Member { role, created: created.clone(), key: parsed.key.clone() });
    roles(parsed).into_iter().map(member)
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
    let service = options.service_of(class);
    GatewayConfig { key: key.clone(), service, listeners, client_certificate: None, proxies: None }
}
