//! Settings of the server: anonymous requests, encryption at rest, the audit log. Settings without a metric are unknown.

use super::{Finding, Measured, Severity, Unmeasured};

pub(super) const ANONYMOUS: &str = "anonymous-auth";
pub(super) const ENCRYPTION: &str = "encryption-at-rest";
pub(super) const AUDIT: &str = "audit-log";

/// Evaluates metrics; unmeasured when they are missing.
pub(super) type Judge = fn(&str) -> Measured<Vec<Finding>>;

/// 1 where values of Secrets are encrypted when they are written.
const ENCRYPTED: &str = "waypost_store_secrets_encrypted";
/// 1 while files may hold what another configuration wrote.
const REENCRYPTING: &str = "waypost_store_reencrypting";
/// There where requests are recorded.
const AUDITED: &str = "apiserver_audit_event_total";

/// Whether requests without credentials are accepted as `system:anonymous`. That is the default of Kubernetes; what they may do is another
/// check.
pub(super) fn anonymous(code: u16) -> Vec<Finding> {
    if code == 401 {
        return Vec::new();
    }
    vec![Finding {
        check: ANONYMOUS,
        severity: Severity::Note,
        object: "API server".to_owned(),
        saw: "requests without credentials are those of system:anonymous, as by default".to_owned(),
        fix: "--anonymous-auth=false refuses them; health checks then need credentials, too".to_owned(),
    }]
}

/// The value of a metric without labels.
fn metric(metrics: &str, name: &str) -> Option<f64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    metrics.lines().find_map(value)
}

/// Whether Secrets are encrypted at rest.
pub(super) fn encryption(metrics: &str) -> Measured<Vec<Finding>> {
    let encrypted = metric(metrics, ENCRYPTED).ok_or_else(|| Unmeasured {
        why: format!("the server has no metric {ENCRYPTED}"),
        how: "look for --encryption-provider-config among its arguments".to_owned(),
    })?;
    let finding = |severity, saw: &str, fix: &str| Finding {
        check: ENCRYPTION,
        severity,
        object: "store of the API server".to_owned(),
        saw: saw.to_owned(),
        fix: fix.to_owned(),
    };
    Ok(if encrypted == 0.0 {
        let saw = "Secrets are not encrypted at rest: they can be read from the data directory and from backups";
        vec![finding(
            Severity::Warning,
            saw,
            "start the server with --encryption-provider-config FILE (docs/security.md)",
        )]
    } else if metric(metrics, REENCRYPTING).is_some_and(|pending| pending != 0.0) {
        let saw = "values that another configuration wrote are still being rewritten";
        vec![finding(Severity::Note, saw, "wait until waypost_store_reencrypting is 0")]
    } else {
        Vec::new()
    })
}

/// Whether requests are recorded.
pub(super) fn audit(metrics: &str) -> Measured<Vec<Finding>> {
    if metric(metrics, AUDITED).is_some() {
        return Ok(Vec::new());
    }
    // Another server would have the metric whether it records or not; one without our own metrics is such a server.
    if metric(metrics, ENCRYPTED).is_none() {
        let how = "look for --audit-policy-file and --audit-log-path among its arguments".to_owned();
        return Err(Unmeasured {
            why: "the metrics of this server do not say whether it records requests".to_owned(),
            how,
        });
    }
    Ok(vec![Finding {
        check: AUDIT,
        severity: Severity::Warning,
        object: "API server".to_owned(),
        saw: "requests are not recorded: there is no audit log".to_owned(),
        fix: "start the server with --audit-policy-file and --audit-log-path (docs/security.md)".to_owned(),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severities(found: Measured<Vec<Finding>>) -> Option<Vec<Severity>> {
        found.ok().map(|all| all.iter().map(|one| one.severity).collect())
    }

    #[test]
    fn encryption_is_known_by_its_metrics() {
        let of = |metrics: &str| severities(encryption(metrics));
        assert_eq!(of("waypost_store_secrets_encrypted 1\nwaypost_store_reencrypting 0\n"), Some(vec![]));
        assert_eq!(of("waypost_store_secrets_encrypted 0\n"), Some(vec![Severity::Warning]));
        assert_eq!(of("waypost_store_secrets_encrypted 1\nwaypost_store_reencrypting 1\n"), Some(vec![Severity::Note]));
        assert_eq!(of("go_threads 8\n"), None);
    }

    #[test]
    fn the_audit_log_is_known_by_its_metrics() {
        let of = |metrics: &str| severities(audit(metrics));
        assert_eq!(of("apiserver_audit_event_total 0\nwaypost_store_secrets_encrypted 1\n"), Some(vec![]));
        assert_eq!(of("waypost_store_secrets_encrypted 1\n"), Some(vec![Severity::Warning]));
        assert_eq!(of("go_threads 8\n"), None);
    }

    #[test]
    fn anonymous_requests_are_noted() {
        assert_eq!(anonymous(401), []);
        assert_eq!(severities(Ok(anonymous(403))), Some(vec![Severity::Note]));
    }
}
