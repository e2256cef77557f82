//! Reports as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::format::count;
use super::{Finding, Report, Severity};

/// As text: the worst first, then unmeasured checks, then a summary line.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for Finding { check, severity, object, saw, fix } in &report.findings {
        // Writing to a string cannot fail.
        _ = writeln!(out, "{}: {object}\n  {:<12}  {saw} ({check})\n  {:<12}  {fix}\n", severity.name(), "saw", "fix");
    }
    for (check, why) in &report.unknown {
        _ = writeln!(out, "not measured: {check}\n  {:<12}  {}\n  {:<12}  {}\n", "why", why.why, "to measure", why.how);
    }
    let number = |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
    let [critical, warnings, notes] = [Severity::Critical, Severity::Warning, Severity::Note].map(number);
    _ = match (critical + warnings, report.unknown.len()) {
        (0, 0) => writeln!(out, "nothing is exposed ({})", count(notes, "note")),
        (_, unknown) => writeln!(
            out,
            "{critical} critical, {}, {}, {} not measured",
            count(warnings, "warning"),
            count(notes, "note"),
            count(unknown, "check")
        ),
    };
    out
}

/// For programs.
pub fn json(report: &Report) -> String {
    let finding = |Finding { check, severity, object, saw, fix }: &Finding| json!({"check": check, "severity": severity.name(), "object": object, "saw": saw, "fix": fix});
    let findings: Vec<Value> = report.findings.iter().map(finding).collect();
    let unknown = report.unknown.iter().map(|(check, why)| json!({"check": check, "why": why.why, "how": why.how}));
    let unknown: Vec<Value> = unknown.collect();
    let mut text =
        serde_json::to_string_pretty(&json!({"findings": findings, "notMeasured": unknown})).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::super::testing::fixture;
    use super::super::{Unmeasured, examine};
    use super::*;

    #[test]
    fn a_safe_cluster_is_one_line() {
        let report = examine(&fixture());
        assert_eq!((text(&report).as_str(), report.exit_code()), ("nothing is exposed (0 notes)\n", 0));
        assert_eq!(json(&report), "{\n  \"findings\": [],\n  \"notMeasured\": []\n}\n");
    }

    #[test]
    fn the_worst_comes_first_and_what_is_unknown_is_said() {
        let mut evidence = fixture();
        evidence.metrics = Ok("waypost_store_secrets_encrypted 0\n".to_owned());
        evidence.anonymous = Ok(403);
        let report = examine(&evidence);
        let order: Vec<Severity> = report.findings.iter().map(|finding| finding.severity).collect();
        assert_eq!((order, report.exit_code()), (vec![Severity::Warning, Severity::Warning, Severity::Note], 1));
        evidence.metrics = Err(Unmeasured { why: "forbidden".to_owned(), how: "be an administrator".to_owned() });
        let report = examine(&evidence);
        assert_eq!(report.exit_code(), 2);
        let text = text(&report);
        let last = "0 critical, 0 warnings, 1 note, 2 checks not measured\n";
        assert!(text.contains("not measured: audit-log\n  why           forbidden") && text.ends_with(last), "{text}");
    }
}
