//! Which rule of a listener or of a port of a Service takes a request, and the first condition of each other rule that does not hold.
//!
//! In: a request, and the routes that are attached there. Out: steps in the order of precedence, and the rule.

use std::sync::Arc;

use api::view::gateway_api::{HttpRouteMatch, NamedMatch};
use routing::cluster::RouteState;
use routing::grpc_table::GrpcTable;
use routing::hosts::{HostMap, covers};
use routing::http_table::{Considered, Failed, HttpTable, RouteEntry};
use routing::model::{ListenerProtocol, Matches, Place, RouteId, RouteKind, Rule, StreamRule};
use serde::Serialize;

use super::answer::Answer;
use super::{Candidate, Layer7, Request};
use crate::layer7::objects::Kind;
use crate::layer7::{Subject, matches};
use crate::words::list;

/// The most rules that are shown.
const SHOWN: usize = 50;

/// A rule, and whether it takes the request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RuleStep {
    /// Its route.
    pub route: Subject,
    /// Its place in the route.
    pub rule: usize,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The hostname of the route that covers the host; `*` for a route for all hosts.
    pub host: String,
    /// Its conditions.
    pub condition: String,
    /// Whether it takes the request.
    pub taken: bool,
    /// Why it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// What takes a request: a listener, or a port of a Service.
#[derive(Clone, Copy)]
pub(super) struct Served<'a> {
    pub(super) place: &'a Place,
    pub(super) protocol: ListenerProtocol,
    pub(super) port: u16,
}

/// The tables of a place, as the gateway makes them.
#[derive(Default)]
struct Tables {
    http: HttpTable<Arc<Rule>>,
    grpc: GrpcTable<Arc<Rule>>,
}

impl Layer7<'_> {
    /// Finds the rule of a request, and what follows from it.
    pub(super) fn apply_rules(&self, request: &Request, served: Served<'_>, candidate: &mut Candidate) {
        match served.protocol {
            ListenerProtocol::Http | ListenerProtocol::Https => self.apply_http(request, served, candidate),
            _ => self.apply_stream(request, served, candidate),
        }
    }

    fn apply_http(&self, request: &Request, served: Served<'_>, candidate: &mut Candidate) {
        let mut tables = Tables::default();
        for (id, state, hostnames) in self.cluster.attached(served.place) {
            tables.insert(id, state, hostnames);
        }
        let view = request.view();
        let mut considered = if request.is_grpc() { tables.grpc.explain(&view) } else { Vec::new() };
        considered.extend(tables.http.explain(&view));
        let first = considered.iter().position(|one| one.failed.is_none());
        let steps = considered.iter().enumerate().map(|(place, one)| rule_step(request, one, first, place));
        (candidate.rules, candidate.more_rules) = shown(steps.collect(), first);
        let uncovered = self.uncovered(request, served);
        candidate.more_rules += uncovered.len().saturating_sub(SHOWN);
        candidate.rules.extend(uncovered.into_iter().take(SHOWN));
        let by_grpc = request.is_grpc().then(|| tables.grpc.find(&view)).flatten();
        match by_grpc.or_else(|| tables.http.find(&view)) {
            Some(selected) => {
                let (taken, answer) = self.answer(request, served.port, selected.rule, selected.prefix);
                (candidate.taken, candidate.answer) = (Some(taken), answer);
            }
            None => {
                let has_routes = self.cluster.attached(served.place).next().is_some();
                candidate.answer = Answer::status(404, no_rule(request, has_routes));
            }
        }
    }

    /// Routes of the listener whose hostnames do not cover the host.
    fn uncovered(&self, request: &Request, served: Served<'_>) -> Vec<RuleStep> {
        let all = self.cluster.attached(served.place);
        let others = all
            .filter(|(_, _, hosts)| !hosts.is_empty() && !hosts.iter().any(|host| covers(Some(host), &request.host)));
        others
            .map(|(id, _, hosts)| RuleStep {
                route: Kind::of_route(id.kind).subject(&id.key),
                rule: 0,
                name: None,
                host: list(hosts, 3),
                condition: String::new(),
                taken: false,
                why_not: Some(format!("its hostnames do not cover host {}", request.host)),
            })
            .collect()
    }

    /// The same for bytes: the oldest route of the most specific server name.
    fn apply_stream(&self, request: &Request, served: Served<'_>, candidate: &mut Candidate) {
        let name = match served.protocol {
            ListenerProtocol::TlsTerminate | ListenerProtocol::TlsPassthrough => request.server_name.as_deref(),
            _ => None,
        };
        let mut routes: Vec<(&RouteId, &RouteState, &[Arc<str>])> = self.cluster.attached(served.place).collect();
        routes.sort_by_key(|(id, state, _)| (state.created.clone(), (*id).clone()));
        let mut hosts: HostMap<&RouteId> = HostMap::default();
        for (id, _, own) in &routes {
            let any = own.is_empty().then_some(None);
            for host in any.into_iter().chain(own.iter().map(|host| Some(&**host))) {
                if hosts.get(host).is_none() {
                    hosts.insert(host, id);
                }
            }
        }
        let found = name.map_or_else(|| hosts.get(None), |name| hosts.find(name)).copied();
        for (id, _, own) in &routes {
            let covered = own.is_empty() || name.is_some_and(|name| own.iter().any(|host| covers(Some(host), name)));
            let why_not = match (found == Some(*id), covered) {
                (true, _) => None,
                (false, true) => Some("another route is more specific, older or first by name".to_owned()),
                (false, false) => Some(format!("its hostnames do not cover server name {}", name.unwrap_or("(none)"))),
            };
            candidate.rules.push(RuleStep {
                route: Kind::of_route(id.kind).subject(&id.key),
                rule: 0,
                name: None,
                host: if own.is_empty() { "*".to_owned() } else { list(own, 3) },
                condition: String::new(),
                taken: why_not.is_none(),
                why_not,
            });
        }
        let rule = found
            .and_then(|found| routes.iter().find(|(id, ..)| *id == found))
            .and_then(|(_, state, _)| state.stream.as_ref());
        match rule {
            Some(rule) => self.pass_on(served, rule, candidate),
            None => candidate.answer = Answer::reset("no route takes the connection: it is reset"),
        }
    }

    fn pass_on(&self, served: Served<'_>, rule: &StreamRule, candidate: &mut Candidate) {
        let (taken, answer) = self.stream_answer(served.protocol, rule);
        (candidate.taken, candidate.answer) = (Some(taken), answer);
    }
}

impl Tables {
    fn insert(&mut self, id: &RouteId, state: &RouteState, hostnames: &[Arc<str>]) {
        let entry = RouteEntry { id, created: &state.created, hostnames };
        match id.kind {
            RouteKind::Http => self.http.insert(
                entry,
                state.rules.iter().filter_map(|rule| match &rule.matches {
                    Matches::Http(matches) => Some((rule.index, &matches[..], Arc::clone(rule))),
                    Matches::Grpc(_) => None,
                }),
            ),
            RouteKind::Grpc => self.grpc.insert(
                entry,
                state.rules.iter().filter_map(|rule| match &rule.matches {
                    Matches::Grpc(matches) => Some((rule.index, &matches[..], Arc::clone(rule))),
                    Matches::Http(_) => None,
                }),
            ),
            _ => {}
        }
    }
}

/// The steps that are shown: the first ones, and that of the rule that takes the request.
pub(super) fn shown(steps: Vec<RuleStep>, taken: Option<usize>) -> (Vec<RuleStep>, usize) {
    let all = steps.len();
    let is_shown = |(place, _): &(usize, RuleStep)| *place < SHOWN || Some(*place) == taken;
    let steps: Vec<RuleStep> = steps.into_iter().enumerate().filter(is_shown).map(|(_, step)| step).collect();
    let more = all - steps.len();
    (steps, more)
}

fn rule_step(request: &Request, one: &Considered<'_, Arc<Rule>>, first: Option<usize>, place: usize) -> RuleStep {
    let rule = one.rule;
    let wildcard = if one.wildcard { "*." } else { "" };
    RuleStep {
        route: Kind::of_route(one.route.kind).subject(&one.route.key),
        rule: one.rule_index,
        name: rule.name.as_deref().map(str::to_owned),
        host: one.hostname.map_or_else(|| "*".to_owned(), |name| format!("{wildcard}{name}")),
        condition: matches::all(rule).into_iter().nth(one.match_index).unwrap_or_default(),
        taken: first == Some(place),
        why_not: match one.failed {
            Some(failed) => Some(why_not(request, rule, one.match_index, failed)),
            None => (first != Some(place)).then(|| "it would take the request, but comes later".to_owned()),
        },
    }
}

/// The condition that does not hold, and what the request has.
pub(super) fn why_not(request: &Request, rule: &Rule, place: usize, failed: Failed<'_>) -> String {
    let given = match &rule.matches {
        Matches::Http(matches) => matches.get(place),
        Matches::Grpc(_) => None,
    };
    let headers = || match &rule.matches {
        Matches::Http(matches) => matches.get(place).map(|one| &one.headers[..]),
        Matches::Grpc(matches) => matches.get(place).map(|one| &one.headers[..]),
    };
    match failed {
        Failed::Host => "the * of its hostname stands for one label only".to_owned(),
        Failed::Path => match given {
            Some(given) => format!("{} does not match path {}", matches::path(given), request.path),
            None => format!("service or method do not match {}", request.path),
        },
        Failed::Method => {
            let wanted = given.and_then(|given| given.method.as_deref()).unwrap_or_default();
            format!("method {wanted} is wanted, not {}", request.method)
        }
        Failed::Header(name) => {
            let values: Vec<&str> =
                request.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
            let wanted = wanted("header", headers().unwrap_or_default(), name);
            match &values[..] {
                [] => format!("{wanted} is wanted, the request has no such header"),
                values => format!("{wanted} is wanted, not {}", values.join(",")),
            }
        }
        Failed::Query(name) => {
            let parameters = given.map_or(&[][..], |given: &HttpRouteMatch| &given.query_params);
            let query = request.query.as_deref().unwrap_or("nothing");
            format!("{} is wanted, the query is {query}", wanted("query parameter", parameters, name))
        }
    }
}

fn wanted(noun: &str, given: &[NamedMatch], name: &str) -> String {
    let own = given.iter().find(|one| one.name.eq_ignore_ascii_case(name));
    own.map_or_else(|| format!("{noun} {name}"), |one| matches::condition(noun, one))
}

fn no_rule(request: &Request, has_routes: bool) -> String {
    if !has_routes {
        return "no route is attached to the listener".to_owned();
    }
    format!("no rule of the listener takes {} {} for host {}", request.method, request.path, request.host)
}
