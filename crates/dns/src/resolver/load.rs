//! Resolver configuration and the files it refers to.
//!
//! In: the configuration and the file system. Out: everything the resolver needs, read once, so that errors are
//! reported before serving.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::resolv_conf::ResolvConf;

use super::tls::{self, TlsError};
use crate::answer::CnameChain;
use crate::config::{self, Block, ForwardTarget, Name, Tls};
use crate::forward::Lookup;

/// Cluster zones as used by the resolver.
pub trait LocalZones: Send + Sync {
    /// Answers a query message.
    fn answer(&self, message: &[u8]) -> LocalAnswer;
    /// Reply to a query whose CNAME target is outside the cluster zones, with the records of the target.
    fn finish_cname(&self, message: &[u8], chain: &CnameChain, found: &Lookup) -> Vec<u8>;
    /// Search path of the Pod with this address, its own namespace first; `None` if there is no such Pod.
    fn search_path(&self, client: IpAddr) -> Option<Vec<Name>>;
}

/// Answer of the cluster zones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocalAnswer {
    /// The name is outside the cluster zones, or falls through.
    NotLocal,
    /// Complete reply.
    Reply(Vec<u8>),
    /// CNAME chain to a name outside the cluster zones.
    Cname(Box<CnameChain>),
}

/// Source of time; replaced in tests.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// Resolver configuration.
#[derive(Clone)]
pub struct Config {
    /// Server blocks.
    pub server: config::Config,
    /// Nameservers of the files that `forward` refers to.
    pub nameservers: HashMap<PathBuf, Vec<SocketAddr>>,
    /// Search domains of the files that `autopath` refers to.
    pub searches: HashMap<PathBuf, Vec<Name>>,
    /// Content of the files that `hosts` refers to.
    pub hosts: HashMap<PathBuf, String>,
    /// TLS client configurations of `forward`, or the error.
    pub tls: Vec<(Tls, TlsResult)>,
    /// Cluster zones.
    pub local: Option<Arc<dyn LocalZones>>,
    /// Listen addresses; upstreams at these addresses are loops.
    pub listen_addresses: Vec<SocketAddr>,
    /// Time limit of a query.
    pub query_timeout: Duration,
    /// How long a query waits for upstreams before a stale answer is served.
    pub stale_timeout: Duration,
    /// Source of time.
    pub clock: Clock,
}

/// TLS client configuration, or why there is none.
pub(super) type TlsResult = Result<Arc<rustls::ClientConfig>, Arc<TlsError>>;

/// File that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}: {why}", path = path.display())]
pub struct LoadError {
    /// Path.
    pub path: PathBuf,
    /// Reason.
    pub why: String,
}

impl Config {
    /// Configuration without the files it refers to.
    #[must_use]
    pub fn new(server: config::Config) -> Self {
        Self {
            server,
            nameservers: HashMap::new(),
            searches: HashMap::new(),
            hosts: HashMap::new(),
            tls: Vec::new(),
            local: None,
            listen_addresses: Vec::new(),
            query_timeout: Duration::from_secs(5),
            stale_timeout: Duration::from_millis(1800),
            clock: Arc::new(Instant::now),
        }
    }

    /// Configuration with the files it refers to.
    ///
    /// # Errors
    /// When a file cannot be read. A missing hosts file is treated as empty.
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
                    ForwardTarget::File(path) => {
                        let conf = resolv_conf(path)?;
                        let addresses = conf.nameservers.iter().filter_map(|text| nameserver(text)).collect();
                        self.nameservers.insert(path.clone(), addresses);
                    }
                    ForwardTarget::Server(server) if server.tls && self.tls_of(&forward.tls).is_none() => {
                        let client = tls::client(&forward.tls).map_err(Arc::new);
                        self.tls.push((forward.tls.clone(), client));
                    }
                    ForwardTarget::Server(_) => {}
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

    pub(super) fn tls_of(&self, tls: &Tls) -> Option<&TlsResult> {
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

/// Nameserver address of a resolv.conf; link-local addresses with a zone are ignored.
fn nameserver(text: &str) -> Option<SocketAddr> {
    text.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53)).ok()
}
