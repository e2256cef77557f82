//! Findings, and the one verdict that they come to.

use super::checks::{CHECKS, Check};
use super::evidence::{Evidence, Unmeasured};

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Judged {
    /// It is as it should be: what was seen.
    Proved(String),
    /// It is not.
    Disproved(Box<diagnose::Finding>),
    /// Nobody knows.
    NotMeasured(Unmeasured),
}

impl Judged {
    pub(crate) fn proved(saw: impl Into<String>) -> Self {
        Self::Proved(saw.into())
    }

    pub(crate) fn disproved(saw: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::wrong("", saw, fix)
    }

    /// Not as it should be, under a code of its own.
    pub(crate) fn wrong(code: &'static str, saw: impl Into<String>, fix: impl Into<String>) -> Self {
        diagnose::Finding::new(code, saw, fix).into()
    }

    /// There is nothing to measure, so there is no way to do it either.
    pub(crate) fn moot(why: impl Into<String>) -> Self {
        Self::NotMeasured(Unmeasured { why: why.into(), how: String::new() })
    }

    /// It could not be measured from here.
    pub(crate) fn unknown(why: impl Into<String>, how: impl Into<String>) -> Self {
        Self::NotMeasured(Unmeasured { why: why.into(), how: how.into() })
    }
}

impl From<diagnose::Finding> for Judged {
    fn from(finding: diagnose::Finding) -> Self {
        Self::Disproved(Box::new(finding))
    }
}

impl From<Unmeasured> for Judged {
    fn from(unmeasured: Unmeasured) -> Self {
        Self::NotMeasured(unmeasured)
    }
}

/// A check, and what it found.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// The check.
    pub(crate) check: &'static Check,
    /// What it found.
    pub(crate) judged: Judged,
}

/// Everything about one Service.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// What each check found, in order.
    pub(crate) findings: Vec<Finding>,
}

impl Verdict {
    /// The first thing that is wrong: the others may follow from it.
    pub(crate) fn cause(&self) -> Option<&Finding> {
        self.wrong().next()
    }

    /// Everything that is wrong.
    pub(crate) fn wrong(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| matches!(finding.judged, Judged::Disproved(_)))
    }

    /// Whether what is wrong may be right a moment later, because something has just changed.
    pub(crate) fn is_fleeting(&self) -> bool {
        self.wrong().any(|finding| finding.check.fleeting)
    }
}

/// Runs every check.
pub(crate) fn examine(evidence: &Evidence<'_>) -> Verdict {
    let findings = CHECKS.iter().map(|check| {
        let mut judged = (check.judge)(evidence);
        if let Judged::Disproved(finding) = &mut judged
            && finding.code.is_empty()
        {
            finding.code = check.code.into();
        }
        Finding { check, judged }
    });
    Verdict { namespace: evidence.namespace.to_owned(), name: evidence.name.to_owned(), findings: findings.collect() }
}

#[cfg(test)]
mod tests {
    use api::value::ValueExt as _;
    use serde_json::Value;

    use super::super::testing::World;
    use super::*;

    /// The table of faults and healthy shapes that all renderers of findings are tested with.
    const FAULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../diagnose/tests/faults.json");

    fn examined(case: &Value) -> Verdict {
        let mut world = World::new();
        let cluster = &mut world.cluster;
        for (member, list) in [
            ("services", &mut cluster.services),
            ("slices", &mut cluster.slices),
            ("pods", &mut cluster.pods),
            ("nodes", &mut cluster.nodes),
        ] {
            *list = case.items(member).to_vec();
        }
        examine(&world.evidence("default", "web"))
    }

    #[test]
    fn b13_the_doctor_has_the_code_and_the_sentence_of_the_diagnosis() {
        let table = std::fs::read(FAULTS).expect("the table");
        let table: Value = serde_json::from_slice(&table).expect("JSON");
        for case in table.items("faults") {
            let verdict = examined(case);
            let Some(Judged::Disproved(finding)) = verdict.cause().map(|cause| &cause.judged) else {
                panic!("{}: nothing is wrong", case.text("name"));
            };
            let wanted = (case.text("code"), case.text("level"), case.text("message"));
            assert_eq!((&*finding.code, finding.level.as_str(), &*finding.message), wanted, "{}", case.text("name"));
        }
        for case in table.items("healthy") {
            let wrong: Vec<_> = examined(case).wrong().map(|finding| finding.judged.clone()).collect();
            assert_eq!(wrong, [], "{}", case.text("name"));
        }
    }
}
