//! `podFailurePolicy`: the first rule that matches a failed Pod determines the action.

use api::value::ValueExt as _;
use serde_json::Value;

use super::spec::job_pod;
use crate::objects::pod::Pod;

/// What the failure of a Pod means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// It counts towards the backoff limits.
    Count,
    /// It does not count.
    Ignore,
    /// Its index has failed.
    FailIndex,
    /// The Job has failed, with this message.
    FailJob(String),
}

/// The action of the first matching rule; without one, the failure counts.
pub(super) fn action(rules: &[Value], pod: &Pod) -> Action {
    let found = rules.iter().enumerate().find_map(|(index, rule)| Some((index, rule, cause(rule, pod)?)));
    let Some((index, rule, cause)) = found else { return Action::Count };
    match rule.text("action") {
        "Ignore" => Action::Ignore,
        "FailIndex" => Action::FailIndex,
        "FailJob" => Action::FailJob(format!("{cause} matching FailJob rule at index {index}")),
        _ => Action::Count,
    }
}

/// Why a rule matches a Pod.
fn cause(rule: &Value, pod: &Pod) -> Option<String> {
    let key = &pod.entry.key.name;
    let facts = job_pod(pod)?;
    let codes = rule.at("onExitCodes");
    if !codes.is_null() {
        let listed = |code: i64| codes.items("values").iter().any(|value| value.as_i64() == Some(code));
        let matches = |code: i64| match codes.text("operator") {
            "In" => listed(code),
            "NotIn" => !listed(code),
            _ => false,
        };
        let wanted = codes.at("containerName").as_str();
        let container = facts
            .failed_containers
            .iter()
            .find(|container| wanted.is_none_or(|name| *name == *container.name) && matches(container.code))?;
        return Some(format!("Container {} for pod {key} failed with exit code {}", container.name, container.code));
    }
    let patterns = rule.items("onPodConditions");
    let matches = |kind: &str, status: &str| {
        patterns.iter().any(|pattern| pattern.text("type") == kind && pattern.text("status") == status)
    };
    let (kind, _) = facts.conditions.iter().find(|(kind, status)| matches(kind, status))?;
    Some(format!("Pod {key} has condition {kind}"))
}
