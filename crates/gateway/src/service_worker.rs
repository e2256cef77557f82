//! Worker of one Service: follows its EndpointSlices and certificate, and maintains its port configurations and
//! listeners.
//!
//! In: the Service, its slices, Secrets of the namespace of its certificate, the addresses of this node. Out: port
//! configurations, listeners, redirects to them (for the proxy), and notices. A port whose settings do not change keeps
//! its listener; changes of certificate, endpoints or source ranges close no connection.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::ip::parse_lenient;
use api::kinds;
use api::status::Status;
use api::view::labels::SERVICE_NAME;
use api::view::{EndpointSlice, Protocol, Secret, Service};
use client::watch::{Event, KnownKeys, Selection, Source, Watch};
use jiff::Timestamp;
use plan::{Redirect, RedirectedFrontends};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::annotations::{GatewaySpec, gateway_spec};
use crate::certificates::{self, FOUND, Loaded, SecretRef, TYPE};
use crate::controller::{Notice, Shared};
use crate::endpoints::{self, Locality};
use crate::listener::{self, Listener};
use crate::objects::parse;
use crate::port_config::PortConfig;
use crate::source_ranges::SourceRanges;
use crate::tls::Certificate;

/// Interval at which idle upstream connections are closed.
const IDLE_SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Worker of one Service.
pub(crate) struct ServiceWorker {
    key: Arc<str>,
    shared: Arc<Shared>,
    service: watch::Receiver<Arc<Service>>,
    slices: BTreeMap<Box<str>, EndpointSlice>,
    certificate: Arc<Certificate>,
    /// Secret whose certificate is served.
    loaded: Option<Secret>,
    ports: BTreeMap<u16, Served>,
    reported: BTreeSet<(&'static str, String)>,
}

/// Port that is served.
struct Served {
    port_config: Arc<PortConfig>,
    listeners: Vec<Listener>,
}

/// Watch of the Secrets that may contain the certificate.
struct Secrets {
    secret_ref: SecretRef,
    watch: Watch,
    known: KnownKeys,
    all: BTreeMap<Box<str>, Secret>,
}

impl ServiceWorker {
    pub(crate) fn new(key: &str, shared: Arc<Shared>, service: watch::Receiver<Arc<Service>>) -> Self {
        Self {
            key: key.into(),
            shared,
            service,
            slices: BTreeMap::new(),
            certificate: Arc::default(),
            loaded: None,
            ports: BTreeMap::new(),
            reported: BTreeSet::new(),
        }
    }

    /// Runs until the Service is deleted.
    pub(crate) async fn run(mut self, source: Arc<dyn Source>) {
        let (namespace, name) = self.key.split_once('/').unwrap_or(("", &self.key));
        let slices = match slices_of(namespace, name) {
            Ok(what) => what,
            Err(status) => return tracing::error!(service = &*self.key, "{}", status.message),
        };
        let (mut slices, mut known) = (source.watch(slices), KnownKeys::default());
        let mut secrets: Option<Secrets> = None;
        let mut addresses = self.shared.addresses.clone();
        let mut sweep = interval(IDLE_SWEEP_INTERVAL);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let spec = gateway_spec(&self.service.borrow_and_update());
            let problem = self.watch_certificate(&spec, &*source, &mut secrets);
            if known.is_complete() {
                self.reconcile(&spec, secrets.as_ref(), problem);
            }
            tokio::select! {
                changed = self.service.changed() => if changed.is_err() { return },
                event = slices.next() => {
                    apply_event(event, &mut known, &mut self.slices);
                    while let Some(event) = slices.try_next() {
                        apply_event(event, &mut known, &mut self.slices);
                    }
                }
                () = next_secret_event(&mut secrets) => {}
                Ok(()) = addresses.changed() => {}
                _ = sweep.tick() => self.sweep(),
            }
        }
    }

    /// Watches the Secrets of the certificate; returns the problem if the reference is invalid.
    fn watch_certificate(
        &self,
        spec: &GatewaySpec,
        source: &dyn Source,
        secrets: &mut Option<Secrets>,
    ) -> Option<(&'static str, String)> {
        let secret_ref = match spec.certificate.as_deref().map(|name| SecretRef::parse(name, self.namespace())) {
            Some(Ok(secret_ref)) => secret_ref.with(self.service.borrow().metadata.annotation(FOUND)),
            Some(Err(why)) => {
                *secrets = None;
                return Some(("CertificateMissing", why.to_string()));
            }
            None => {
                *secrets = None;
                return None;
            }
        };
        if secrets.as_ref().is_some_and(|secrets| secrets.secret_ref == secret_ref) {
            return None;
        }
        match secrets_at(&secret_ref) {
            Ok(what) => {
                let (watch, known) = (source.watch(what), KnownKeys::default());
                *secrets = Some(Secrets { secret_ref, watch, known, all: BTreeMap::new() });
                None
            }
            Err(status) => Some(("CertificateMissing", status.message)),
        }
    }

    /// Reconciles ports, endpoints, source ranges and listeners with the Service, and reports new problems.
    fn reconcile(&mut self, spec: &GatewaySpec, secrets: Option<&Secrets>, problem: Option<(&'static str, String)>) {
        let _span = tracing::error_span!("reconcile", service = %self.key).entered();
        let mut notices: Vec<(&'static str, String)> = problem.into_iter().collect();
        notices.extend(spec.refused.iter().map(|why| ("BackendProtocolUnknown", why.clone())));
        notices.extend(spec.warnings.iter().map(|why| ("AnnotationIgnored", why.clone())));
        if let Some(secrets) = secrets.filter(|secrets| secrets.known.is_complete()) {
            notices.extend(self.load_certificate(secrets));
        }
        let service = Arc::clone(&self.service.borrow());
        let vips: Vec<IpAddr> = service.vips().filter_map(parse_lenient).collect();
        let is_served = spec.refused.is_none() && !vips.is_empty();
        let ports = if is_served { &spec.ports[..] } else { &[] };
        self.ports.retain(|_, served| {
            let stays = served.port_config.service_port().is_some_and(|known| ports.contains(&known.port));
            if !stays {
                served.port_config.close();
            }
            stays
        });
        let locality = if service.is_external_local() { Locality::Node(&self.shared.node) } else { Locality::Anywhere };
        for port in ports {
            let port_config = match self.ports.get(&port.number) {
                Some(served) => Arc::clone(&served.port_config),
                None => {
                    let made = PortConfig::of_service(
                        &self.key,
                        port.clone(),
                        self.shared.limits,
                        &self.certificate,
                        &self.shared.upstream_tls,
                        self.shared.metrics.for_service(&self.key),
                    );
                    match made {
                        Ok(port_config) => self.shared.register(port_config),
                        Err(error) => {
                            notices.push(("ListenerFailed", format!("port {}: {error}", port.number)));
                            continue;
                        }
                    }
                }
            };
            let found = endpoints::select(
                &self.slices.values(),
                (&port.name, Protocol::Tcp),
                &service.spec.ip_families,
                locality,
            );
            if let Some(port) = port_config.service_port() {
                port.upstream.update(&found, self.shared.workers.count());
            }
            port_config.sources.store(Arc::new(SourceRanges::of(&service.spec.load_balancer_source_ranges)));
            let served = self.ports.entry(port.number).or_insert_with(|| Served { port_config, listeners: Vec::new() });
            let addresses = self.shared.addresses.borrow().clone();
            let open = |ip| Listener::open(ip, &served.port_config, &self.shared.workers);
            let failed =
                listener::open_all(&mut served.listeners, |one| one.address, (&addresses, &vips), port.number, open);
            notices.extend(failed.into_iter().map(|why| ("ListenerFailed", why)));
        }
        self.publish();
        let reported: BTreeSet<_> = notices.into_iter().collect();
        for (reason, message) in reported.difference(&self.reported) {
            self.shared.emit(self.notice(reason, message));
        }
        self.reported = reported;
    }

    /// Loads the certificate if it changed. On failure the previous one stays in use.
    fn load_certificate(&mut self, secrets: &Secrets) -> Option<(&'static str, String)> {
        let stays = if self.certificate.is_loaded() {
            "; the previous certificate is still served"
        } else {
            "; TLS handshakes fail"
        };
        let found = match secrets.secret_ref.select(secrets.all.values(), self.namespace()) {
            Ok(secret) => secret.clone(),
            Err(why) => return Some(("CertificateMissing", format!("{why}{stays}"))),
        };
        let is_known = self.loaded.as_ref() == Some(&found);
        match certificates::load(&found, Timestamp::now()) {
            Ok(Loaded { key, warning }) => {
                if !is_known {
                    self.certificate.set(key);
                    tracing::info!(service = &*self.key, secret = ?found, "loaded certificate");
                    self.loaded = Some(found);
                }
                warning.map(|why| ("CertificateExpired", why))
            }
            Err(why) => Some(("CertificateBad", format!("{why}{stays}"))),
        }
    }

    fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    fn notice(&self, reason: &'static str, message: &str) -> Notice {
        let (namespace, name) = self.key.split_once('/').unwrap_or(("", &self.key));
        Notice { namespace: namespace.into(), name: name.into(), reason, message: message.into() }
    }

    /// Publishes the redirects to its listeners.
    fn publish(&self) {
        let redirects = self.ports.values().flat_map(|served| {
            let redirect = |listener: &Listener| Redirect {
                service: Arc::clone(&self.key),
                port: served.port_config.service_port().map(|known| Arc::clone(&known.port.name)).unwrap_or_default(),
                protocol: Protocol::Tcp,
                frontends: RedirectedFrontends::LoadBalancer,
                listener: listener.address,
                direct: None,
                backends: BTreeSet::new(),
            };
            served.listeners.iter().map(redirect)
        });
        self.shared.publish(&self.key, RedirectedFrontends::LoadBalancer, redirects.collect());
    }

    fn sweep(&self) {
        let Some(before) = Instant::now().checked_sub(self.shared.limits.pool_idle) else { return };
        for served in self.ports.values() {
            if let Some(port) = served.port_config.service_port() {
                port.upstream.sweep(before);
            }
        }
    }
}

impl Drop for ServiceWorker {
    fn drop(&mut self) {
        self.ports.values().for_each(|served| served.port_config.close());
        self.shared.publish(&self.key, RedirectedFrontends::LoadBalancer, BTreeSet::new());
        self.shared.metrics.remove(&self.key);
    }
}

fn slices_of(namespace: &str, name: &str) -> Result<Selection, Status> {
    Selection::all(&kinds::endpointslice::KIND).within(namespace).selected(&format!("{SERVICE_NAME}={name}"), "")
}

/// A Secret by name; or all TLS Secrets of the namespace if the name is not known yet.
fn secrets_at(secret_ref: &SecretRef) -> Result<Selection, Status> {
    let all = Selection::all(&kinds::secret::KIND).within(secret_ref.namespace());
    match secret_ref {
        SecretRef::Named { name, .. } | SecretRef::Claimed { secret: Some(name), .. } => all.named(name),
        SecretRef::Claimed { .. } => all.selected("", &format!("type={TYPE}")),
    }
}

/// Waits for the next events of Secrets; forever if none are watched.
async fn next_secret_event(secrets: &mut Option<Secrets>) {
    let Some(secrets) = secrets else { return std::future::pending().await };
    let event = secrets.watch.next().await;
    apply_event(event, &mut secrets.known, &mut secrets.all);
    while let Some(event) = secrets.watch.try_next() {
        apply_event(event, &mut secrets.known, &mut secrets.all);
    }
}

/// Applies an event to a map of objects.
fn apply_event<T: serde::de::DeserializeOwned>(event: Event, known: &mut KnownKeys, all: &mut BTreeMap<Box<str>, T>) {
    for deleted in known.apply(&event) {
        all.remove(&deleted);
    }
    match event {
        Event::InitApply(object) | Event::Apply(object) => {
            if let Some(form) = parse(&object) {
                all.insert(object.key().into(), form);
            }
        }
        Event::Delete(object) => {
            all.remove(&*object.key());
        }
        Event::Init | Event::InitDone => {}
    }
}
