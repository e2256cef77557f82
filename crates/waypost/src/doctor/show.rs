//! Verdicts for people and for programs.
//!
//! In: verdicts. Out: text in which the sick come in detail and the healthy in a line, or JSON with everything.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::evidence::Unmeasured;
use super::verdict::{Finding, Judged, Verdict};
use super::words::count;

/// For people. `whole`: also what was proved, finding by finding.
pub(crate) fn text(verdicts: &[Verdict], whole: bool) -> String {
    let mut out = String::new();
    let sick = verdicts.iter().filter(|verdict| verdict.cause().is_some()).count();
    for verdict in verdicts.iter().filter(|verdict| whole || verdict.cause().is_some()) {
        one(&mut out, verdict, whole);
        out.push('\n');
    }
    if whole && verdicts.len() == 1 {
        out.pop();
        return out;
    }
    let all = count(verdicts.len(), "Service");
    match (verdicts.len(), sick) {
        (0, _) => out.push_str("no Service here; `waypost doctor -A` looks at all namespaces\n"),
        (_, 0) => _ = writeln!(out, "{all}: nothing is wrong"),
        (_, sick) => _ = writeln!(out, "{all}: {sick} sick, {} healthy", verdicts.len() - sick),
    }
    out
}

fn one(out: &mut String, verdict: &Verdict, whole: bool) {
    let proved = verdict.findings.iter().filter(|finding| matches!(finding.judged, Judged::Proved(_))).count();
    let state = if verdict.cause().is_some() { "sick" } else { "healthy" };
    let Verdict { namespace, name, findings } = verdict;
    // Writing to a string cannot fail.
    _ = writeln!(out, "{namespace}/{name}: {state} ({proved} of {} checks proved)", findings.len());
    let mut line = |name: &str, text: &str| _ = writeln!(out, "  {name:<12}  {text}");
    let mut wrongs = verdict.wrong();
    if let Some(cause) = wrongs.next() {
        let finding = wrong(cause);
        line("verdict", finding.map_or("", |finding| &finding.message));
        line("code", finding.map_or("", |finding| &finding.code));
        for more in finding.into_iter().flat_map(|finding| &finding.evidence) {
            line("evidence", more);
        }
        line("looked at", &format!("{} ({})", cause.check.looks_at, cause.check.name));
        line("matters", cause.check.matters);
        line("fix", finding.map_or("", |finding| &finding.fix));
    }
    for other in wrongs {
        line("also", &format!("{}: {}", other.check.name, wrong(other).map_or("", |finding| &finding.message)));
    }
    for Finding { check, judged } in findings {
        match judged {
            Judged::Proved(saw) if whole => line("proved", &format!("{}: {saw}", check.name)),
            Judged::NotMeasured(Unmeasured { why, how }) if !how.is_empty() => {
                line("not measured", &format!("{}: {why} (to measure: {how})", check.name));
            }
            _ => {}
        }
    }
}

fn wrong(finding: &Finding) -> Option<&diagnose::Finding> {
    match &finding.judged {
        Judged::Disproved(finding) => Some(finding),
        Judged::Proved(_) | Judged::NotMeasured(_) => None,
    }
}

/// For programs.
pub(crate) fn json(verdicts: &[Verdict]) -> String {
    let services: Vec<Value> = verdicts.iter().map(object).collect();
    let mut text = serde_json::to_string_pretty(&json!({ "services": services })).unwrap_or_default();
    text.push('\n');
    text
}

fn object(verdict: &Verdict) -> Value {
    let cause = verdict.cause();
    let said = cause.zip(cause.and_then(wrong)).map(|(cause, finding)| {
        json!({
            "check": cause.check.name, "code": finding.code, "level": finding.level.as_str(), "saw": finding.message,
            "evidence": finding.evidence, "matters": cause.check.matters, "fix": finding.fix,
        })
    });
    let findings: Vec<Value> = verdict.findings.iter().map(finding).collect();
    json!({
        "namespace": verdict.namespace, "name": verdict.name, "healthy": cause.is_none(), "verdict": said, "findings": findings,
    })
}

fn finding(finding: &Finding) -> Value {
    let Finding { check, judged } = finding;
    let mut object = json!({"check": check.name, "lookedAt": check.looks_at, "matters": check.matters});
    let more = match judged {
        Judged::Proved(saw) => json!({"outcome": "proved", "saw": saw}),
        Judged::Disproved(finding) => {
            let diagnose::Finding { code, message, evidence, fix, level } = &**finding;
            json!({
                "outcome": "disproved", "code": code, "level": level.as_str(), "saw": message, "evidence": evidence,
                "fix": fix,
            })
        }
        Judged::NotMeasured(unmeasured) => {
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
    use super::super::testing::World;
    use super::super::verdict::examine;
    use super::*;

    fn verdicts() -> Vec<Verdict> {
        let mut world = World::new();
        world.service(
            "default",
            "web",
            json!({"selector": {"app": "wbe"}, "clusterIP": "10.96.0.5", "ports": [{"port": 80}]}),
        );
        world.service("default", "alias", json!({"type": "ExternalName", "externalName": "example.org"}));
        world.pod("default", "web-1", json!({"app": "web"}));
        ["web", "alias"].map(|name| examine(&world.evidence("default", name))).into()
    }

    #[test]
    fn the_sick_come_in_detail_and_the_healthy_in_a_number() {
        let text = text(&verdicts(), false);
        let wanted = [
            "default/web: sick",
            "  verdict       selector app=wbe matches 0 of 1 pod in default; 1 pod has app=web.",
            "  code          NoPodMatches",
            "  fix           kubectl set selector service web -n default app=web",
            "2 Services: 1 sick, 1 healthy",
        ];
        for part in wanted {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains("default/alias"), "{text}");
    }

    #[test]
    fn one_that_is_asked_for_is_shown_whole() {
        let text = text(&verdicts()[1..], true);
        assert!(
            text.starts_with("default/alias: healthy") && text.contains("proved        shape: another name"),
            "{text}"
        );
        assert!(text.contains("not measured  name:") && text.contains("(to measure: measure)"), "{text}");
    }

    #[test]
    fn programs_get_everything() {
        let value: Value = serde_json::from_str(&json(&verdicts())).expect("JSON");
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
