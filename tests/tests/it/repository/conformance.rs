//! Kubernetes' own end-to-end suite: `docs/conformance.md` has every test of it that is meant, and says of each what the report says.
//!
//! `scripts/conformance` runs the suite, which takes long and needs Go, and then the comparison below.

use std::collections::BTreeMap;

use super::{read, root};

/// How many tests of sig-network are marked `[Conformance]` in the pinned release.
const TESTS: usize = 47;
/// How many others of sig-network there are.
const OTHERS: usize = 199;

/// What the document says of a test, or the report: without the reason.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
    NotForUs,
    NotRun,
}

/// The rows of the document: `| [sig-network] … | passed |`.
fn documented() -> BTreeMap<String, Outcome> {
    let mut out = BTreeMap::new();
    for line in read(&root().join("docs/conformance.md")).lines().filter(|line| line.starts_with("| [sig-network]")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, result] = cells[..] else { panic!("a row has a name and a result: {line}") };
        let outcome = match result.split_once(": ") {
            None if result == "passed" => Outcome::Passed,
            Some(("fails", _)) => Outcome::Failed,
            Some(("skipped", _)) => Outcome::Skipped,
            Some(("not for us", _)) => Outcome::NotForUs,
            Some(("not run", _)) => Outcome::NotRun,
            _ => panic!("a result is `passed`, or `fails`, `skipped`, `not for us` or `not run` with a reason: {line}"),
        };
        assert!(out.insert(name.to_owned(), outcome).is_none(), "{name} has two rows");
    }
    out
}

/// Whether a test is one of those that every cluster has to pass: the first table.
fn is_conformance(name: &str) -> bool {
    name.ends_with("[Conformance]")
}

/// The tests of a JUnit report that were selected.
fn reported(report: &str) -> BTreeMap<String, Outcome> {
    let cases = report.split("<testcase ").skip(1);
    let selected = cases.filter_map(|case| {
        let name = attribute(case, "name").strip_prefix("[It] ")?.to_owned();
        let outcome = match attribute(case, "status").as_str() {
            "passed" => Outcome::Passed,
            "skipped" if case.contains("<skipped message=\"skipped\"") => return None,
            "skipped" => Outcome::Skipped,
            _ => Outcome::Failed,
        };
        Some((name, outcome))
    });
    selected.collect()
}

fn attribute(element: &str, name: &str) -> String {
    let value = element.split_once(&format!("{name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
    let (value, _) = value.unwrap_or_else(|| panic!("a test case has no {name}"));
    value.replace("&lt;", "<").replace("&gt;", ">").replace("&#34;", "\"").replace("&#39;", "'").replace("&amp;", "&")
}

#[test]
fn b08_the_document_has_every_test_of_the_suite() {
    let documented = documented();
    let conformance = documented.keys().filter(|name| is_conformance(name)).count();
    assert_eq!(conformance, TESTS);
    assert_eq!(documented.len() - conformance, OTHERS);
}

#[test]
fn b08_reports_are_read_as_ginkgo_writes_them() {
    let report = r#"<testsuites><testsuite>
        <testcase name="[SynchronizedBeforeSuite]" classname="e2e" status="passed" time="1"></testcase>
        <testcase name="[It] [sig-network] a &lt;b&gt; [Conformance]" classname="e2e" status="passed" time="1"></testcase>
        <testcase name="[It] [sig-network] c" classname="e2e" status="failed" time="1"><failure message="x"></failure></testcase>
        <testcase name="[It] [sig-network] d" classname="e2e" status="timedout" time="1"></testcase>
        <testcase name="[It] [sig-network] e" classname="e2e" status="skipped" time="1"><skipped message="skipped - needs two nodes"></skipped></testcase>
        <testcase name="[It] [sig-storage] f" classname="e2e" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
        </testsuite></testsuites>"#;
    let expected = [
        ("[sig-network] a <b> [Conformance]", Outcome::Passed),
        ("[sig-network] c", Outcome::Failed),
        ("[sig-network] d", Outcome::Failed),
        ("[sig-network] e", Outcome::Skipped),
    ];
    assert_eq!(reported(report), BTreeMap::from(expected.map(|(name, outcome)| (name.to_owned(), outcome))));
}

#[test]
#[ignore = "needs the report of Kubernetes' end-to-end suite: scripts/conformance makes it and runs this"]
fn b08_the_report_of_the_suite_is_what_the_document_says() {
    let reported = reported(&read(&root().join("target/conformance/junit_01.xml")));
    let mut documented = documented();
    documented.retain(|name, _| is_conformance(name));
    let differ = |(name, outcome): &(&String, &Outcome)| reported.get(*name) != Some(*outcome);
    let wrong: Vec<_> = documented.iter().filter(differ).map(|(name, said)| (name, said, reported.get(name))).collect();
    assert!(wrong.is_empty(), "the document and the report disagree: {wrong:#?}");
    assert_eq!(reported.len(), documented.len(), "the report has tests that the document lacks");
}
