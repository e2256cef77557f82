//! The components of the DNS server, built from a configuration.
//!
//! In: a configuration, and the source of objects. Out: the zone snapshot with its informers, and the resolver for other names. A new
//! configuration replaces only the components that it changes.

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

/// The `server` label of metrics, as in CoreDNS.
pub(super) const SERVER: &str = "dns://:53";
/// Timeout of the first sync of a new zone.
const SYNC_TIMEOUT: Duration = Duration::from_secs(60);

/// The components that answer queries.
pub(super) struct Components {
    pub(super) snapshot: Arc<ZoneSnapshot>,
    pub(super) informers: Arc<Informers>,
    pub(super) resolver: Arc<Resolver>,
}

/// Inputs of the components besides the configuration.
pub(super) struct Builder {
    pub(super) source: Arc<dyn Source>,
    pub(super) domain: String,
    pub(super) listen: Vec<SocketAddr>,
    pub(super) quirks: Quirks,
}

impl Builder {
    /// The first components, and their metrics.
    pub(super) fn first(&self, config: &Config) -> anyhow::Result<(Components, Arc<Metrics>)> {
        let zone = self.zone(config)?;
        let zones = Zones::new(&zone).map_err(|error| anyhow::anyhow!("{error}"))?;
        let metrics = Metrics::new(&zones, SERVER);
        let snapshot = ZoneSnapshot::new(zone).map_err(|error| anyhow::anyhow!("{error}"))?;
        // Errors are returned before watches start.
        let resolver = Resolver::new(self.resolver_config(config, &snapshot)?, Handle::current());
        let informers = self.informers(&snapshot, &metrics)?;
        Ok((Components { snapshot, informers, resolver }, metrics))
    }

    /// The components of a new configuration. The old ones answer until they are swapped.
    ///
    /// # Errors
    /// When the configuration is invalid, or changes what cannot change at run time.
    pub(super) async fn next(
        &self,
        config: &Config,
        old: &Components,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<Components> {
        let listen = config.listen_addresses()?;
        ensure!(
            listen == self.listen,
            "listen addresses {:?} cannot be changed to {listen:?} at run time; restart the server",
            self.listen
        );
        let zone = self.zone(config)?;
        let zones = Zones::new(&zone).map_err(|error| anyhow::anyhow!("{error}"))?;
        ensure!(
            zones.iter().map(|zone| &zone.wire).eq(old.snapshot.zones.iter().map(|zone| &zone.wire)),
            "the zones of `kubernetes` cannot change at run time; restart the server"
        );
        let (snapshot, informers) = if zone == old.snapshot.config {
            (old.snapshot.clone(), old.informers.clone())
        } else {
            self.sync_zone(zone, old, metrics).await?
        };
        let resolver = Resolver::replacing(&old.resolver, self.resolver_config(config, &snapshot)?);
        Ok(Components { snapshot, informers, resolver })
    }

    /// A snapshot with another zone configuration, once it is synced.
    async fn sync_zone(
        &self,
        zone: zone::Config,
        old: &Components,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<(Arc<ZoneSnapshot>, Arc<Informers>)> {
        let snapshot = ZoneSnapshot::new(zone).map_err(|error| anyhow::anyhow!("{error}"))?;
        let informers = self.informers(&snapshot, metrics)?;
        if timeout(SYNC_TIMEOUT, snapshot.wait_ready()).await.is_err() {
            metrics.watch(&old.informers.watched);
            anyhow::bail!("the zone was not synced within {} s: {:?}", SYNC_TIMEOUT.as_secs(), informers.out_of_sync());
        }
        Ok((snapshot, informers))
    }

    fn informers(&self, snapshot: &Arc<ZoneSnapshot>, metrics: &Arc<Metrics>) -> anyhow::Result<Arc<Informers>> {
        let informers = Informers::start(&*self.source, snapshot, metrics);
        informers.map(Arc::new).map_err(|status| anyhow::anyhow!("{}", status.message))
    }

    fn zone(&self, config: &Config) -> anyhow::Result<zone::Config> {
        let (own, others) = known_as(&self.listen);
        let block = config.cluster().context("the Corefile has no `kubernetes` directive")?;
        let zone = block.zone_config(own, self.quirks).context("the `kubernetes` directive has no zones")?;
        Ok(zone::Config { wildcard_addresses: others, ..zone })
    }

    /// The configuration of the resolver for other names.
    fn resolver_config(&self, config: &Config, snapshot: &Arc<ZoneSnapshot>) -> anyhow::Result<resolver::Config> {
        let mut out = resolver::Config::load(config.clone())
            .map_err(|error| anyhow::anyhow!("{error}; name upstreams with --dns-upstream, or in the Corefile"))?;
        let domain = Name::parse(&self.domain).map_err(|error| anyhow::anyhow!("--cluster-domain: {error}"))?;
        out.local = Some(Arc::new(ClusterZones { snapshot: snapshot.clone(), domains: vec![domain] }));
        out.listen_addresses.clone_from(&self.listen);
        // Nameservers that `--host-dns` wrote would cause a loop.
        for (path, servers) in &mut out.nameservers {
            if let Ok(text) = std::fs::read_to_string(path) {
                let rest = kernel::host_names::without_ours(&text);
                servers.retain(|server| rest.contains(&server.ip().to_string()));
            }
        }
        Ok(out)
    }
}
