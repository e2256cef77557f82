//! The rules of a Gateway as rows, in the order in which they are tried.
//!
//! In: the routes of its listeners. Out: a row for each host and match, each with the listeners that it is reached by.
//! The order is that of `routing`: host, path, conditions, age.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::view::gateway_api::{FilterKind, GrpcRouteMatch};
use routing::cluster::RouteState;
use routing::hosts::specificity;
use routing::ingress::IngressTable;
use routing::model::{Backend, Matches, RouteId, RouteKind, Rule, Target};
use routing::{grpc_table, http_table};
use serde::Serialize;

use super::explain::broken;
use super::objects::Kind;
use super::request::{filter_text, invalid_text};
use super::{Subject, matches};

/// The most rows of one route at one listener: a route may have a hundred matches for each of sixteen hosts.
const ROWS_OF_ROUTE: usize = 64;

/// A match of a rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    /// The hostname of the route; `*` for all.
    pub host: String,
    /// What it matches; empty for connections.
    pub condition: String,
    /// The names of the listeners.
    pub listeners: Vec<String>,
    /// Its route.
    pub route: Subject,
    /// The place of the rule in the route.
    pub rule: usize,
    /// What it does instead of forwarding, or why it fails; empty otherwise.
    pub says: String,
    /// Where it leads.
    pub backends: Vec<Share>,
}

/// A backend and its share.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Share {
    /// `namespace/name` of the Service; none where the reference leads nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Its share, of the sum of all.
    pub weight: u32,
    /// Why it leads nowhere, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
}

/// The rank of a match. Calls of gRPC are looked up in GRPCRoutes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    Grpc(grpc_table::Rank),
    Http(http_table::Rank),
    Connection,
}

/// The place of a row: host, rank, then age, `namespace/name`, kind, rule and match.
type Place = ((u8, Reverse<usize>), Option<Arc<str>>, Rank, Arc<str>, Arc<str>, RouteKind, usize, usize);

/// Collects rows.
pub(super) struct Rows {
    rows: BTreeMap<Place, Row>,
    ingress: Vec<Row>,
    room: usize,
    /// How many rows had no room.
    pub(super) left_out: usize,
}

impl Rows {
    /// At most so many rows, of all Gateways together.
    pub(super) const fn new(room: usize) -> Self {
        Self { rows: BTreeMap::new(), ingress: Vec::new(), room, left_out: 0 }
    }

    /// The rows since the last call, in order.
    pub(super) fn take(&mut self) -> Vec<Row> {
        let rows = std::mem::take(&mut self.rows).into_values();
        rows.chain(std::mem::take(&mut self.ingress)).collect()
    }

    /// Adds the routes of a listener.
    pub(super) fn add_listener<'a>(
        &mut self,
        listener: &str,
        routes: impl Iterator<Item = (&'a RouteId, &'a RouteState, &'a [Arc<str>])>,
    ) {
        for (id, state, hosts) in routes {
            let any = hosts.is_empty().then_some(None);
            let hosts: Vec<Option<Arc<str>>> = any.into_iter().chain(hosts.iter().cloned().map(Some)).collect();
            let mut room = ROWS_OF_ROUTE;
            for host in &hosts {
                self.add_route((id, state), host.as_ref(), listener, &mut room);
            }
        }
    }

    fn add_route(
        &mut self,
        (id, state): (&RouteId, &RouteState),
        host: Option<&Arc<str>>,
        listener: &str,
        room: &mut usize,
    ) {
        let mut add = |rank, rule, place, row: &dyn Fn() -> Row| {
            let key: Place = (
                specificity(host.map(|host| &**host)),
                host.cloned(),
                rank,
                state.created.clone(),
                id.key.clone(),
                id.kind,
                rule,
                place,
            );
            if let Some(row) = self.rows.get_mut(&key) {
                row.listeners.push(listener.to_owned());
            } else if *room > 0 && self.room > 0 {
                (*room, self.room) = (*room - 1, self.room - 1);
                self.rows.insert(key, Row { listeners: vec![listener.to_owned()], ..row() });
            } else {
                self.left_out += 1;
            }
        };
        for rule in state.rules.iter() {
            for (place, (rank, condition)) in ranked(rule).into_iter().enumerate() {
                add(rank, rule.index, place, &|| row_of(rule, host, condition.clone()));
            }
        }
        if let Some(stream) = &state.stream {
            add(Rank::Connection, 0, 0, &|| Row {
                backends: stream.backends.iter().map(share).collect(),
                ..empty(id, host, String::new())
            });
        }
    }

    /// Adds the rules of Ingresses.
    pub(super) fn add_ingresses(&mut self, table: &IngressTable) {
        let mut all: Vec<_> = table.rules().map(|(host, _, rule)| (host, rule)).collect();
        all.sort_by_key(|(host, _)| specificity(host.map(|host| &**host)));
        let rows = all.len().min(self.room);
        self.left_out += all.len() - rows;
        self.room -= rows;
        let shown = all.into_iter().take(rows);
        self.ingress.extend(shown.map(|(host, rule)| row_of(rule, host, matches::all(rule).join("; "))));
    }
}

/// The matches of a rule as text, each with its rank.
fn ranked(rule: &Rule) -> Vec<(Rank, String)> {
    let ranks: Vec<Rank> = match &rule.matches {
        Matches::Http(all) => all.iter().map(|one| Rank::Http(http_table::Rank::of(one))).collect(),
        Matches::Grpc(all) if all.is_empty() => vec![Rank::Grpc(grpc_table::Rank::of(&GrpcRouteMatch::default()))],
        Matches::Grpc(all) => all.iter().map(|one| Rank::Grpc(grpc_table::Rank::of(one))).collect(),
    };
    ranks.into_iter().zip(matches::all(rule)).collect()
}

fn row_of(rule: &Rule, host: Option<&Arc<str>>, condition: String) -> Row {
    let answer = rule.filters.iter().find(|filter| filter.kind == FilterKind::RequestRedirect).map(filter_text);
    let broken = broken(rule);
    let says = if broken.is_empty() { answer.unwrap_or_default() } else { broken };
    let backends = rule.backends.iter().map(share).collect();
    Row { rule: rule.index, says, backends, ..empty(&rule.route, host, condition) }
}

fn empty(route: &RouteId, host: Option<&Arc<str>>, condition: String) -> Row {
    let host = host.map_or_else(|| "*".to_owned(), ToString::to_string);
    let route = Kind::of_route(route.kind).subject(&route.key);
    Row { host, condition, listeners: Vec::new(), route, rule: 0, says: String::new(), backends: Vec::new() }
}

fn share(backend: &Backend) -> Share {
    let weight = backend.weight;
    match &backend.target {
        Target::Service(target) => {
            Share { service: Some(target.service.to_string()), port: Some(target.port), weight, why: None }
        }
        Target::Invalid(why) => Share { service: None, port: None, weight, why: Some(invalid_text(*why)) },
    }
}
