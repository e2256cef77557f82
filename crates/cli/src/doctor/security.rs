//! How exposed a cluster is: evidence becomes findings, each with a severity, an object and the next step.
//!
//! ```text
//! waypost::commands::doctor::security (lists, metrics, certificates) ─▶ Evidence ─▶ checks ─▶ Report ─▶ text or JSON
//! ```
//! Everything here is pure: no I/O, no clock.

mod access;
mod certificates;
mod pods;
mod secrets;
mod server;
mod show;
#[cfg(test)]
mod testing;
mod webhooks;

use jiff::Timestamp;
use serde_json::Value;

pub use self::secrets::LEGACY_TYPE;
pub use self::show::{json, text};
use super::evidence::{Measured, Unmeasured};

/// How bad something is, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Allows an attacker to take over the cluster, or fails now.
    Critical,
    /// Grants more than most clusters need, or fails soon.
    Warning,
    /// For information; not counted by the exit code.
    Note,
}

impl Severity {
    /// Its name, in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// Something that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Which check found it.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The object: `ClusterRoleBinding web`, `Pod shop/db`, …
    pub object: String,
    /// The observation.
    pub saw: String,
    /// What to do next.
    pub fix: String,
}

/// The gathered evidence. What may not be read is unmeasured, with the reason.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The time.
    pub now: Timestamp,
    /// Roles and bindings.
    pub rbac: Measured<Rbac>,
    /// Namespaces and Pods.
    pub pods: Measured<Pods>,
    /// Secrets with tokens: of ServiceAccounts, and for joining.
    pub tokens: Measured<Vec<Value>>,
    /// `/metrics` of the server.
    pub metrics: Measured<String>,
    /// The code of a request without credentials.
    pub anonymous: Measured<u16>,
    /// Certificates, and when they end.
    pub certificates: Vec<Certificate>,
    /// Configurations of admission webhooks, with their kind.
    pub webhooks: Measured<Vec<Value>>,
}

/// Roles and bindings of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Rbac {
    /// ClusterRoles.
    pub cluster_roles: Vec<Value>,
    /// Roles.
    pub roles: Vec<Value>,
    /// ClusterRoleBindings.
    pub cluster_bindings: Vec<Value>,
    /// RoleBindings.
    pub bindings: Vec<Value>,
}

/// Pods and their Namespaces.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    /// Namespaces.
    pub namespaces: Vec<Value>,
    /// Pods.
    pub pods: Vec<Value>,
}

/// A certificate.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Its owner: `certificate of the API server 10.0.0.1:6443`.
    pub object: String,
    /// Its expiry.
    pub ends: Measured<Timestamp>,
    /// How it is renewed.
    pub fix: String,
    /// Whether a report without it is complete: nodes are often not reachable from the machine of the user.
    pub optional: bool,
}

/// Findings, the worst first, and checks that could not run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The findings.
    pub findings: Vec<Finding>,
    /// Checks that could not run, and why.
    pub unknown: Vec<(&'static str, Unmeasured)>,
}

impl Report {
    /// 1 when something worse than a note was found, 2 when a check could not run, 0 otherwise.
    pub fn exit_code(&self) -> i32 {
        match (self.findings.iter().any(|finding| finding.severity < Severity::Note), self.unknown.is_empty()) {
            (true, _) => 1,
            (false, false) => 2,
            (false, true) => 0,
        }
    }

    /// Adds the findings of a check, or that its evidence is missing.
    fn check<T>(&mut self, name: &'static str, evidence: &Measured<T>, look: impl FnOnce(&T) -> Vec<Finding>) {
        match evidence {
            Ok(evidence) => self.findings.extend(look(evidence)),
            Err(why) => self.unknown.push((name, why.clone())),
        }
    }
}

/// Runs every check.
pub fn examine(evidence: &Evidence) -> Report {
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
