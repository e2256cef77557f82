//! What a rule makes of a request: the changed request, its backends with their shares and endpoints, or an answer of the
//! gateway itself.

use http::header::ORIGIN;
use routing::filters::{Filters, RedirectRequest};
use routing::model::{Backend, ListenerProtocol, Rule, StreamRule, Target};
use serde::Serialize;

use super::{Layer7, Request, filters, invalid_text, share};
use crate::layer7::objects::Kind;
use crate::layer7::{ENDPOINTS, Endpoint, Subject};

/// What the client gets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Answer {
    /// What happens.
    pub outcome: Outcome,
    /// The status that the gateway answers with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why.
    pub why: String,
}

/// What happens to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// A backend gets it.
    Forwarded,
    /// The gateway answers it.
    Answered,
    /// No connection is opened.
    Refused,
    /// The connection is closed.
    Reset,
}

impl Answer {
    pub(super) fn refused(why: impl Into<String>) -> Self {
        Self { outcome: Outcome::Refused, status: None, why: why.into() }
    }

    pub(super) fn reset(why: impl Into<String>) -> Self {
        Self { outcome: Outcome::Reset, status: None, why: why.into() }
    }

    pub(super) fn status(status: u16, why: impl Into<String>) -> Self {
        Self { outcome: Outcome::Answered, status: Some(status), why: why.into() }
    }

    pub(super) fn forwarded(why: impl Into<String>) -> Self {
        Self { outcome: Outcome::Forwarded, status: None, why: why.into() }
    }

    /// Whether the client gets an error.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        match self.outcome {
            Outcome::Forwarded => false,
            Outcome::Answered => self.status.is_some_and(|status| status >= 400),
            Outcome::Refused | Outcome::Reset => true,
        }
    }
}

/// The rule that takes a request.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Taken {
    /// Its route.
    pub route: Subject,
    /// Its place in the route.
    pub rule: usize,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its filters.
    pub filters: Vec<String>,
    /// The request as a backend gets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarded: Option<Forwarded>,
    /// Its backends.
    pub backends: Vec<BackendStep>,
}

/// A request as a backend gets it, without what the gateway adds to every request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Forwarded {
    /// The host.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// The headers of the request, as the filters have changed them: `name: value`.
    pub headers: Vec<String>,
}

/// A backend of the rule.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BackendStep {
    /// The Service and the port.
    pub target: String,
    /// Its weight.
    pub weight: u32,
    /// Its share of the requests: `weight 1 of 4`.
    pub share: String,
    /// Its filters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<String>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// How many more endpoints there are.
    pub more_endpoints: usize,
    /// The status that requests for it get, where no endpoint can get them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl Layer7<'_> {
    /// What an HTTP rule makes of a request; `prefix` is the path prefix that matched.
    pub(super) fn answer(&self, request: &Request, port: u16, rule: &Rule, prefix: Option<&str>) -> (Taken, Answer) {
        let mut taken = Taken {
            route: Kind::of_route(rule.route.kind).subject(&rule.route.key),
            rule: rule.index,
            name: rule.name.as_deref().map(str::to_owned),
            filters: rule.filters.iter().map(filters::text).collect(),
            forwarded: None,
            backends: self.backend_steps(&rule.backends),
        };
        if let Some(why) = &rule.broken {
            return (taken, Answer::status(500, format!("the rule cannot be applied: {why}")));
        }
        let compiled = match Filters::compile(&rule.filters) {
            Ok(compiled) => compiled,
            Err(error) => return (taken, Answer::status(500, error.to_string())),
        };
        if let Some(answer) = own_answer(request, port, &compiled, prefix) {
            return (taken, answer);
        }
        taken.forwarded = Some(forwarded(request, &compiled, prefix));
        let answer = by_backends(&taken.backends);
        (taken, answer)
    }

    /// The same for bytes.
    pub(super) fn stream_answer(&self, protocol: ListenerProtocol, rule: &StreamRule) -> (Taken, Answer) {
        let taken = Taken {
            route: Kind::of_route(rule.route.kind).subject(&rule.route.key),
            rule: 0,
            name: None,
            filters: Vec::new(),
            forwarded: None,
            backends: self.backend_steps(&rule.backends),
        };
        let answer = match by_backends(&taken.backends) {
            Answer { outcome: Outcome::Forwarded, why, .. } => {
                let how = match protocol {
                    ListenerProtocol::TlsPassthrough => "the TLS connection is passed on as it is",
                    ListenerProtocol::TlsTerminate => "TLS ends at the listener, and the bytes are passed on",
                    _ => "the bytes are passed on",
                };
                Answer::forwarded(format!("{how}; {why}"))
            }
            other => Answer::reset(format!("{}: the connection is reset", other.why)),
        };
        (taken, answer)
    }

    pub(super) fn backend_steps(&self, backends: &[Backend]) -> Vec<BackendStep> {
        let sum: u64 = backends.iter().map(|one| u64::from(one.weight)).sum();
        backends.iter().map(|backend| self.backend_step(backend, sum)).collect()
    }

    fn backend_step(&self, backend: &Backend, sum: u64) -> BackendStep {
        let (target, mut endpoints, failure) = match &backend.target {
            Target::Invalid(why) => ("none".to_owned(), Vec::new(), Some((500, invalid_text(*why)))),
            Target::Service(target) => {
                let endpoints = self.endpoints(target);
                let failure = (!endpoints.iter().any(|one| one.ready)).then_some((503, "it has no ready endpoint"));
                (format!("Service {} port {}", target.service, target.port), endpoints, failure)
            }
        };
        let more_endpoints = endpoints.len().saturating_sub(ENDPOINTS);
        endpoints.truncate(ENDPOINTS);
        BackendStep {
            target,
            weight: backend.weight,
            share: share(backend.weight, sum),
            filters: backend.filters.iter().map(filters::text).collect(),
            endpoints,
            more_endpoints,
            status: failure.map(|(status, _)| status),
            why: failure.map_or_else(String::new, |(_, why)| why.to_owned()),
        }
    }
}

/// The answer of filters that need no backend.
fn own_answer(request: &Request, port: u16, compiled: &Filters, prefix: Option<&str>) -> Option<Answer> {
    let is_preflight = |headers: &http::HeaderMap| {
        let cors = compiled.cors.as_ref()?;
        cors.preflight(&request.method, headers)
    };
    if request.headers.contains_key(ORIGIN) && is_preflight(&request.headers).is_some() {
        return Some(Answer::status(204, "the filter CORS answers preflight requests"));
    }
    let (status, location) = compiled.redirect.as_ref()?.location(&RedirectRequest {
        scheme: request.scheme(),
        host: &request.host,
        path: &request.path,
        query: request.query.as_deref(),
        listener_port: port,
        prefix,
    });
    Some(Answer::status(status.as_u16(), format!("redirected to {}", location.to_str().unwrap_or_default())))
}

fn forwarded(request: &Request, compiled: &Filters, prefix: Option<&str>) -> Forwarded {
    let rewrite = compiled.rewrite.as_ref();
    let path = rewrite.map_or((&*request.path).into(), |rewrite| rewrite.path(&request.path, prefix));
    let query = request.query.as_deref().map(|query| format!("?{query}")).unwrap_or_default();
    let mut headers = request.headers.clone();
    compiled.modify_request(&mut headers);
    let host = rewrite.and_then(|rewrite| rewrite.hostname.as_deref()).unwrap_or(&request.host);
    Forwarded { host: host.to_owned(), path: format!("{path}{query}"), headers: header_lines(&headers) }
}

pub(super) fn header_lines(headers: &http::HeaderMap) -> Vec<String> {
    headers.iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))).collect()
}

/// The answer that follows from the backends of a rule.
pub(super) fn by_backends(backends: &[BackendStep]) -> Answer {
    let used: Vec<&BackendStep> = backends.iter().filter(|one| one.weight > 0).collect();
    let (good, bad): (Vec<&BackendStep>, Vec<&BackendStep>) = used.iter().partition(|one| one.status.is_none());
    match (&good[..], &bad[..]) {
        ([], []) => Answer::status(500, "the rule has no backend"),
        ([], [first, ..]) => Answer::status(first.status.unwrap_or(500), format!("{}: {}", first.target, first.why)),
        ([one], []) => Answer::forwarded(format!("to {}", one.target)),
        (all, []) => Answer::forwarded(format!("to one of {} backends, by weight", all.len())),
        (_, bad) => {
            let each: Vec<String> = bad
                .iter()
                .map(|one| format!("{} gets status {} ({})", one.share, one.status.unwrap_or(500), one.why))
                .collect();
            Answer::forwarded(format!("to a backend by weight; {}", each.join("; ")))
        }
    }
}
