//! The certificates of a class: which one is shown for which server name (SNI).
//!
//! In: server names with their Secrets, and the certificates of these. Out: the certificate for a handshake; without one
//! the handshake fails. New certificates are for new handshakes.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use routing::ingress::ServerCertificates;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::super::trust::Trust;

/// The certificates of a class, exchanged as a whole.
#[derive(Default)]
pub(super) struct ClassCertificates(ArcSwap<Shown>);

#[derive(Default)]
struct Shown {
    names: Arc<ServerCertificates>,
    /// By Secret.
    keys: HashMap<Arc<str>, Arc<CertifiedKey>>,
}

impl ClassCertificates {
    /// Shows these certificates. With `keep`, hosts without a certificate keep the one that they have now.
    pub(super) fn set(&self, names: &Arc<ServerCertificates>, trust: &Trust, keep: bool) {
        let before = self.0.load();
        let names = if keep { Arc::new(names.with_hosts_of(&before.names)) } else { Arc::clone(names) };
        let key = |secret: Arc<str>| {
            let own = trust.certificate(&secret);
            let key = own.or_else(|| before.keys.get(&secret).filter(|_| keep)).cloned()?;
            Some((secret, key))
        };
        let keys = names.secrets().into_iter().filter_map(key).collect();
        self.0.store(Arc::new(Shown { names, keys }));
    }

    /// Whether one of these Secrets is used.
    pub(super) fn uses(&self, changed: &BTreeSet<Arc<str>>) -> bool {
        !changed.is_empty() && self.0.load().names.secrets().iter().any(|secret| changed.contains(secret))
    }

    fn find(&self, server_name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let shown = self.0.load();
        let of = |name| shown.names.find(name).and_then(|secret| shown.keys.get(secret)).cloned();
        of(server_name).or_else(|| of(None))
    }
}

impl fmt::Debug for ClassCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClassCertificates")
    }
}

impl ResolvesServerCert for ClassCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        self.find(name.as_deref())
    }
}
