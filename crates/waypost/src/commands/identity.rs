//! Reload of the keys and certificates of a running server.
//!
//! In: the folder `pki`, read every few seconds, and the time. Out: the identity of new connections ([`Live`]), the keys of tokens, the
//! admin kubeconfig, and the published CAs ([`Published`]). `waypost certs` changes the files; certificates that expire soon are renewed. An
//! invalid folder is logged once, and the old identity stays.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control::Settings;
use jiff::Timestamp;
use rest::auth::service_account::ServiceAccounts;
use rest::kubeconfig::{self, ClusterInfo};
use rest::pki::{self, Clients, Live, Pki, ServingNames, write_clients};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

/// Interval of checks of the folder.
const INTERVAL: Duration = Duration::from_secs(3);
/// Interval of reloads without a change, for renewals.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3600);

/// The published part of the identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Published {
    info: ClusterInfo,
    /// The accepted keys of tokens.
    keys: Vec<Value>,
}

impl Published {
    pub(super) fn new(server: &str, pki: &Pki, accounts: &ServiceAccounts, now: Timestamp) -> Self {
        let agent_ca = Some(pki.agent_ca_key_id().to_owned());
        let info = ClusterInfo { server: server.to_owned(), ca_pem: pki.ca_pem().to_owned(), agent_ca };
        Self { info, keys: accounts.public_keys(now) }
    }

    /// The settings of controllers that publish it.
    pub(super) fn settings(&self, base: &Settings) -> Settings {
        let (cluster_info, root_ca) = (Some(self.info.render()), Some(self.info.ca_pem.clone()));
        Settings { cluster_info, root_ca, ..base.clone() }
    }
}

/// Reloads the folder while it is polled.
pub(super) struct Follower {
    /// The folder.
    pub(super) dir: PathBuf,
    pub(super) names: ServingNames,
    pub(super) live: Live,
    pub(super) accounts: ServiceAccounts,
    pub(super) clients: Arc<Clients>,
    /// The admin kubeconfig, and the URL in it.
    pub(super) kubeconfig: Option<(PathBuf, String)>,
    /// The address of the server for other machines.
    pub(super) advertised: String,
    pub(super) published: watch::Sender<Published>,
}

/// The last seen state of the folder.
#[derive(Default)]
struct Seen {
    stamp: Vec<(String, u64, i64, i64)>,
    read: Option<Instant>,
    clients: String,
}

impl Follower {
    /// Runs at the default interval.
    pub(super) async fn run(self) {
        self.run_every(INTERVAL).await;
    }

    async fn run_every(self, interval: Duration) {
        let follower = Arc::new(self);
        let (mut refused, mut seen) = (None, Seen::default());
        loop {
            tokio::time::sleep(interval).await;
            let this = follower.clone();
            let looked = tokio::task::spawn_blocking(move || {
                let done = this.check(&mut seen).map_err(|error| format!("{error:#}"));
                (seen, done)
            });
            let Ok((next, done)) = looked.await else { return };
            seen = next;
            let why = done.err();
            if let Some(why) = &why
                && refused.as_ref() != Some(why)
            {
                tracing::error!(dir = %follower.dir.display(), "reload of certificates failed, those in use stay: {why}");
            }
            refused = why;
        }
    }

    /// Checks once; does disk I/O.
    fn check(&self, seen: &mut Seen) -> anyhow::Result<()> {
        let stamp = stamp(&self.dir);
        if stamp != seen.stamp || seen.read.is_none_or(|read| read.elapsed() >= RENEWAL_INTERVAL) {
            self.reload()?;
            // Taken before reading, so that later changes are read next time.
            (seen.stamp, seen.read) = (stamp, Some(Instant::now()));
        }
        let published = Published::new(&self.advertised, &self.live.get(), &self.accounts, Timestamp::now());
        self.published.send_if_modified(|last| std::mem::replace(last, published.clone()) != published);
        if self.live.get().previous_ca().is_some() {
            let clients = self.clients.render();
            if clients != seen.clients {
                write_clients(&self.dir, &clients)?;
                seen.clients = clients;
            }
        }
        Ok(())
    }

    fn reload(&self) -> anyhow::Result<()> {
        let next = pki::load_or_create(&self.dir, &self.names, Timestamp::now())?;
        self.accounts.set_keys(next.signing_keys())?;
        if self.live.replace(next) {
            // Last: its certificate must already be accepted.
            if let Some((path, server)) = &self.kubeconfig {
                kubeconfig::write_admin(path, server, &self.live.get())?;
            }
            tracing::info!(dir = %self.dir.display(), "reloaded certificates and keys");
        }
        Ok(())
    }
}

/// Detects changes: files are replaced, so inode or mtime differ. Records of clients are ignored.
fn stamp(dir: &Path) -> Vec<(String, u64, i64, i64)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| {
        let (name, file) = (entry.file_name().to_string_lossy().into_owned(), entry.metadata().ok()?);
        (name != pki::CLIENTS && !name.starts_with('.')).then(|| (name, file.ino(), file.mtime(), file.mtime_nsec()))
    };
    let mut all: Vec<_> = entries.filter_map(of).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rest::pki::rotation::{self, Target};

    use super::*;

    async fn until(what: &str, holds: impl Fn() -> bool) {
        let wait = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("{what}"));
    }

    #[tokio::test]
    async fn a_server_reloads_its_folder() {
        let home = tempfile::tempdir().expect("a directory");
        let (dir, kubeconfig) = (home.path().join("pki"), home.path().join("kubeconfig"));
        let names = ServingNames { ips: Vec::new(), dns: vec!["localhost".into()] };
        let pki = pki::load_or_create(&dir, &names, Timestamp::now()).expect("an identity");
        let accounts = ServiceAccounts::new(pki.signing_key(), "cluster.local").expect("a key");
        let live = Live::new(pki);
        let published = Published::new("https://x:1", &live.get(), &accounts, Timestamp::now());
        let (published, mut news) = watch::channel(published);
        let clients = Arc::new(Clients::default());
        let first = live.get();
        clients.note("somebody", first.client_issuer(&der(&first)).expect("trusted"), Timestamp::now());
        let follower = Follower {
            dir: dir.clone(),
            names,
            live: live.clone(),
            accounts: accounts.clone(),
            clients,
            kubeconfig: Some((kubeconfig.clone(), "https://127.0.0.1:1".into())),
            advertised: "https://x:1".into(),
            published,
        };
        let task = tokio::spawn(follower.run_every(Duration::from_millis(5)));

        rotation::rotate(&dir, &[Target::Ca, Target::Signing], Timestamp::now()).expect("rotated");
        until("the identity is replaced", || live.get().previous_ca().is_some()).await;
        news.changed().await.expect("published");
        until("the kubeconfig is written", || kubeconfig.exists()).await;
        assert_eq!(accounts.public_keys(Timestamp::now()).len(), 2);
        let base = Settings::plain(store::allocation::Ranges { addresses: Vec::new(), ports: 1..=2 });
        let settings = news.borrow().settings(&base);
        assert_eq!(settings.root_ca.as_deref(), Some(live.get().ca_pem()));
        until("clients are noted", || rotation::cut_off(&dir).is_ok_and(|all| all.is_some_and(|all| all.len() == 1)))
            .await;

        // An invalid folder changes nothing.
        let good = fs::read(dir.join("ca.crt")).expect("read");
        let during = live.get();
        fs::write(dir.join("ca.crt"), "nonsense").expect("written");
        rotation::finish(&dir, &[Target::Signing]).expect("finished");
        fs::write(dir.join("ca.crt"), good).expect("written");
        until("the key before is given up", || accounts.public_keys(Timestamp::now()).len() == 1).await;
        assert_eq!(live.get().ca_pem(), during.ca_pem());
        rotation::finish(&dir, &[Target::Ca]).expect("finished");
        until("the CA before is given up", || live.get().previous_ca().is_none()).await;
        assert_eq!(live.get().client_issuer(&der(&first)), None);
        task.abort();
    }

    fn der(pki: &Pki) -> Vec<u8> {
        use rustls::pki_types::pem::PemObject as _;
        let pem = pki.admin().certificate_pem.as_bytes();
        rustls::pki_types::CertificateDer::from_pem_slice(pem).expect("a certificate").to_vec()
    }
}
