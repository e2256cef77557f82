//! Rules that cannot be applied: matches and filters that are not supported, and rules that lead nowhere.

use api::view::gateway_api::FilterKind;
use routing::model::RouteId;

use super::objects::{Route, WrittenRule};
use super::{Layer7, code, kubectl};
use crate::finding::{Finding, Level};

/// A rule in a sentence: `rule 0`, or `rule 1 (checkout)`.
pub(super) fn describe(index: usize, name: Option<&str>) -> String {
    name.map_or_else(|| format!("rule {index}"), |name| format!("rule {index} ({name})"))
}

impl Layer7<'_> {
    /// The findings for the rules of a route.
    pub(super) fn rule_findings(&self, id: &RouteId, route: &Route) -> Vec<Finding> {
        let Some(state) = self.cluster.route(id) else { return Vec::new() };
        let edit = || kubectl("edit", id.kind.name(), &id.key);
        let mut found = Vec::new();
        let refused = state.parents.iter().find(|parent| parent.accepted.reason == "UnsupportedValue");
        let refused = refused.map(|parent| (&parent.accepted, Level::NotWorking));
        let partly = state.parents.iter().find_map(|parent| parent.partially_invalid.as_ref());
        let works = state.rules.iter().any(|rule| rule.broken.is_none());
        let level = if works { Level::Degraded } else { Level::NotWorking };
        if let Some((verdict, level)) = refused.or(partly.map(|verdict| (verdict, level))) {
            found.push(Finding::new(code::RULE_NOT_SUPPORTED, verdict.message.clone(), edit()).at(level));
        }
        for (index, rule) in route.rules().into_iter().enumerate() {
            if let Some(why) = without_backend(&rule) {
                let message = format!("{} {why}: its requests fail with status 500", describe(index, rule.name));
                found.push(Finding::new(code::RULE_WITHOUT_BACKEND, message, edit()));
            }
        }
        found
    }
}

/// Why requests of a rule have nowhere to go.
fn without_backend(rule: &WrittenRule<'_>) -> Option<&'static str> {
    if rule.filters.iter().any(|filter| filter.kind == FilterKind::RequestRedirect) {
        return None;
    }
    match rule.backends {
        [] => Some("has no backendRefs"),
        all if all.iter().all(|backend| backend.weight == 0) => Some("has only backendRefs of weight 0"),
        _ => None,
    }
}
