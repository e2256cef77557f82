//! What the resolver is told, and the files that belong to it.
//!
//! In: the configuration and the file system. Out: everything the resolver needs, read once, so that a mistake is said
//! before anything is served.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::resolv_conf::ResolvConf;

use super::secure;
use crate::answer::Chase;
use crate::beyond::Lookup;
use crate::config::{self, Block, Name, Tls, To};

/// What is answered by the cluster's own zones.
pub trait Local: Send + Sync {
    /// What is known of a question's name.
    fn answer(&self, message: &[u8]) -> Known;
    /// The answer to a question whose name leads out, with what was found there.
    fn followed(&self, message: &[u8], chase: &Chase, found: &Lookup) -> Vec<u8>;
    /// The search path of the Pod that has this address now, its own namespace first; `None` when there is no such Pod.
    fn search_path(&self, client: IpAddr) -> Option<Vec<Name>>;
}

/// What the cluster's own zones know of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Known {
    /// Nothing: the name is not ours, or falls through to others.
    Nothing,
    /// All: this is the answer.
    All(Vec<u8>),
    /// That it is another name, which is not ours.
    Alias(Box<Chase>),
}

/// Where the time comes from; tests bring their own.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// What the resolver is told.
#[derive(Clone)]
pub struct Config {
    /// The blocks.
    pub server: config::Config,
    /// Nameservers of files that `forward` names.
    pub nameservers: HashMap<PathBuf, Vec<SocketAddr>>,
    /// Search domains of files that `autopath` names.
    pub searches: HashMap<PathBuf, Vec<Name>>,
    /// Texts of files that `hosts` names.
    pub hosts: HashMap<PathBuf, String>,
    /// TLS settings of `forward`, read, or why they cannot be.
    pub tls: Vec<(Tls, Result<Arc<rustls::ClientConfig>, String>)>,
    /// The cluster's own zones.
    pub local: Option<Arc<dyn Local>>,
    /// Addresses we serve at; an upstream there would be ourselves.
    pub own: Vec<SocketAddr>,
    /// The longest a question may take.
    pub total: Duration,
    /// How long a question waits for a new answer while an old one is at hand.
    pub patience: Duration,
    /// Where the time comes from.
    pub clock: Clock,
}

/// A file that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}: {why}", path = path.display())]
pub struct LoadError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

impl Config {
    /// The configuration without the files it names.
    #[must_use]
    pub fn new(server: config::Config) -> Self {
        Self {
            server,
            nameservers: HashMap::new(),
            searches: HashMap::new(),
            hosts: HashMap::new(),
            tls: Vec::new(),
            local: None,
            own: Vec::new(),
            total: Duration::from_secs(5),
            patience: Duration::from_millis(1800),
            clock: Arc::new(Instant::now),
        }
    }

    /// The configuration with the files it names.
    ///
    /// # Errors
    /// When one cannot be read. A missing hosts file is an empty one, as everywhere.
    pub fn load(server: config::Config) -> Result<Self, LoadError> {
        let mut out = Self::new(server);
        for block in out.server.blocks.clone() {
            out.load_block(&block)?;
        }
        Ok(out)
    }

    fn load_block(&mut self, block: &Block) -> Result<(), LoadError> {
        for forward in &block.forwards {
            for to in &forward.to {
                match to {
                    To::File(path) => {
                        let conf = resolv_conf(path)?;
                        let addresses = conf.nameservers.iter().filter_map(|text| nameserver(text)).collect();
                        self.nameservers.insert(path.clone(), addresses);
                    }
                    To::Server(server) if server.tls && self.tls_of(&forward.tls).is_none() => {
                        let client = secure::client(&forward.tls);
                        self.tls.push((forward.tls.clone(), client));
                    }
                    To::Server(_) => {}
                }
            }
        }
        if let Some(path) = block.autopath.as_ref().and_then(|autopath| autopath.file.as_ref()) {
            let names = resolv_conf(path)?.searches.iter().filter_map(|text| Name::parse(text).ok()).collect();
            self.searches.insert(path.clone(), names);
        }
        if let Some(path) = block.hosts.as_ref().and_then(|hosts| hosts.file.as_ref()) {
            let text = match std::fs::read_to_string(path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
                other => other.map_err(failed(path))?,
            };
            self.hosts.insert(path.clone(), text);
        }
        Ok(())
    }

    pub(super) fn tls_of(&self, tls: &Tls) -> Option<&Result<Arc<rustls::ClientConfig>, String>> {
        self.tls.iter().find(|(key, _)| key == tls).map(|(_, client)| client)
    }
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> LoadError {
    move |error| LoadError { path: path.to_owned(), why: error.to_string() }
}

fn resolv_conf(path: &Path) -> Result<ResolvConf, LoadError> {
    let text = std::fs::read_to_string(path).map_err(failed(path))?;
    ResolvConf::parse(&text).map_err(|error| LoadError { path: path.to_owned(), why: error.to_string() })
}

/// An address of a resolv.conf; link-local ones with an interface are left out.
fn nameserver(text: &str) -> Option<SocketAddr> {
    text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53)).ok()
}
