//! Settings of the audit log, with the names and defaults of kube-apiserver.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use rest::audit::{Audit, LogOptions, Mode, Policy};

/// Settings of the audit log.
#[derive(Args, Debug, Clone)]
pub(crate) struct AuditArguments {
    /// Which requests are recorded, and in how much detail: an audit.k8s.io/v1 Policy; without one none are
    #[arg(long, env = "WAYPOST_AUDIT_POLICY_FILE", value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// Write the audit log to this file; `-`: standard output. Without it there is no log
    #[arg(long, env = "WAYPOST_AUDIT_LOG_PATH", value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// Size at which the audit log is rotated, in MiB; 0: never
    #[arg(long, env = "WAYPOST_AUDIT_LOG_MAXSIZE", default_value_t = 100, value_name = "MIB")]
    audit_log_maxsize: u64,
    /// Maximum number of rotated audit logs; 0: no limit
    #[arg(long, env = "WAYPOST_AUDIT_LOG_MAXBACKUP", default_value_t = 100, value_name = "N")]
    audit_log_maxbackup: usize,
    /// How many days rotated audit logs are kept; 0: no limit
    #[arg(long, env = "WAYPOST_AUDIT_LOG_MAXAGE", default_value_t = 366, value_name = "DAYS")]
    audit_log_maxage: u32,
    /// Compress rotated audit logs with gzip
    #[arg(long, env = "WAYPOST_AUDIT_LOG_COMPRESS", num_args = 0..=1, default_missing_value = "true", default_value = "false", value_name = "BOOL")]
    audit_log_compress: bool,
    /// What requests do when the audit log cannot keep up: batch (drop events), blocking (wait), blocking-strict (also wait until
    /// a request is recorded before it is handled)
    #[arg(long, env = "WAYPOST_AUDIT_LOG_MODE", default_value = "blocking", value_name = "MODE")]
    audit_log_mode: Mode,
}

impl AuditArguments {
    /// The policy, if there is one.
    pub(crate) fn policy(&self) -> Option<&Path> {
        self.audit_policy_file.as_deref()
    }

    /// The file that the log is written to, if it is a file.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.audit_log_path.as_deref().filter(|path| *path != Path::new("-"))
    }

    /// Opens the log, if it is configured: it needs a policy and a path.
    pub(crate) fn open(&self) -> anyhow::Result<Option<Audit>> {
        let policy = self.audit_policy_file.as_deref().map(Policy::load).transpose();
        let policy = policy.context("loading --audit-policy-file")?;
        let (policy, path) = match (policy, &self.audit_log_path) {
            (Some(policy), Some(path)) => (policy, path),
            (None, Some(_)) => {
                tracing::warn!("no --audit-policy-file, no events will be recorded in the audit log");
                return Ok(None);
            }
            (Some(_), None) => {
                tracing::warn!("no --audit-log-path, no events will be recorded");
                return Ok(None);
            }
            (None, None) => return Ok(None),
        };
        let options = LogOptions {
            path: self.file().map(Path::to_owned),
            max_size: self.audit_log_maxsize,
            max_backups: self.audit_log_maxbackup,
            max_age_days: self.audit_log_maxage,
            compress: self.audit_log_compress,
        };
        let opened = Audit::open(policy, &options, self.audit_log_mode);
        opened.map(Some).with_context(|| format!("opening --audit-log-path {}", path.display()))
    }
}
