//! Verdicts as text and as JSON.
//!
//! In: verdicts. Out: text with details of Services that do not work and a count of the others, or JSON with everything.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::evidence::Unmeasured;
use super::format::count;
use super::layer7::Routes;
use super::verdict::{CheckOutcome, CheckResult, Verdict};

/// The text. `whole`: every Service, with the checks that passed.
pub fn text(verdicts: &[Verdict], whole: bool) -> String {
    let mut out = String::new();
    let failing = verdicts.iter().filter(|verdict| verdict.cause().is_some()).count();
    for verdict in verdicts.iter().filter(|verdict| whole || verdict.cause().is_some()) {
        one(&mut out, verdict, whole);
        out.push('\n');
    }
    if whole && verdicts.len() == 1 {
        out.pop();
        return out;
    }
    let all = count(verdicts.len(), "Service");
    match (verdicts.len(), failing) {
        (0, _) => out.push_str("no Service in this namespace; `waypost doctor -A` checks all namespaces\n"),
        (_, 0) => _ = writeln!(out, "{all}: OK"),
        (_, failing) => _ = writeln!(out, "{all}: {failing} NOT WORKING, {} OK", verdicts.len() - failing),
    }
    out
}

fn one(out: &mut String, verdict: &Verdict, whole: bool) {
    let passed = verdict.outcomes.iter().filter(|outcome| matches!(outcome.result, CheckResult::Passed(_))).count();
    let state = if verdict.cause().is_some() { "NOT WORKING" } else { "OK" };
    let Verdict { namespace, name, outcomes } = verdict;
    // Writing to a string cannot fail.
    _ = writeln!(out, "{namespace}/{name}: {state} ({passed} of {} checks passed)", outcomes.len());
    let mut line = |name: &str, text: &str| _ = writeln!(out, "  {name:<14}  {text}");
    let mut failures = verdict.failures();
    if let Some(cause) = failures.next() {
        let finding = finding_of(cause);
        line("verdict", finding.map_or("", |finding| &finding.message));
        line("code", finding.map_or("", |finding| &finding.code));
        for more in finding.into_iter().flat_map(|finding| &finding.evidence) {
            line("evidence", more);
        }
        line("check", &format!("{}: {}", cause.check.name, cause.check.subject));
        line("why it matters", cause.check.impact);
        line("fix", finding.map_or("", |finding| &finding.fix));
    }
    for other in failures {
        line("also", &format!("{}: {}", other.check.name, finding_of(other).map_or("", |finding| &finding.message)));
    }
    for CheckOutcome { check, result } in outcomes {
        match result {
            CheckResult::Passed(saw) if whole => line("ok", &format!("{}: {saw}", check.name)),
            CheckResult::NotMeasured(Unmeasured { why, how }) if !how.is_empty() => {
                line("not measured", &format!("{}: {why} (to measure: {how})", check.name));
            }
            _ => {}
        }
    }
}

fn finding_of(outcome: &CheckOutcome) -> Option<&diagnose::Finding> {
    match &outcome.result {
        CheckResult::Failed(finding) => Some(finding),
        CheckResult::Passed(_) | CheckResult::NotMeasured(_) => None,
    }
}

/// The JSON, with the findings for Gateways, routes and Ingresses.
pub fn json(verdicts: &[Verdict], routes: &Routes) -> String {
    let services: Vec<Value> = verdicts.iter().map(object).collect();
    let document = json!({ "services": services, "routes": routes.json() });
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn object(verdict: &Verdict) -> Value {
    let cause = verdict.cause();
    let cause_json = cause.zip(cause.and_then(finding_of)).map(|(cause, finding)| {
        json!({
            "check": cause.check.name, "code": finding.code, "level": finding.level.as_str(), "saw": finding.message,
            "evidence": finding.evidence, "matters": cause.check.impact, "fix": finding.fix,
        })
    });
    let findings: Vec<Value> = verdict.outcomes.iter().map(outcome_json).collect();
    json!({
        "namespace": verdict.namespace, "name": verdict.name, "healthy": cause.is_none(), "verdict": cause_json, "findings": findings,
    })
}

fn outcome_json(outcome: &CheckOutcome) -> Value {
    let CheckOutcome { check, result } = outcome;
    let mut object = json!({"check": check.name, "lookedAt": check.subject, "matters": check.impact});
    let more = match result {
        CheckResult::Passed(saw) => json!({"outcome": "proved", "saw": saw}),
        CheckResult::Failed(finding) => {
            let diagnose::Finding { code, message, evidence, fix, level } = &**finding;
            json!({
                "outcome": "disproved", "code": code, "level": level.as_str(), "saw": message, "evidence": evidence,
                "fix": fix,
            })
        }
        CheckResult::NotMeasured(unmeasured) => {
            json!({"outcome": "not measured", "why": unmeasured.why, "how": unmeasured.how})
        }
    };
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use super::super::verdict::run_checks;
    use super::*;

    fn verdicts() -> Vec<Verdict> {
        let mut fixture = Fixture::new();
        fixture.service(
            "default",
            "web",
            json!({"selector": {"app": "wbe"}, "clusterIP": "10.96.0.5", "ports": [{"port": 80}]}),
        );
        fixture.service("default", "alias", json!({"type": "ExternalName", "externalName": "example.org"}));
        fixture.pod("default", "web-1", json!({"app": "web"}));
        ["web", "alias"].map(|name| run_checks(&fixture.evidence("default", name))).into()
    }

    #[test]
    fn failing_services_are_shown_in_detail_and_others_are_counted() {
        let text = text(&verdicts(), false);
        let wanted = [
            "default/web: NOT WORKING (",
            "  verdict         selector app=wbe matches 0 of 1 pod in default; 1 pod has app=web.",
            "  code            NoPodMatches",
            "  fix             kubectl set selector service web -n default app=web",
            "2 Services: 1 NOT WORKING, 1 OK",
        ];
        for part in wanted {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains("default/alias"), "{text}");
    }

    #[test]
    fn a_named_service_is_shown_with_all_checks() {
        let text = text(&verdicts()[1..], true);
        assert!(
            text.starts_with("default/alias: OK") && text.contains("  ok              shape: another name"),
            "{text}"
        );
        assert!(text.contains("not measured    name:") && text.contains("(to measure: measure)"), "{text}");
    }

    #[test]
    fn json_has_every_check() {
        let value: Value = serde_json::from_str(&json(&verdicts(), &Routes::default())).expect("JSON");
        let web = &value["services"][0];
        assert_eq!((&web["healthy"], &web["verdict"]["check"]), (&json!(false), &json!("selected")));
        assert_eq!(
            (&web["verdict"]["code"], &web["verdict"]["level"]),
            (&json!("NoPodMatches"), &json!("not working"))
        );
        assert_eq!(web["findings"].as_array().map(Vec::len), Some(super::super::checks::CHECKS.len()));
        assert_eq!(value["services"][1]["verdict"], Value::Null);
    }
}
