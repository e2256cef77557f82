//! The parts that answer, made from a configuration.
//!
//! In: a configuration, and where objects come from. Out: the book of our names with the watches that fill it, and the
//! resolver for all others. A new configuration gets new parts only where it says something else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use client::watch::Source;
use dns::config::{Config, Name};
use dns::informers::Informers;
use dns::metrics::Metrics;
use dns::resolver::{self, ClusterZones, Resolver};
use dns::snapshot::ZoneSnapshot;
use dns::zone::{self, Quirks, Zones};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::known_as;

/// What the server is called in metrics, as CoreDNS calls itself.
pub(super) const SERVER: &str = "dns://:53";
/// How long the names of a changed configuration may take to be known.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who answers.
pub(super) struct Parts {
    pub(super) book: Arc<ZoneSnapshot>,
    pub(super) inputs: Arc<Informers>,
    pub(super) resolver: Arc<Resolver>,
}

/// What parts are made from, beside a configuration.
pub(super) struct Builder {
    pub(super) source: Arc<dyn Source>,
    pub(super) domain: String,
    pub(super) listen: Vec<SocketAddr>,
    pub(super) quirks: Quirks,
}

impl Builder {
    /// The first parts, and what counts for them.
    pub(super) fn first(&self, config: &Config) -> anyhow::Result<(Parts, Arc<Metrics>)> {
        let zone = self.zone(config)?;
        let zones = Zones::new(&zone).map_err(|error| anyhow::anyhow!("{error}"))?;
        let metrics = Metrics::new(&zones, SERVER);
        let book = ZoneSnapshot::new(zone).map_err(|error| anyhow::anyhow!("{error}"))?;
        // A mistake is said before anything is watched.
        let resolver = Resolver::new(self.told(config, &book)?, Handle::current());
        let inputs = self.inputs(&book, &metrics)?;
        Ok((Parts { book, inputs, resolver }, metrics))
    }

    /// The parts for a configuration that takes the place of another. Those of the other answer meanwhile.
    ///
    /// # Errors
    /// When it cannot be used, or says what cannot change while the server runs.
    pub(super) async fn next(&self, config: &Config, old: &Parts, metrics: &Arc<Metrics>) -> anyhow::Result<Parts> {
        let listen = config.listen_addresses().map_err(anyhow::Error::msg)?;
        ensure!(
            listen == self.listen,
            "it listens on {:?}, and {listen:?} cannot take their place while it runs; start it again",
            self.listen
        );
        let zone = self.zone(config)?;
        let zones = Zones::new(&zone).map_err(|error| anyhow::anyhow!("{error}"))?;
        ensure!(
            zones.iter().map(|zone| &zone.wire).eq(old.book.zones.iter().map(|zone| &zone.wire)),
            "the zones of `kubernetes` cannot change while it runs; start it again"
        );
        let (book, inputs) = if zone == old.book.config {
            (old.book.clone(), old.inputs.clone())
        } else {
            self.learn(zone, old, metrics).await?
        };
        let resolver = Resolver::replacing(&old.resolver, self.told(config, &book)?);
        Ok(Parts { book, inputs, resolver })
    }

    /// Another book of the same objects, once it knows them.
    async fn learn(
        &self,
        zone: zone::Config,
        old: &Parts,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<(Arc<ZoneSnapshot>, Arc<Informers>)> {
        let book = ZoneSnapshot::new(zone).map_err(|error| anyhow::anyhow!("{error}"))?;
        let inputs = self.inputs(&book, metrics)?;
        if timeout(PATIENCE, book.wait_ready()).await.is_err() {
            metrics.watch(&old.inputs.watched);
            anyhow::bail!(
                "the objects it shows could not be read within {} s: {:?}",
                PATIENCE.as_secs(),
                inputs.out_of_sync()
            );
        }
        Ok((book, inputs))
    }

    fn inputs(&self, book: &Arc<ZoneSnapshot>, metrics: &Arc<Metrics>) -> anyhow::Result<Arc<Informers>> {
        let inputs = Informers::start(&*self.source, book, metrics);
        inputs.map(Arc::new).map_err(|status| anyhow::anyhow!("{}", status.message))
    }

    fn zone(&self, config: &Config) -> anyhow::Result<zone::Config> {
        let (own, others) = known_as(&self.listen);
        let block = config.cluster().context("the Corefile has no `kubernetes`: there is nothing of ours to answer")?;
        let zone = block.zone_config(own, self.quirks).context("the block has no zones of ours")?;
        Ok(zone::Config { wildcard_addresses: others, ..zone })
    }

    /// What whoever answers names that are not ours is told.
    fn told(&self, config: &Config, book: &Arc<ZoneSnapshot>) -> anyhow::Result<resolver::Config> {
        let mut told = resolver::Config::load(config.clone())
            .map_err(|error| anyhow::anyhow!("{error}; name upstreams with --dns-upstream, or in the Corefile"))?;
        let domain = Name::parse(&self.domain).map_err(|error| anyhow::anyhow!("--cluster-domain: {error}"))?;
        told.local = Some(Arc::new(ClusterZones { snapshot: book.clone(), domains: vec![domain] }));
        told.listen_addresses.clone_from(&self.listen);
        // What `--host-dns` wrote there leads back here.
        for (path, servers) in &mut told.nameservers {
            if let Ok(text) = std::fs::read_to_string(path) {
                let rest = kernel::host_names::without_ours(&text);
                servers.retain(|server| rest.contains(&server.ip().to_string()));
            }
        }
        Ok(told)
    }
}
