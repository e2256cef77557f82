//! Matches that never take a request, because an equal match of an older route, or of an earlier rule, takes all of them.
//!
//! In: the routes of all listeners. Out: for each route the matches that another one shadows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use routing::model::{ListenerId, RouteId, RouteKind};

use super::objects::Kind;
use super::{Layer7, code, kubectl, matches};
use crate::finding::{Finding, Level};

/// The most matches that are compared: further ones are not looked at.
const COMPARED: usize = 100_000;

/// Shadowed matches by route.
pub(super) type Shadows = BTreeMap<RouteId, BTreeSet<Shadow>>;

/// A match that another one shadows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Shadow {
    rule: usize,
    /// The host; none for all.
    host: Option<Arc<str>>,
    condition: String,
    /// The route and the rule that take the requests.
    by: (RouteId, usize),
}

/// What decides between equal matches: age, `namespace/name`, kind, rule, match.
type Order = (Arc<str>, Arc<str>, RouteKind, usize, usize);
/// What makes matches equal: whether they are for gRPC, their host, their condition.
type Same = (bool, Option<Arc<str>>, String);

impl Layer7<'_> {
    /// The findings for matches of a route that others shadow.
    pub(super) fn shadow_findings(&self, id: &RouteId) -> Vec<Finding> {
        let shadows = self.shadows.get_or_init(|| self.find_shadows()).get(id);
        let finding = |shadow: &Shadow| {
            let Shadow { rule, host, condition, by: (other, taken_by) } = shadow;
            let host = host.as_deref().unwrap_or("all hosts");
            let condition = if condition.is_empty() { String::new() } else { format!(" with {condition}") };
            let winner = match other == id {
                true => format!("rule {taken_by}, which comes first"),
                false => {
                    format!("rule {taken_by} of {} {}, which is older or first by name", other.kind.name(), other.key)
                }
            };
            let message = format!("rule {rule} takes nothing for {host}{condition}: {winner}, takes it");
            let fix = kubectl("edit", Kind::of_route(id.kind).name(), &id.key);
            Finding::new(code::RULE_SHADOWED, message, fix).at(Level::Degraded)
        };
        shadows.into_iter().flatten().map(finding).collect()
    }

    fn find_shadows(&self) -> Shadows {
        let configs = self.cluster.configs();
        let listeners = configs.flat_map(|config| config.listeners.iter().map(|listener| &listener.id));
        let mut shadows = Shadows::new();
        let mut room = COMPARED;
        for listener in listeners {
            self.add_shadows(listener, &mut shadows, &mut room);
        }
        shadows
    }

    fn add_shadows(&self, listener: &ListenerId, shadows: &mut Shadows, room: &mut usize) {
        let mut same: BTreeMap<Same, BTreeSet<Order>> = BTreeMap::new();
        for (id, state, hostnames) in self.cluster.attached(&listener.clone().into()) {
            let any = hostnames.is_empty().then_some(None);
            let hosts: Vec<Option<Arc<str>>> = any.into_iter().chain(hostnames.iter().cloned().map(Some)).collect();
            let order = |rule, place| (state.created.clone(), id.key.clone(), id.kind, rule, place);
            let mut add = |condition: &str, order: Order| {
                for host in hosts.iter().take(*room) {
                    *room -= 1;
                    let key = (id.kind == RouteKind::Grpc, host.clone(), condition.to_owned());
                    same.entry(key).or_default().insert(order.clone());
                }
            };
            for rule in state.rules.iter() {
                for (place, condition) in matches::all(rule).iter().enumerate() {
                    add(condition, order(rule.index, place));
                }
            }
            if state.stream.is_some() {
                add("", order(0, 0));
            }
        }
        for ((_, host, condition), orders) in same {
            let mut orders = orders.into_iter();
            let Some((_, first, first_kind, first_rule, _)) = orders.next() else { continue };
            for (_, key, kind, rule, _) in orders {
                let by = (RouteId { kind: first_kind, key: first.clone() }, first_rule);
                let shadow = Shadow { rule, host: host.clone(), condition: condition.clone(), by };
                shadows.entry(RouteId { kind, key }).or_default().insert(shadow);
            }
        }
    }
}
