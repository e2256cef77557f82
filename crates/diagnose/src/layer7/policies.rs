//! Policies: BackendTLSPolicies that make their targets unreachable or that another one overrides, and the TrafficPolicies
//! that hold for an object.

use std::collections::BTreeSet;

use api::view::gateway_api::{GROUP, PolicyTarget};
use routing::model::RouteId;

use super::attachment::{owner, owner_kind};
use super::explain::Item;
use super::objects::Route;
use super::{Layer7, code, kubectl, name_of, namespace_of};
use crate::finding::{Finding, Level};

impl Layer7<'_> {
    /// The findings for a BackendTLSPolicy. Without a Gateway of ours, it is for other controllers.
    pub(super) fn policy_findings(&self, key: &str) -> Vec<Finding> {
        let Some(state) = self.cluster.policy(key).filter(|_| self.cluster.configs().next().is_some()) else {
            return Vec::new();
        };
        let edit = || kubectl("edit", "backendtlspolicy", key);
        let mut found = Vec::new();
        if !state.resolved_refs.holds() {
            let message = format!("validation.caCertificateRefs: {}", state.resolved_refs.message);
            // With another bundle that is valid, connections still work.
            let level = if state.accepted.holds() { Level::Degraded } else { Level::NotWorking };
            found.push(Finding::new(code::TLS_POLICY_INVALID, message, edit()).at(level));
        } else if state.accepted.reason == "Conflicted" {
            let finding = Finding::new(code::TLS_POLICY_CONFLICTED, state.accepted.message.clone(), edit());
            found.push(finding.at(Level::Degraded));
        } else if !state.accepted.holds() {
            found.push(Finding::new(code::TLS_POLICY_INVALID, state.accepted.message.clone(), edit()));
        }
        found
    }

    /// The TrafficPolicies that are attached to an object, each with the section that it is for.
    pub(super) fn policies_at(&self, kind: &str, key: &str) -> Vec<Item> {
        let group = if kind == "Service" { "" } else { GROUP };
        let is_target =
            |target: &&PolicyTarget| (&*target.group, &*target.kind, &*target.name) == (group, kind, name_of(key));
        let here = self.objects.traffic_policies.iter().filter(|(policy, _)| namespace_of(policy) == namespace_of(key));
        here.flat_map(|(policy, one)| {
            one.spec.target_refs.iter().filter(is_target).map(move |target| {
                let section = target.section_name.as_deref().filter(|section| !section.is_empty());
                let section = section.map(|section| format!(", {section}")).unwrap_or_default();
                let state = self.cluster.traffic_policy(policy);
                let failed = state
                    .and_then(|state| [&state.accepted, &state.resolved_refs].into_iter().find(|one| !one.holds()));
                let says = failed.map_or_else(String::new, |verdict| format!(": {}", verdict.message));
                Item::new("policy", format!("TrafficPolicy {policy}"), format!("at {kind} {key}{section}{says}"))
            })
        })
        .collect()
    }

    /// The TrafficPolicies that hold for a route: those of its Gateways and ListenerSets, its own, and those of the Services
    /// behind it.
    pub(super) fn policies_at_route(&self, id: &RouteId, route: &Route) -> Vec<Item> {
        if self.objects.traffic_policies.is_empty() {
            return Vec::new();
        }
        let parents = self.cluster.route(id).map(|state| &state.parents[..]).unwrap_or_default();
        let listeners = parents.iter().flat_map(|parent| &parent.places).filter_map(|(place, _)| place.listener());
        let mut targets: BTreeSet<(&str, String)> = BTreeSet::new();
        for listener in listeners {
            targets.insert(("Gateway", listener.gateway.to_string()));
            targets.insert((owner_kind(listener).name(), owner(listener).to_string()));
        }
        let own = std::iter::once((id.kind.name(), id.key.to_string()));
        let backends = route.services(&id.key).into_iter().map(|key| ("Service", key));
        let all = targets.into_iter().chain(own).chain(backends);
        all.flat_map(|(kind, key)| self.policies_at(kind, &key)).collect()
    }
}
