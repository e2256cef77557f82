//! Findings, and the one verdict that they come to.

use super::checks::{CHECKS, Check};
use super::evidence::{Evidence, Unmeasured};

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Judged {
    /// It is as it should be: what was seen.
    Proved(String),
    /// It is not.
    Disproved {
        /// What was seen.
        saw: String,
        /// The command that mends it.
        fix: String,
    },
    /// Nobody knows.
    NotMeasured(Unmeasured),
}

impl Judged {
    pub(crate) fn proved(saw: impl Into<String>) -> Self {
        Self::Proved(saw.into())
    }

    pub(crate) fn disproved(saw: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Disproved { saw: saw.into(), fix: fix.into() }
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
        self.findings.iter().filter(|finding| matches!(finding.judged, Judged::Disproved { .. }))
    }

    /// Whether what is wrong may be right a moment later, because something has just changed.
    pub(crate) fn is_fleeting(&self) -> bool {
        self.wrong().any(|finding| finding.check.fleeting)
    }
}

/// Runs every check.
pub(crate) fn examine(evidence: &Evidence<'_>) -> Verdict {
    let findings = CHECKS.iter().map(|check| Finding { check, judged: (check.judge)(evidence) });
    Verdict { namespace: evidence.namespace.to_owned(), name: evidence.name.to_owned(), findings: findings.collect() }
}
