//! Results of checks, and the resulting verdict.

use super::checks::{CHECKS, Check};
use super::evidence::{Evidence, Unmeasured};

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CheckResult {
    /// Passed: the observation.
    Passed(String),
    /// Failed.
    Failed(Box<diagnose::Finding>),
    /// Not measured, or nothing to measure.
    NotMeasured(Unmeasured),
}

impl CheckResult {
    pub(crate) fn passed(saw: impl Into<String>) -> Self {
        Self::Passed(saw.into())
    }

    /// Failed, with the code of the check.
    pub(crate) fn failed(saw: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::failed_with("", saw, fix)
    }

    /// Failed, with a code of its own.
    pub(crate) fn failed_with(code: &'static str, saw: impl Into<String>, fix: impl Into<String>) -> Self {
        diagnose::Finding::new(code, saw, fix).into()
    }

    /// There is nothing to measure.
    pub(crate) fn not_applicable(why: impl Into<String>) -> Self {
        Self::NotMeasured(Unmeasured { why: why.into(), how: String::new() })
    }

    /// It could not be measured from here.
    pub(crate) fn not_measured(why: impl Into<String>, how: impl Into<String>) -> Self {
        Self::NotMeasured(Unmeasured { why: why.into(), how: how.into() })
    }
}

impl From<diagnose::Finding> for CheckResult {
    fn from(finding: diagnose::Finding) -> Self {
        Self::Failed(Box::new(finding))
    }
}

impl From<Unmeasured> for CheckResult {
    fn from(unmeasured: Unmeasured) -> Self {
        Self::NotMeasured(unmeasured)
    }
}

/// A check and its result.
#[derive(Clone, Debug)]
pub(crate) struct CheckOutcome {
    pub(crate) check: &'static Check,
    pub(crate) result: CheckResult,
}

/// The results of all checks of one Service.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// In the order of the checks.
    pub(crate) outcomes: Vec<CheckOutcome>,
}

impl Verdict {
    /// Whether a check failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.cause().is_some()
    }

    /// The first failure: the others may follow from it.
    pub(crate) fn cause(&self) -> Option<&CheckOutcome> {
        self.failures().next()
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = &CheckOutcome> {
        self.outcomes.iter().filter(|outcome| matches!(outcome.result, CheckResult::Failed(_)))
    }

    /// Whether a failure may be transient, because something has just changed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.failures().any(|outcome| outcome.check.transient)
    }
}

/// Runs all checks.
pub fn run_checks(evidence: &Evidence<'_>) -> Verdict {
    let outcomes = CHECKS.iter().map(|check| {
        let mut result = (check.run)(evidence);
        if let CheckResult::Failed(finding) = &mut result
            && finding.code.is_empty()
        {
            finding.code = check.code.into();
        }
        CheckOutcome { check, result }
    });
    Verdict { namespace: evidence.namespace.to_owned(), name: evidence.name.to_owned(), outcomes: outcomes.collect() }
}

#[cfg(test)]
mod tests {
    use api::value::ValueExt as _;
    use serde_json::Value;

    use super::super::testing::Fixture;
    use super::*;

    /// The table of faults and healthy shapes that all renderers of findings are tested with.
    const FAULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../diagnose/tests/faults.json");

    fn examined(case: &Value) -> Verdict {
        let mut fixture = Fixture::new();
        let cluster = &mut fixture.cluster;
        for (member, list) in [
            ("services", &mut cluster.services),
            ("slices", &mut cluster.slices),
            ("pods", &mut cluster.pods),
            ("nodes", &mut cluster.nodes),
        ] {
            *list = case.items(member).to_vec();
        }
        run_checks(&fixture.evidence("default", "web"))
    }

    #[test]
    fn b13_the_doctor_has_the_code_and_the_sentence_of_the_diagnosis() {
        let table = std::fs::read(FAULTS).expect("the table");
        let table: Value = serde_json::from_slice(&table).expect("JSON");
        for case in table.items("faults") {
            let verdict = examined(case);
            let Some(CheckResult::Failed(finding)) = verdict.cause().map(|cause| &cause.result) else {
                panic!("{}: nothing is wrong", case.text("name"));
            };
            let wanted = (case.text("code"), case.text("level"), case.text("message"));
            assert_eq!((&*finding.code, finding.level.as_str(), &*finding.message), wanted, "{}", case.text("name"));
        }
        for case in table.items("healthy") {
            let failures: Vec<_> = examined(case).failures().map(|outcome| outcome.result.clone()).collect();
            assert_eq!(failures, [], "{}", case.text("name"));
        }
    }
}
