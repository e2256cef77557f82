//! Admission webhooks that guard something and let requests pass when they do not answer.

use api::value::ValueExt as _;
use serde_json::Value;

use super::{Finding, Severity};

pub(super) const CHECK: &str = "ignored-webhooks";

/// Resources whose admission guards a cluster.
const GUARDED: [&str; 8] =
    ["pods", "secrets", "serviceaccounts", "roles", "rolebindings", "clusterroles", "clusterrolebindings", "*"];

/// Webhooks with the failure policy `Ignore` on such resources.
pub(super) fn ignored(configurations: &[Value]) -> Vec<Finding> {
    let all = configurations.iter().flat_map(|one| one.items("webhooks").iter().map(move |webhook| (one, webhook)));
    let finding = |(configuration, webhook): (&Value, &Value)| {
        let guards = |rule: &Value| rule.texts("resources").iter().any(|one| GUARDED.contains(one) || *one == "*/*");
        if webhook.text("failurePolicy") != "Ignore" || !webhook.items("rules").iter().any(guards) {
            return None;
        }
        let (kind, name) = (configuration.text("kind"), configuration.text("metadata.name"));
        Some(Finding {
            check: CHECK,
            severity: Severity::Warning,
            object: format!("{kind} {name}"),
            saw: format!(
                "webhook {} has failurePolicy Ignore: requests are not checked while it does not answer",
                webhook.text("name")
            ),
            fix: format!(
                "set failurePolicy: Fail if it protects something: kubectl edit {} {name}",
                kind.to_lowercase()
            ),
        })
    };
    all.filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn webhooks_that_may_fail_are_found_where_they_guard() {
        let found = |policy: &str, resource: &str| {
            let webhook = json!({"name": "w", "failurePolicy": policy, "rules": [{"resources": [resource]}]});
            let one =
                json!({"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "c"}, "webhooks": [webhook]});
            ignored(&[one]).len()
        };
        assert_eq!((found("Ignore", "pods"), found("Ignore", "*/*")), (1, 1));
        assert_eq!((found("Fail", "pods"), found("Ignore", "services")), (0, 0));
    }
}
