//! Why a name is answered as it is: which objects each record came from, and what is missing when there is none.
//!
//! In: a name and a type, as a person asks. Out: the reply of [`Book::answer`], record by record, each with the objects
//! behind it, and a sentence. For people and their tools; it looks where the writer keeps things, which the hot path
//! never does.

use std::fmt;
use std::net::IpAddr;

use crate::answer::{Outcome, Scratch};
use crate::beyond::{Lookup, Transport};
use crate::book::{Book, text_of};
use crate::place::{Part, Place, place};
use crate::records::{Kind, Service};
use crate::wire::{BadName, IN, Message, Name, Record, from_text, rcode, rtype, to_text};
use crate::zone::{Pods, Quirks, Zone};

/// An object, and what of it made a record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// Its kind; empty for our own configuration.
    pub kind: &'static str,
    /// `namespace/name`.
    pub name: String,
    /// The part of it.
    pub field: &'static str,
}

/// A record and the objects it came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explained {
    /// The record.
    pub record: Record,
    /// The objects.
    pub from: Vec<Origin>,
}

/// Why a name is answered as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The code of the reply.
    pub rcode: u16,
    /// The records of the answer.
    pub answer: Vec<Explained>,
    /// The name that others are asked for; the answer then is only our part of it.
    pub beyond: Option<String>,
    /// In a sentence.
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

impl Book {
    /// Explains a name.
    ///
    /// # Errors
    /// When the text is not a name.
    pub fn explain(&self, text: &str, qtype: u16) -> Result<Explanation, BadName> {
        let wire = from_text(text)?;
        let name = Name::parse(&wire)?;
        let mut message = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&wire);
        message.extend([qtype.to_be_bytes(), IN.to_be_bytes()].concat());
        let mut out = Vec::new();
        let beyond = match self.answer(&message, Transport::Tcp, &mut Scratch::new(1), &mut out) {
            Outcome::Reply | Outcome::Unready => None,
            Outcome::Silent | Outcome::Beyond => {
                let why = match self.zones.of(&name) {
                    Some(zone) => format!("{}; others are asked for it", self.missing(&name, zone)),
                    None => "the name is in none of our zones; others are asked for it".to_owned(),
                };
                return Ok(Explanation {
                    rcode: rcode::NOERROR,
                    answer: Vec::new(),
                    beyond: Some(text.to_owned()),
                    why,
                });
            }
            Outcome::Chase(chase) => {
                self.chased(&message, Transport::Tcp, &chase, &Lookup::default(), &mut out);
                Some(to_text(chase.target()))
            }
        };
        let Ok(reply) = Message::read(&out) else { return Err(BadName) };
        let count = usize::from(reply.count(crate::wire::Section::Answer));
        let records = reply.records().filter_map(Result::ok).take(count);
        let answer = records.map(|record| Explained { from: self.origins(&record), record }).collect::<Vec<_>>();
        let rcode = reply.flags() & 15;
        let why = self.why(&name, qtype, rcode, &answer, beyond.as_deref());
        Ok(Explanation { rcode, answer, beyond, why })
    }

    fn why(&self, name: &Name, qtype: u16, code: u16, answer: &[Explained], beyond: Option<&str>) -> String {
        if !self.is_ready() {
            return "not every object is known yet".to_owned();
        }
        if let Some(target) = beyond {
            return format!("it is another name for {target}, which is not ours; others are asked for that");
        }
        match (self.zones.of(name), code) {
            _ if !answer.is_empty() => "the objects say so".to_owned(),
            (Some(zone), rcode::NXDOMAIN) => self.missing(name, zone),
            (Some(zone), rcode::NOERROR) if self.leads_nowhere(name, zone) && qtype != rtype::CNAME => {
                "it is another name, and following it leads in a circle or too far".to_owned()
            }
            (Some(_), rcode::NOERROR) => "the name exists, and has no record of this type".to_owned(),
            _ => "this is not answered here".to_owned(),
        }
    }

    fn leads_nowhere(&self, name: &Name, zone: &Zone) -> bool {
        let Place::Service { key, part: Part::Whole } = place(name, zone, Quirks::None) else { return false };
        self.service(key).is_some_and(|service| matches!(service.kind, Kind::Alias(_)))
    }

    /// What would have to be there for a name to exist.
    fn missing(&self, name: &Name, zone: &Zone) -> String {
        match place(name, zone, self.config.quirks) {
            Place::Namespace { label, .. } => self.no_namespace(label),
            Place::Service { key, part } => self.missing_service(key, part),
            Place::Pod { namespace, .. } if !self.is_shown(namespace) => self.no_namespace(namespace),
            Place::Pod { before: 1.., .. } => "labels stand before the address of a Pod".to_owned(),
            Place::Pod { namespace, address, .. } => match self.config.pods {
                Pods::Disabled => "names of Pods are switched off".to_owned(),
                Pods::Insecure | Pods::Verified => {
                    format!("no Pod of namespace {} has address {address}", label_text(namespace))
                }
            },
            Place::Address(address) => format!("no Service and no ready endpoint has address {address}"),
            _ => format!("no name of this form exists in zone {}", to_text(&zone.wire)),
        }
    }

    fn no_namespace(&self, label: &[u8]) -> String {
        let name = label_text(label);
        let listed = self.config.namespaces.is_empty() || self.config.namespaces.contains(&name);
        let hidden = if listed && self.config.namespace_labels.is_empty() { "" } else { " or is not shown" };
        format!("namespace {name} does not exist{hidden}")
    }

    fn missing_service(&self, key: &[u8], part: Part<'_>) -> String {
        let text = text_of(key);
        let namespace = &key[1 + usize::from(key[0])..];
        if !self.is_shown(namespace) {
            return self.no_namespace(namespace);
        }
        let Some(service) = self.service(key) else { return format!("there is no Service {text}") };
        match (&service.kind, part) {
            (Kind::Nothing, _) => format!("Service {text} names an address where a name belongs"),
            (Kind::Alias(_), _) => format!("Service {text} is another name, which has nothing below it"),
            (Kind::Headless, _) if service.endpoints.is_empty() => {
                format!("Service {text} has no address of its own and no ready endpoint")
            }
            (_, Part::Endpoint(label)) => {
                format!("Service {text} has no ready endpoint named {}", String::from_utf8_lossy(label))
            }
            (_, Part::Port(port, protocol)) => {
                let [port, protocol] = [port, protocol].map(String::from_utf8_lossy);
                format!("Service {text} has no port named {port} of protocol {protocol}")
            }
            (_, Part::Whole) => format!("Service {text} has no ready endpoint, and such are left out here"),
        }
    }

    /// The objects that a record came from.
    fn origins(&self, record: &Record) -> Vec<Origin> {
        let configured = |field| vec![Origin { kind: "", name: String::new(), field }];
        let Ok(name) = Name::parse(&record.owner) else { return Vec::new() };
        let Some(zone) = self.zones.of(&name) else { return Vec::new() };
        match place(&name, zone, self.config.quirks) {
            Place::Service { key, part } => match self.service(key) {
                Some(service) => self.service_origins(&service, part, record),
                None => Vec::new(),
            },
            Place::Address(address) => self.pointer_origins(address, record),
            Place::Pod { namespace, address, .. } if self.config.pods == Pods::Verified => {
                let pods = self.pods_with(namespace, address);
                pods.into_iter().map(|name| Origin { kind: "Pod", name, field: "status.podIPs" }).collect()
            }
            Place::Pod { .. } => configured("the address that the name spells"),
            Place::Version => configured("the version of the rules for names"),
            _ => configured("the zone"),
        }
    }

    fn service_origins(&self, service: &Service, part: Part<'_>, record: &Record) -> Vec<Origin> {
        let own = |field| vec![Origin { kind: "Service", name: text_of(&service.key.wire), field }];
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
        let Place::Service { key, part } = place(&target, self.zones.primary(), Quirks::None) else {
            return Vec::new();
        };
        match (self.service(key), part) {
            (Some(service), Part::Endpoint(_)) => self.slices_with(&service, &[address]),
            _ => vec![Origin { kind: "Service", name: text_of(key), field: "spec.clusterIPs" }],
        }
    }

    fn slices_with(&self, service: &Service, addresses: &[IpAddr]) -> Vec<Origin> {
        let namespace = label_text(&service.namespace.wire);
        self.held(&service.key.wire, |held| {
            let slices = held.map(|held| &held.slices[..]).unwrap_or_default();
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

/// The addresses of the endpoint that a target names.
fn addresses_of_target(service: &Service, target: Option<&[u8]>) -> Vec<IpAddr> {
    let Some(name) = target.and_then(|target| Name::parse(target).ok()).filter(|name| name.count() > 0) else {
        return Vec::new();
    };
    service.endpoints.named(name.label(0)).iter().map(|endpoint| endpoint.address).collect()
}

#[cfg(test)]
mod tests;
