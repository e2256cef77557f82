//! Explains the answer to a query: the objects behind each record, or what is missing.
//!
//! In: a name and a type. Out: the reply of [`ZoneSnapshot::answer`] with the source objects of each record, and a
//! one-sentence reason. For diagnosis only; it locks the writer state, which queries never do.

use std::fmt;
use std::net::IpAddr;

use crate::answer::{Outcome, Scratch};
use crate::forward::{Lookup, Transport};
use crate::parsed_name::{ParsedName, Part, parse_name};
use crate::records::{Kind, Service};
use crate::snapshot::{ZoneSnapshot, key_text};
use crate::wire::{BadName, IN, Message, Name, Record, from_text, rcode, rtype, to_text};
use crate::zone::{Pods, Quirks, Zone};

/// Object and field that a record was derived from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// Kind; empty for configuration.
    pub kind: &'static str,
    /// `namespace/name`.
    pub name: String,
    /// Field path, or description for configuration.
    pub field: &'static str,
}

/// Record with its source objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explained {
    /// The record.
    pub record: Record,
    /// Its source objects.
    pub from: Vec<Origin>,
}

/// Explanation of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// RCODE.
    pub rcode: u16,
    /// Answer section.
    pub answer: Vec<Explained>,
    /// Name that is resolved upstream; `answer` is then incomplete.
    pub forwarded: Option<String>,
    /// Reason in one sentence.
    pub why: String,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind.is_empty() {
            f.write_str(self.field)
        } else {
            write!(f, "{} {} ({})", self.kind, self.name, self.field)
        }
    }
}

impl ZoneSnapshot {
    /// Explains the answer to a query.
    ///
    /// # Errors
    /// When the text is not a domain name.
    pub fn explain(&self, text: &str, qtype: u16) -> Result<Explanation, BadName> {
        let wire = from_text(text)?;
        let name = Name::parse(&wire)?;
        let mut message = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&wire);
        message.extend([qtype.to_be_bytes(), IN.to_be_bytes()].concat());
        let mut out = Vec::new();
        let forwarded = match self.answer(&message, Transport::Tcp, &mut Scratch::new(1), &mut out) {
            Outcome::Reply | Outcome::NotReady => None,
            Outcome::Drop | Outcome::Forward => {
                let why = match self.zones.of(&name) {
                    Some(zone) => format!("{}; the query is forwarded", self.missing(&name, zone)),
                    None => "the name is outside the cluster zones; the query is forwarded".to_owned(),
                };
                return Ok(Explanation {
                    rcode: rcode::NOERROR,
                    answer: Vec::new(),
                    forwarded: Some(text.to_owned()),
                    why,
                });
            }
            Outcome::FollowCname(chain) => {
                self.finish_cname(&message, Transport::Tcp, &chain, &Lookup::default(), &mut out);
                Some(to_text(chain.target()))
            }
        };
        let Ok(reply) = Message::read(&out) else { return Err(BadName) };
        let count = usize::from(reply.count(crate::wire::Section::Answer));
        let records = reply.records().filter_map(Result::ok).take(count);
        let answer = records.map(|record| Explained { from: self.origins(&record), record }).collect::<Vec<_>>();
        let rcode = reply.flags() & 15;
        let why = self.why(&name, qtype, rcode, &answer, forwarded.as_deref());
        Ok(Explanation { rcode, answer, forwarded, why })
    }

    fn why(&self, name: &Name, qtype: u16, code: u16, answer: &[Explained], forwarded: Option<&str>) -> String {
        if !self.is_ready() {
            return "the initial lists are not complete".to_owned();
        }
        if let Some(target) = forwarded {
            return format!("CNAME to {target}, outside the cluster zones; resolved upstream");
        }
        match (self.zones.of(name), code) {
            _ if !answer.is_empty() => "derived from these objects".to_owned(),
            (Some(zone), rcode::NXDOMAIN) => self.missing(name, zone),
            (Some(zone), rcode::NOERROR) if self.leads_nowhere(name, zone) && qtype != rtype::CNAME => {
                "the CNAME chain is a loop or too long".to_owned()
            }
            (Some(_), rcode::NOERROR) => "NODATA: the name exists but has no record of this type".to_owned(),
            _ => "not answered by this server".to_owned(),
        }
    }

    fn leads_nowhere(&self, name: &Name, zone: &Zone) -> bool {
        let ParsedName::Service { key, part: Part::Whole } = parse_name(name, zone, Quirks::None) else { return false };
        self.service(key).is_some_and(|service| matches!(service.kind, Kind::ExternalName(_)))
    }

    /// What is missing for a name to exist.
    fn missing(&self, name: &Name, zone: &Zone) -> String {
        match parse_name(name, zone, self.config.quirks) {
            ParsedName::Namespace { label, .. } => self.no_namespace(label),
            ParsedName::Service { key, part } => self.missing_service(key, part),
            ParsedName::Pod { namespace, .. } if !self.is_visible(namespace) => self.no_namespace(namespace),
            ParsedName::Pod { before: 1.., .. } => "extra labels before the address of a Pod".to_owned(),
            ParsedName::Pod { namespace, address, .. } => match self.config.pods {
                Pods::Disabled => "Pod names are disabled".to_owned(),
                Pods::Insecure | Pods::Verified => {
                    format!("no Pod in namespace {} has address {address}", label_text(namespace))
                }
            },
            ParsedName::Address(address) => format!("no Service or ready endpoint has address {address}"),
            _ => format!("invalid name in zone {}", to_text(&zone.wire)),
        }
    }

    fn no_namespace(&self, label: &[u8]) -> String {
        let name = label_text(label);
        let listed = self.config.namespaces.is_empty() || self.config.namespaces.contains(&name);
        let hidden = if listed && self.config.namespace_labels.is_empty() { "" } else { " or is not served" };
        format!("namespace {name} does not exist{hidden}")
    }

    fn missing_service(&self, key: &[u8], part: Part<'_>) -> String {
        let text = key_text(key);
        let namespace = &key[1 + usize::from(key[0])..];
        if !self.is_visible(namespace) {
            return self.no_namespace(namespace);
        }
        let Some(service) = self.service(key) else { return format!("there is no Service {text}") };
        match (&service.kind, part) {
            (Kind::NoRecords, _) => format!("externalName of Service {text} is an IP address, not a name"),
            (Kind::ExternalName(_), _) => format!("Service {text} has type ExternalName and no names below it"),
            (Kind::Headless, _) if service.endpoints.is_empty() => {
                format!("Service {text} is headless and has no ready endpoint")
            }
            (_, Part::Endpoint(label)) => {
                format!("Service {text} has no ready endpoint named {}", String::from_utf8_lossy(label))
            }
            (_, Part::Port(port, protocol)) => {
                let [port, protocol] = [port, protocol].map(String::from_utf8_lossy);
                format!("Service {text} has no port named {port} of protocol {protocol}")
            }
            (_, Part::Whole) => format!("Service {text} has no ready endpoint (ignore_empty_service)"),
        }
    }

    /// Source objects of a record.
    fn origins(&self, record: &Record) -> Vec<Origin> {
        let configured = |field| vec![Origin { kind: "", name: String::new(), field }];
        let Ok(name) = Name::parse(&record.owner) else { return Vec::new() };
        let Some(zone) = self.zones.of(&name) else { return Vec::new() };
        match parse_name(&name, zone, self.config.quirks) {
            ParsedName::Service { key, part } => match self.service(key) {
                Some(service) => self.service_origins(&service, part, record),
                None => Vec::new(),
            },
            ParsedName::Address(address) => self.pointer_origins(address, record),
            ParsedName::Pod { namespace, address, .. } if self.config.pods == Pods::Verified => {
                let pods = self.pods_with(namespace, address);
                pods.into_iter().map(|name| Origin { kind: "Pod", name, field: "status.podIPs" }).collect()
            }
            ParsedName::Pod { .. } => configured("address in the query name"),
            ParsedName::Version => configured("version of the DNS specification"),
            _ => configured("zone configuration"),
        }
    }

    fn service_origins(&self, service: &Service, part: Part<'_>, record: &Record) -> Vec<Origin> {
        let own = |field| vec![Origin { kind: "Service", name: key_text(&service.key.wire), field }];
        let cluster = service.kind == Kind::Cluster && !matches!(part, Part::Endpoint(_));
        match (record.rtype, address_of(record)) {
            (rtype::CNAME, _) => own("spec.externalName"),
            (_, Some(_)) if cluster => own("spec.clusterIPs"),
            (_, Some(address)) => self.slices_with(service, &[address]),
            (rtype::SRV, _) if cluster => own("spec.ports"),
            (rtype::SRV, _) => self.slices_with(service, &addresses_of_target(service, record.data.get(6..))),
            _ => Vec::new(),
        }
    }

    fn pointer_origins(&self, address: IpAddr, record: &Record) -> Vec<Origin> {
        let Ok(target) = Name::parse(&record.data) else { return Vec::new() };
        let ParsedName::Service { key, part } = parse_name(&target, self.zones.primary(), Quirks::None) else {
            return Vec::new();
        };
        match (self.service(key), part) {
            (Some(service), Part::Endpoint(_)) => self.slices_with(&service, &[address]),
            _ => vec![Origin { kind: "Service", name: key_text(key), field: "spec.clusterIPs" }],
        }
    }

    fn slices_with(&self, service: &Service, addresses: &[IpAddr]) -> Vec<Origin> {
        let namespace = label_text(&service.namespace.wire);
        self.service_state(&service.key.wire, |service_state| {
            let slices = service_state.map(|service_state| &service_state.slices[..]).unwrap_or_default();
            let with =
                slices.iter().filter(|slice| slice.endpoints.all().iter().any(|one| addresses.contains(&one.address)));
            let origin =
                |name| Origin { kind: "EndpointSlice", name: format!("{namespace}/{name}"), field: "endpoints" };
            with.map(|slice| origin(&slice.name)).collect()
        })
    }
}

fn label_text(wire: &[u8]) -> String {
    String::from_utf8_lossy(wire.get(1..).unwrap_or_default()).into_owned()
}

fn address_of(record: &Record) -> Option<IpAddr> {
    match record.rtype {
        rtype::A => <[u8; 4]>::try_from(&record.data[..]).ok().map(IpAddr::from),
        rtype::AAAA => <[u8; 16]>::try_from(&record.data[..]).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Addresses of the endpoint that an SRV target names.
fn addresses_of_target(service: &Service, target: Option<&[u8]>) -> Vec<IpAddr> {
    let Some(name) = target.and_then(|target| Name::parse(target).ok()).filter(|name| name.count() > 0) else {
        return Vec::new();
    };
    service.endpoints.named(name.label(0)).iter().map(|endpoint| endpoint.address).collect()
}

#[cfg(test)]
mod tests;
