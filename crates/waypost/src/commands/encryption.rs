//! `--encryption-provider-config`: the encryption of the store, and its reload at run time.
//!
//! In: the file, read at the start and then every few seconds. Out: the configuration of the store. An invalid file, or one that would make
//! stored values unreadable, is rejected and logged once; the old configuration stays. It is retried, since a key is no longer in use once
//! everything has been re-encrypted.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Context as _;
use store::{Embedded, Encryption, RotationError, encryption};

use crate::config::EncryptionArguments;

/// Interval of reads of the file.
const INTERVAL: Duration = Duration::from_secs(3);

/// Counters of reloads, for `/metrics`.
#[derive(Default)]
pub(super) struct Reloads {
    accepted: AtomicU64,
    refused: AtomicU64,
}

impl Reloads {
    /// The metrics as text, with the name of kube-apiserver.
    pub(super) fn text(&self) -> String {
        let name = "apiserver_encryption_config_controller_automatic_reloads_total";
        let mut out = format!(
            "# HELP {name} Changes of the encryption configuration that were accepted or refused.\n# TYPE {name} counter\n"
        );
        for (status, count) in [("success", &self.accepted), ("failure", &self.refused)] {
            let _ = writeln!(out, "{name}{{status=\"{status}\"}} {}", count.load(Relaxed));
        }
        out
    }
}

/// The initial configuration; without a file nothing is encrypted.
pub(super) fn load(arguments: &EncryptionArguments, data_dir: &Path) -> anyhow::Result<Encryption> {
    match &arguments.encryption_provider_config {
        Some(path) => encryption::load(path, data_dir).context("reading --encryption-provider-config"),
        None => Ok(Encryption::default()),
    }
}

/// Reloads the file until the store is closed.
pub(super) struct Follower {
    pub(super) path: PathBuf,
    pub(super) data_dir: PathBuf,
    pub(super) store: Arc<Embedded>,
    pub(super) reloads: Arc<Reloads>,
}

impl Follower {
    /// Runs at the default interval.
    pub(super) async fn run(self) {
        self.run_every(INTERVAL).await;
    }

    async fn run_every(self, interval: Duration) {
        let mut refused = None;
        loop {
            tokio::time::sleep(interval).await;
            let now = match self.check().await {
                Ok(()) => None,
                Err(Rejection::Closed) => return,
                Err(Rejection::Because(why)) => Some(why),
            };
            if let Some(why) = &now
                && refused != now
            {
                self.reloads.refused.fetch_add(1, Relaxed);
                tracing::error!(
                    file = %self.path.display(),
                    "refused a change of the encryption configuration, the former one stays in use: {why}"
                );
            }
            refused = now;
        }
    }

    async fn check(&self) -> Result<(), Rejection> {
        let (path, data_dir) = (self.path.clone(), self.data_dir.clone());
        let loaded = tokio::task::spawn_blocking(move || encryption::load(&path, &data_dir)).await;
        let next = loaded.map_err(|_| Rejection::Closed)?.map_err(|error| Rejection::Because(error.to_string()))?;
        if next == *self.store.encryption() {
            return Ok(());
        }
        self.store.set_encryption(next).await.map_err(|error| match error {
            RotationError::Closed => Rejection::Closed,
            other => Rejection::Because(other.to_string()),
        })?;
        self.reloads.accepted.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// Why a change of the file was rejected.
enum Rejection {
    /// The store is closed.
    Closed,
    Because(String),
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const SECRETS: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
        - resources: [secrets]\n  providers:\n  - aesgcm:\n      keys:\n\
        \x20     - {name: one, secret: c2VjcmV0IGlzIHNlY3VyZQ==}\n";

    fn write(path: &Path, text: &str) {
        fs::write(path, text).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("changed");
    }

    async fn until(what: &str, holds: impl Fn() -> bool) {
        let wait = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("{what}"));
    }

    #[tokio::test]
    async fn a_changed_file_is_applied_and_an_invalid_one_rejected() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, data_dir) = (dir.path().join("keys.yaml"), dir.path().join("data"));
        let arguments = EncryptionArguments { encryption_provider_config: Some(file.clone()) };
        let missing = load(&arguments, &data_dir).expect_err("there is no file");
        assert!(format!("{missing:#}").contains("keys.yaml"), "{missing:#}");
        write(&file, &SECRETS.replace("aesgcm", "identity: {}\n  - aesgcm"));
        let first = load(&arguments, &data_dir).expect("a good file");
        let options = store::Options { encryption: Arc::new(first.clone()), ..store::Options::default() };
        let store = Arc::new(Embedded::open(&data_dir, |_, _| Default::default(), options).expect("a store"));
        let reloads = Arc::new(Reloads::default());
        let (kept, counted) = (store.clone(), reloads.clone());
        let following = Follower { path: file.clone(), data_dir, store: kept, reloads: counted };
        let task = tokio::spawn(following.run_every(Duration::from_millis(5)));

        write(&file, SECRETS);
        until("the file is taken over", || *store.encryption() != first).await;
        assert!(store.encryption().encrypts());
        let taken = store.encryption();
        write(&file, "kind: Pod");
        until("the bad file is counted", || reloads.refused.load(Relaxed) == 1).await;
        assert_eq!(store.encryption(), taken);
        // The file is removed while its key is in use: rejected for another reason.
        fs::remove_file(&file).expect("removed");
        until("the missing file is counted", || reloads.refused.load(Relaxed) == 2).await;
        assert_eq!((store.encryption(), reloads.accepted.load(Relaxed)), (taken, 1));
        let text = reloads.text();
        assert!(text.contains("reloads_total{status=\"success\"} 1\n"), "{text}");
        assert!(text.contains("reloads_total{status=\"failure\"} 2\n"), "{text}");

        store.close();
        write(&file, &SECRETS.replace("one", "two"));
        task.await.expect("it ends with the store");
    }
}
