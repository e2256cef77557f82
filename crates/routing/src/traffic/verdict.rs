//! Whether a policy has an effect, and where.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::view::gateway_api::PolicyTarget;

use super::{Stored, Target, section_of};
use crate::cluster::{Ancestor, Owner, Reader, SecretState, TrafficPolicyState, Verdict};

/// A target that exists, and where the traffic comes in that reaches it.
struct Found<'a> {
    target: Target,
    section: Option<&'a str>,
    ancestors: BTreeSet<Ancestor>,
}

/// The state of a policy; none when it does not exist. `reached` has where the traffic comes in that routes lead
/// to a Service or that a route takes.
pub(crate) fn judge(
    reader: &Reader<'_>,
    key: &Arc<str>,
    reached: impl Fn(&Target) -> BTreeSet<Ancestor>,
) -> Option<TrafficPolicyState> {
    let stored = reader.traffic_policy(key)?;
    let references = &stored.policy.spec.target_refs;
    let found: Vec<Found<'_>> =
        references.iter().filter_map(|reference| find(reader, key, reference, &reached)).collect();
    let accepted = invalid(stored).unwrap_or_else(|| accepted(reader, key, references, &found));
    Some(TrafficPolicyState {
        generation: stored.policy.metadata.generation,
        ancestors: ancestors(key, references, &found),
        accepted,
        resolved_refs: resolved_refs(reader, stored),
    })
}

fn find<'a>(
    reader: &Reader<'_>,
    key: &str,
    reference: &'a PolicyTarget,
    reached: impl Fn(&Target) -> BTreeSet<Ancestor>,
) -> Option<Found<'a>> {
    let (target, section) = (Target::of(key, reference)?, section_of(reference));
    let ancestors = match &target {
        Target::Gateway(key) => {
            let view = reader.parent(&Owner::Gateway(Arc::clone(key)))?;
            view.has_listener(section).then(|| [Ancestor::gateway(key)].into_iter().collect())?
        }
        Target::Set(key) => {
            let view = reader.parent(&Owner::Set(Arc::clone(key)))?;
            let gateway = view.is_allowed.then(|| Ancestor::gateway(&view.gateway));
            view.has_listener(section).then(|| gateway.into_iter().collect())?
        }
        Target::Route(id) => {
            let route = reader.route_of_policy(id)?;
            section.is_none_or(|section| route.has_rule(section)).then(|| reached(&target))?
        }
        Target::Service(key) => {
            let ports = &reader.service(key)?.spec.ports;
            let has = |section: &str| ports.iter().any(|port| *port.name == *section);
            section.is_none_or(has).then(|| reached(&target))?
        }
    };
    Some(Found { target, section, ancestors })
}

fn invalid(stored: &Stored) -> Option<Verdict> {
    let problems = stored.compiled.problems.join("; ");
    if stored.compiled.is_closed() {
        return Some(Verdict::bad("Invalid", format!("{problems}; all requests are refused with status 503")));
    }
    (!problems.is_empty()).then(|| Verdict::bad("Invalid", format!("{problems}; other fields hold")))
}

/// Of several policies for one target one applies; a policy is accepted if it is that for one of its targets.
fn accepted(reader: &Reader<'_>, key: &Arc<str>, references: &[PolicyTarget], found: &[Found<'_>]) -> Verdict {
    if found.is_empty() {
        let names: Vec<_> = references.iter().map(describe).collect();
        return Verdict::bad(
            "TargetNotFound",
            format!("Not found, or not of a class of Waypost: {}", names.join(", ")),
        );
    }
    let lost: Vec<String> = found
        .iter()
        .filter_map(|Found { target, section, .. }| {
            let winner = reader.traffic_winner(target, *section).filter(|winner| *winner != key)?;
            Some(format!("policy \"{winner}\" holds for {} \"{}\"", target.kind().1, target.key()))
        })
        .collect();
    if lost.len() == found.len() {
        return Verdict::bad("Conflicted", format!("Older, or first by name: {}", lost.join("; ")));
    }
    let mut notes = lost;
    if found.len() < references.len() {
        notes.push(format!("{} of {} targets are not found", references.len() - found.len(), references.len()));
    }
    if found.iter().all(|found| found.ancestors.is_empty()) {
        notes.push("no traffic of a Gateway reaches the targets".to_owned());
    }
    let but = if notes.is_empty() { String::new() } else { format!("; {}", notes.join("; ")) };
    Verdict::good("Accepted", format!("The policy is accepted{but}"))
}

fn describe(reference: &PolicyTarget) -> String {
    match section_of(reference) {
        Some(section) => format!("{} \"{}\" section \"{section}\"", reference.kind, reference.name),
        None => format!("{} \"{}\"", reference.kind, reference.name),
    }
}

/// Where their traffic comes in; the targets themselves where none does, so that the owner of the policy learns why.
fn ancestors(key: &str, references: &[PolicyTarget], found: &[Found<'_>]) -> Vec<Ancestor> {
    let ancestors: BTreeSet<&Ancestor> = found.iter().flat_map(|found| &found.ancestors).collect();
    if !ancestors.is_empty() {
        return ancestors.into_iter().cloned().collect();
    }
    let targets: BTreeSet<Target> = references.iter().filter_map(|reference| Target::of(key, reference)).collect();
    targets.iter().map(Ancestor::of).collect()
}

fn resolved_refs(reader: &Reader<'_>, stored: &Stored) -> Verdict {
    let good = || Verdict::good("ResolvedRefs", "All references are resolved");
    let Some(key) = &stored.compiled.passwords else { return good() };
    let why = match reader.secret(key) {
        Some(SecretState::Passwords) => return good(),
        Some(_) => format!("has no passwords under the key \"{}\"", api::view::traffic_policy::PASSWORDS),
        None => "does not exist".to_owned(),
    };
    Verdict::bad("InvalidSecretRef", format!("Secret \"{key}\" {why}; all requests are refused"))
}
