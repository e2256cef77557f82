//! How exposed a cluster is: evidence becomes findings, each with a severity, an object and the next step.
//!
//! ```text
//! commands::doctor::security (lists, metrics, certificates) ─▶ Evidence ─▶ checks ─▶ Report ─▶ text or JSON
//! ```
//! Everything here is pure: no I/O, no clock.

mod access;
mod certificates;
mod pods;
pub(crate) mod secrets;
mod server;
mod show;
#[cfg(test)]
mod testing;
mod webhooks;

use jiff::Timestamp;
use serde_json::Value;

pub(crate) use self::show::{json, text};
use super::evidence::{Measured, Unmeasured};

/// How bad something is, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Severity {
    /// Allows an attacker to take the cluster over, or fails now.
    Critical,
    /// Gives more than most clusters need, or fails soon.
    Warning,
    /// For information; not counted by the exit code.
    Note,
}

impl Severity {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// Something that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    /// Which check found it.
    pub(crate) check: &'static str,
    /// How bad it is.
    pub(crate) severity: Severity,
    /// The object: `ClusterRoleBinding web`, `Pod shop/db`, …
    pub(crate) object: String,
    /// What was seen.
    pub(crate) saw: String,
    /// What to do next.
    pub(crate) fix: String,
}

/// What was gathered. What may not be read is not measured, with the reason.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    /// The time.
    pub(crate) now: Timestamp,
    /// Roles and bindings.
    pub(crate) rbac: Measured<Rbac>,
    /// Namespaces and Pods.
    pub(crate) pods: Measured<Pods>,
    /// Secrets with tokens: of ServiceAccounts, and for joining.
    pub(crate) tokens: Measured<Vec<Value>>,
    /// `/metrics` of the server.
    pub(crate) metrics: Measured<String>,
    /// The code of a request without credentials.
    pub(crate) anonymous: Measured<u16>,
    /// Certificates, and when they end.
    pub(crate) certificates: Vec<Certificate>,
    /// Configurations of admission webhooks, which say their kind.
    pub(crate) webhooks: Measured<Vec<Value>>,
}

/// Roles and bindings of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rbac {
    pub(crate) cluster_roles: Vec<Value>,
    pub(crate) roles: Vec<Value>,
    pub(crate) cluster_bindings: Vec<Value>,
    pub(crate) bindings: Vec<Value>,
}

/// Pods and their Namespaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pods {
    pub(crate) namespaces: Vec<Value>,
    pub(crate) pods: Vec<Value>,
}

/// A certificate.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    /// Whose it is: `certificate of the API server 10.0.0.1:6443`.
    pub(crate) object: String,
    /// When it ends.
    pub(crate) ends: Measured<Timestamp>,
    /// How it is renewed.
    pub(crate) fix: String,
    /// Whether a report without it is whole: nodes are often not reachable from where people are.
    pub(crate) optional: bool,
}

/// Findings, the worst first, and checks that could not be made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// The findings.
    pub(crate) findings: Vec<Finding>,
    /// Checks that could not be made, and why.
    pub(crate) unknown: Vec<(&'static str, Unmeasured)>,
}

impl Report {
    /// 1 when something worse than a note was found, 2 when a check could not be made, 0 otherwise.
    pub(crate) fn exit_code(&self) -> i32 {
        match (self.findings.iter().any(|finding| finding.severity < Severity::Note), self.unknown.is_empty()) {
            (true, _) => 1,
            (false, false) => 2,
            (false, true) => 0,
        }
    }

    /// Adds what a check found in evidence, or that there was none.
    fn check<T>(&mut self, name: &'static str, evidence: &Measured<T>, look: impl FnOnce(&T) -> Vec<Finding>) {
        match evidence {
            Ok(evidence) => self.findings.extend(look(evidence)),
            Err(why) => self.unknown.push((name, why.clone())),
        }
    }
}

/// Runs every check.
pub(crate) fn examine(evidence: &Evidence) -> Report {
    let mut report = Report::default();
    report.check(access::ANONYMOUS, &evidence.rbac, access::anonymous);
    report.check(access::BINDINGS, &evidence.rbac, access::bindings);
    report.check(server::ANONYMOUS, &evidence.anonymous, |code| server::anonymous(*code));
    report.check(pods::CHECK, &evidence.pods, pods::privileged);
    report.check(secrets::JOIN, &evidence.tokens, |all| secrets::join_tokens(all, evidence.now));
    report.check(secrets::LEGACY, &evidence.tokens, |all| secrets::legacy_tokens(all));
    let settings: [(&'static str, server::Judge); 2] =
        [(server::ENCRYPTION, server::encryption), (server::AUDIT, server::audit)];
    for (name, judge) in settings {
        match evidence.metrics.as_ref().map_err(Clone::clone).and_then(|metrics| judge(metrics)) {
            Ok(found) => report.findings.extend(found),
            Err(why) => report.unknown.push((name, why)),
        }
    }
    certificates::judge(&evidence.certificates, evidence.now, &mut report);
    report.check(webhooks::CHECK, &evidence.webhooks, |all| webhooks::ignored(all));
    report.findings.sort_by_key(|finding| finding.severity);
    report
}
