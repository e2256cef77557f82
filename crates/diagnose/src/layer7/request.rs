//! Traces of requests: which listener and which rule take one, why the others do not, and what the client gets.
//!
//! ```text
//! request ──▶ candidates: Gateways, classes of Ingresses and Services at layer 7 with its address or host
//!                └──▶ listener (port, SNI, Host) ──▶ rules in order ──▶ filters ──▶ backends ──▶ answer
//! ```
//! In: a [`Request`]. Out: a [`Trace`] with a [`Candidate`] for each Gateway that may be meant. The decisions are those of
//! the tables with which gateways serve.

mod answer;
mod filters;
mod ingress;
mod listeners;
mod rules;
mod services;

use std::net::IpAddr;

use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use routing::hosts::{covers, host_of};
use routing::http_table::RequestView;
use routing::model::{GatewayConfig, InvalidTarget};
use serde::Serialize;

pub use answer::{Answer, BackendStep, Forwarded, Outcome, Taken};
pub(super) use filters::text as filter_text;
pub use listeners::ListenerStep;
pub use rules::RuleStep;
use rules::Served;

use super::objects::Kind;
use super::{Layer7, Subject, near};
use crate::finding::Finding;

/// The most Gateways that are shown.
const CANDIDATES: usize = 8;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Whether it is sent over TLS.
    pub tls: bool,
    /// The host of the URL, in lower case: where the connection goes.
    pub url_host: String,
    /// The port.
    pub port: u16,
    /// The host that rules see, in lower case: that of the header `Host`, or of the URL.
    pub host: String,
    /// The server name (SNI).
    pub server_name: Option<String>,
    /// The method.
    pub method: Method,
    /// The path.
    pub path: String,
    /// The query.
    pub query: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
}

/// Arguments that are not a request.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum RequestError {
    /// Not a URL.
    #[error("{0:?} is not a URL; write http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH")]
    Url(String),
    /// Not a method.
    #[error("{0:?} is not a method of HTTP")]
    Method(String),
    /// Not a header.
    #[error("{0:?} is not a header; write 'Name: value'")]
    Header(String),
}

impl Request {
    /// Reads a URL, a method, headers as `Name: value`, and a server name, which is the host of the URL unless given.
    ///
    /// # Errors
    /// When one of them is not valid.
    pub fn parse(url: &str, method: &str, headers: &[String], server_name: Option<&str>) -> Result<Self, RequestError> {
        let bad = || RequestError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(bad()),
        };
        let url_host = host_of(uri.authority().ok_or_else(bad)?.as_str()).into_owned();
        if url_host.is_empty() {
            return Err(bad());
        }
        let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes())
            .map_err(|_| RequestError::Method(method.to_owned()))?;
        let mut map = HeaderMap::new();
        for text in headers {
            let (name, value) = text.split_once(':').ok_or_else(|| RequestError::Header(text.clone()))?;
            let name: HeaderName = name.trim().parse().map_err(|_| RequestError::Header(text.clone()))?;
            let value: HeaderValue = value.trim().parse().map_err(|_| RequestError::Header(text.clone()))?;
            map.append(name, value);
        }
        let given = map.remove(HOST).and_then(|value| value.to_str().ok().map(|host| host_of(host).into_owned()));
        // A server name is never an address (RFC 6066).
        let named = || Some(url_host.clone()).filter(|_| address(&url_host).is_none());
        Ok(Self {
            tls,
            port: uri.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            host: given.unwrap_or_else(|| url_host.clone()),
            server_name: server_name.map(str::to_ascii_lowercase).or_else(named).filter(|_| tls),
            url_host,
            method,
            path: uri.path().to_owned(),
            query: uri.query().map(str::to_owned),
            headers: map,
        })
    }

    /// Whether it is a gRPC call.
    pub(super) fn is_grpc(&self) -> bool {
        self.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
    }

    pub(super) const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    pub(super) fn view(&self) -> RequestView<'_> {
        let Self { method, host, path, query, headers, .. } = self;
        RequestView { method, host, path, query: query.as_deref(), headers }
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}://{}:{}{}", self.method, self.scheme(), self.url_host, self.port, self.path)?;
        if let Some(query) = &self.query {
            write!(f, "?{query}")?;
        }
        if self.host != self.url_host {
            write!(f, " with host {}", self.host)?;
        }
        Ok(())
    }
}

/// What becomes of a request.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trace {
    /// The request.
    pub request: String,
    /// The Gateways, the classes of Ingresses and the Services at layer 7 that may be meant.
    pub candidates: Vec<Candidate>,
    /// What else there is to know.
    pub notes: Vec<String>,
}

/// What becomes of a request at a Gateway, or at the Ingresses of a class.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Candidate {
    /// The Gateway, the IngressClass, or the Service at layer 7.
    pub gateway: Subject,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Why it may be meant.
    pub why: &'static str,
    /// Its listeners; of a Service, its port for a group of clients.
    pub listeners: Vec<ListenerStep>,
    /// The rules of the chosen listener in the order in which they are tried.
    pub rules: Vec<RuleStep>,
    /// How many more rules there are, none of which takes the request.
    pub more_rules: usize,
    /// The rule that takes the request.
    pub taken: Option<Taken>,
    /// What the client gets.
    pub answer: Answer,
    /// What is wrong with the Gateway, or with the object of the rule.
    pub findings: Vec<Finding>,
}

/// Why a Gateway is traced.
mod chosen {
    pub(super) const NAMED: &str = "it was named";
    pub(super) const ADDRESS: &str = "it has the address";
    pub(super) const HOST: &str = "it has a listener for the host";
    pub(super) const NONE: &str = "no listener is for the host and port; this is what would happen at its addresses";
}

/// An IP address, with or without brackets.
fn address(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

impl Layer7<'_> {
    /// Traces a request: at the Gateway `namespace/name` if that is given, else at those that its address or host selects.
    #[must_use]
    pub fn trace(&self, request: &Request, gateway: Option<&str>) -> Trace {
        let mut notes = Vec::new();
        let mut candidates = match gateway {
            Some(key) => match self.cluster.config(key) {
                Some(config) => vec![self.at_gateway(request, &config, chosen::NAMED)],
                None => {
                    notes.push(self.why_not_served(key));
                    Vec::new()
                }
            },
            None => match address(&request.url_host) {
                Some(ip) => self.by_address(request, ip, &mut notes),
                None => self.by_host(request),
            },
        };
        let more = candidates.len().saturating_sub(CANDIDATES);
        if more > 0 {
            candidates.truncate(CANDIDATES);
            notes.push(format!("{more} more Gateways are not shown; name one with --gateway"));
        } else if candidates.len() > 1 {
            let why = "the address to which the host resolves decides between them; name one with --gateway";
            notes.push(why.to_owned());
        }
        if candidates.is_empty() && notes.is_empty() {
            notes.push("there is no Gateway or IngressClass that Waypost serves".to_owned());
        }
        if !request.is_grpc() && candidates.iter().any(|one| self.has_grpc(one)) {
            notes.push("GRPCRoutes take gRPC calls only: requests with content-type application/grpc".to_owned());
        }
        Trace { request: request.to_string(), candidates, notes }
    }

    fn by_address(&self, request: &Request, ip: IpAddr, notes: &mut Vec<String>) -> Vec<Candidate> {
        let has = |addresses: &[String]| addresses.iter().any(|one| address(one) == Some(ip));
        let gateways = self.cluster.configs().filter(|config| has(&self.addresses(config)));
        let mut all: Vec<Candidate> =
            gateways.map(|config| self.at_gateway(request, config, chosen::ADDRESS)).collect();
        let classes = self.ingresses.gateways().filter(|gateway| has(&self.addresses(&gateway.config)));
        all.extend(classes.map(|gateway| self.at_ingresses(request, gateway, chosen::ADDRESS)));
        all.extend(self.at_services_with(request, ip));
        if all.is_empty() {
            notes.push(format!(
                "no Gateway and no Service at layer 7 has the address {ip}; `waypost who {ip}` shows whose it is"
            ));
        }
        all
    }

    fn by_host(&self, request: &Request) -> Vec<Candidate> {
        let host = request.server_name.as_deref().unwrap_or(&request.host);
        let serves = |config: &GatewayConfig| {
            let on_port = config.listeners.iter().filter(|listener| listener.port == request.port);
            on_port.map(|listener| listener.hostname.as_deref()).any(|name| covers(name, host))
        };
        let fits = |config: &&std::sync::Arc<GatewayConfig>| serves(config);
        let mut all = self.at_services_named(request);
        all.extend(self.cluster.configs().filter(fits).map(|config| self.at_gateway(request, config, chosen::HOST)));
        let classes = self.ingresses.gateways().filter(|gateway| serves(&gateway.config));
        let by_class = classes.map(|gateway| self.at_ingresses(request, gateway, chosen::HOST));
        // Listeners of a class take all hosts: of interest are those with a rule, unless nothing else is.
        let (with_rule, without): (Vec<_>, Vec<_>) = by_class.partition(|one| one.taken.is_some());
        all.extend(with_rule);
        if all.is_empty() {
            all.extend(without);
        }
        if all.is_empty() {
            all.extend(self.cluster.configs().map(|config| self.at_gateway(request, config, chosen::NONE)));
        }
        all
    }

    /// The addresses of the Service of a Gateway or class.
    fn addresses(&self, config: &GatewayConfig) -> Vec<String> {
        let service = self.snapshot.services().get(&*config.service);
        service.map(|service| service.ingress().into_iter().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Why a named Gateway serves nothing.
    fn why_not_served(&self, key: &str) -> String {
        if !self.objects.gateways.contains_key(key) {
            let hint = near::key(key, self.objects.gateways.keys().map(|key| &**key));
            let hint = hint.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            return format!("there is no Gateway {key}{hint}");
        }
        let first = self.of(Kind::Gateway, key).into_iter().next();
        let why = first.map_or_else(|| "it is not accepted".to_owned(), |finding| finding.message);
        format!("Gateway {key} serves nothing: {why}")
    }

    fn has_grpc(&self, candidate: &Candidate) -> bool {
        let chosen = candidate.listeners.iter().find(|one| one.chosen).and_then(|one| one.id.as_ref());
        chosen.is_some_and(|id| {
            self.cluster.attached(&id.clone().into()).any(|(route, ..)| route.kind == routing::model::RouteKind::Grpc)
        })
    }

    /// What becomes of a request at a Gateway.
    fn at_gateway(&self, request: &Request, config: &GatewayConfig, why: &'static str) -> Candidate {
        let choice = self.choose_listener(request, config);
        let mut candidate = Candidate {
            gateway: Kind::Gateway.subject(&config.key),
            addresses: self.addresses(config),
            why,
            listeners: choice.steps,
            rules: Vec::new(),
            more_rules: 0,
            taken: None,
            answer: Answer::refused(""),
            findings: Vec::new(),
        };
        match choice.listener {
            Err(answer) => candidate.answer = answer,
            Ok(listener) => {
                let place = listener.id.clone().into();
                let served = Served { place: &place, protocol: listener.protocol, port: listener.port };
                self.apply_rules(request, served, &mut candidate);
            }
        }
        if candidate.addresses.is_empty() {
            candidate.findings.extend(self.of(Kind::Gateway, &config.key));
        }
        self.add_findings_of_rule(&mut candidate);
        candidate
    }

    /// Adds what is wrong with the object of the rule, if its requests fail.
    fn add_findings_of_rule(&self, candidate: &mut Candidate) {
        if let Some(taken) = &candidate.taken
            && let Some(kind) = Kind::named(taken.route.kind)
            && candidate.answer.is_failure()
        {
            candidate.findings.extend(self.of(kind, &taken.route.key));
        }
    }
}

/// A share of a weight: `weight 1 of 4`.
pub(super) fn share(weight: u32, sum: u64) -> String {
    format!("weight {weight} of {sum}")
}

/// Why a reference to a backend leads nowhere.
pub(super) const fn invalid_text(why: InvalidTarget) -> &'static str {
    match why {
        InvalidTarget::InvalidKind => "it is not a Service with endpoints",
        InvalidTarget::RefNotPermitted => "no ReferenceGrant permits the reference",
        InvalidTarget::BackendNotFound => "there is no such Service, or it has no such port",
        InvalidTarget::UnsupportedProtocol => "the application protocol of the port cannot be used",
        InvalidTarget::InvalidTlsPolicy => "the BackendTLSPolicy is not valid",
    }
}
