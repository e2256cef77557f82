//! The kernel rules compared with the plan, and whether a proxy runs.

use super::super::evidence::Evidence;
use super::super::format::{count, listed};
use super::super::machine::Rules;
use super::super::verdict::CheckResult;

/// Restarts the proxy, which writes missing rules.
const START: &str = "systemctl restart waypost";

/// The state of this node's proxy, for messages about its rules.
fn keeper(evidence: &Evidence<'_>) -> &'static str {
    match evidence.machine.proxy {
        Ok(true) => "a proxy runs and has not repaired them",
        Ok(false) => "no proxy runs here that would write them",
        Err(_) => "it is not known whether a proxy runs",
    }
}

/// Whether the rules equal the plan.
pub(super) fn equal(evidence: &Evidence<'_>) -> CheckResult {
    if evidence.is_external_name() || evidence.is_headless() || evidence.service().is_none() {
        return CheckResult::not_applicable("such a Service needs no rules");
    }
    let Rules { mode, missing, whole, of } = match &evidence.machine.rules {
        Ok(rules) => rules,
        Err(unmeasured) => return unmeasured.clone().into(),
    };
    if *missing {
        return CheckResult::failed(
            format!("the kernel has none of our rules: they were flushed or never written; {}", keeper(evidence)),
            START,
        );
    }
    let key = format!("{}/{}", evidence.namespace, evidence.name);
    let ours = of.get(&key).map_or(&[][..], Vec::as_slice);
    match (whole.is_empty(), ours.is_empty()) {
        (true, true) => {
            CheckResult::passed(format!("mode {mode}: the kernel has exactly the planned rules of this Service"))
        }
        (true, false) => CheckResult::failed(
            format!("{} differ from the plan: {}; {}", count(ours.len(), "rule"), listed(ours), keeper(evidence)),
            START,
        ),
        (false, _) => CheckResult::failed(
            format!("rules that all Services share differ from the plan: {}; {}", listed(whole), keeper(evidence)),
            START,
        ),
    }
}

/// Whether a proxy serves this node.
pub(super) fn alive(evidence: &Evidence<'_>) -> CheckResult {
    if evidence.is_external_name() || evidence.is_headless() || evidence.service().is_none() {
        return CheckResult::not_applicable("such a Service needs no proxy");
    }
    match &evidence.machine.proxy {
        Ok(true) => CheckResult::passed("a proxy runs"),
        Ok(false) => CheckResult::failed("no proxy runs on this node: its rules are not updated", START),
        Err(unmeasured) => unmeasured.clone().into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{Fixture, failed, not_applicable, not_measured, passed};
    use super::*;

    fn fixture(rules: Rules) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.service("default", "web", json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}));
        fixture.machine.rules = Ok(rules);
        fixture
    }

    #[test]
    fn rules_that_are_gone_or_other_are_reported() {
        passed(fixture(Rules::default()).check("default", "web", equal));
        let mut flushed = fixture(Rules { missing: true, ..Rules::default() });
        flushed.machine.proxy = Ok(false);
        let (saw, fix) = failed(flushed.check("default", "web", equal));
        assert!(saw.contains("flushed") && saw.contains("no proxy runs here"), "{saw}");
        assert_eq!(fix, START);
        failed(flushed.check("default", "web", alive));
        let of = [("default/web".to_owned(), vec!["10.96.0.5:80 is missing".to_owned()])].into();
        assert!(
            failed(fixture(Rules { of, ..Rules::default() }).check("default", "web", equal)).0.contains("is missing")
        );
        let of = [("default/other".to_owned(), vec!["x".to_owned()])].into();
        passed(fixture(Rules { of, ..Rules::default() }).check("default", "web", equal));
        let whole = vec!["chain services".to_owned()];
        assert!(
            failed(fixture(Rules { whole, ..Rules::default() }).check("default", "web", equal))
                .0
                .contains("chain services")
        );
    }

    #[test]
    fn where_nothing_can_be_read_nothing_is_said() {
        let mut fixture = fixture(Rules::default());
        fixture.not_a_node();
        not_measured(fixture.check("default", "web", equal));
        not_measured(fixture.check("default", "web", alive));
        fixture.service("default", "alias", json!({"type": "ExternalName", "externalName": "example.org"}));
        not_applicable(fixture.check("default", "alias", equal));
    }
}
