//! One Service that the gateway serves: a task that follows its slices and its certificate and keeps its lanes and listeners.
//!
//! In: the Service as it changes, its slices, Secrets of the namespace where its certificate is, the addresses of this node. Out: lanes,
//! listeners, where they are (for the proxy), and notices. What does not change about a port keeps its listener; a new certificate, other
//! pods or other source ranges close nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::ip::parse_lenient;
use api::kinds;
use api::status::Status;
use api::view::labels::SERVICE_NAME;
use api::view::{EndpointSlice, Secret, Service};
use client::watch::{Event, KnownKeys, Selection, Source, Watch};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::certificates::{self, FOUND, Loaded, Place, TYPE};
use crate::door::Door;
use crate::endpoints;
use crate::lane::Lane;
use crate::objects::read;
use crate::office::{Notice, Shared};
use crate::sources::Sources;
use crate::split::Bound;
use crate::tls::Certificate;
use crate::wanted::{Wanted, wanted};

/// How often connections are let go that wait for requests.
const SWEEP: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Site {
    key: Box<str>,
    shared: Arc<Shared>,
    service: watch::Receiver<Arc<Service>>,
    slices: BTreeMap<Box<str>, EndpointSlice>,
    certificate: Arc<Certificate>,
    /// The Secret that is served.
    loaded: Option<Secret>,
    ports: BTreeMap<u16, Served>,
    told: BTreeSet<(&'static str, String)>,
}

/// A port that is served.
struct Served {
    lane: Arc<Lane>,
    doors: Vec<Door>,
}

/// Secrets, where the certificate should be.
struct Secrets {
    place: Place,
    watching: Watch,
    known: KnownKeys,
    all: BTreeMap<Box<str>, Secret>,
}

impl Site {
    pub(crate) fn new(key: &str, shared: Arc<Shared>, service: watch::Receiver<Arc<Service>>) -> Self {
        Self {
            key: key.into(),
            shared,
            service,
            slices: BTreeMap::new(),
            certificate: Arc::default(),
            loaded: None,
            ports: BTreeMap::new(),
            told: BTreeSet::new(),
        }
    }

    /// Follows until the Service is gone.
    pub(crate) async fn run(mut self, source: Arc<dyn Source>) {
        let (namespace, name) = self.key.split_once('/').unwrap_or(("", &self.key));
        let slices = match slices_of(namespace, name) {
            Ok(what) => what,
            Err(status) => return tracing::error!(service = &*self.key, "{}", status.message),
        };
        let (mut slices, mut known) = (source.watch(slices), KnownKeys::default());
        let mut secrets: Option<Secrets> = None;
        let mut addresses = self.shared.addresses.clone();
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = wanted(&self.service.borrow_and_update());
            let complaint = self.follow_certificate(&asked, &*source, &mut secrets);
            if known.is_complete() {
                self.arrange(&asked, secrets.as_ref(), complaint);
            }
            tokio::select! {
                changed = self.service.changed() => if changed.is_err() { return },
                event = slices.next() => {
                    take(event, &mut known, &mut self.slices);
                    while let Some(event) = slices.try_next() {
                        take(event, &mut known, &mut self.slices);
                    }
                }
                () = hear(&mut secrets) => {}
                Ok(()) = addresses.changed() => {}
                _ = sweep.tick() => self.sweep(),
            }
        }
    }

    /// Watches where the certificate should be; or says why that cannot be.
    fn follow_certificate(
        &self,
        asked: &Wanted,
        source: &dyn Source,
        secrets: &mut Option<Secrets>,
    ) -> Option<(&'static str, String)> {
        let place = match asked.certificate.as_deref().map(|name| Place::read(name, self.namespace())) {
            Some(Ok(place)) => place.with(self.service.borrow().metadata.annotation(FOUND)),
            Some(Err(why)) => {
                *secrets = None;
                return Some(("CertificateMissing", why));
            }
            None => {
                *secrets = None;
                return None;
            }
        };
        if secrets.as_ref().is_some_and(|secrets| secrets.place == place) {
            return None;
        }
        match secrets_at(&place) {
            Ok(what) => {
                let (watching, known) = (source.watch(what), KnownKeys::default());
                *secrets = Some(Secrets { place, watching, known, all: BTreeMap::new() });
                None
            }
            Err(status) => Some(("CertificateMissing", status.message)),
        }
    }

    /// Makes everything as it should be now.
    fn arrange(&mut self, asked: &Wanted, secrets: Option<&Secrets>, complaint: Option<(&'static str, String)>) {
        let mut notices: Vec<(&'static str, String)> = complaint.into_iter().collect();
        notices.extend(asked.refused.iter().map(|why| ("BackendProtocolUnknown", why.clone())));
        notices.extend(asked.warnings.iter().map(|why| ("AnnotationIgnored", why.clone())));
        if let Some(secrets) = secrets.filter(|secrets| secrets.known.is_complete()) {
            notices.extend(self.load(secrets));
        }
        let service = Arc::clone(&self.service.borrow());
        let vips: Vec<IpAddr> = service.vips().filter_map(parse_lenient).collect();
        let is_served = asked.refused.is_none() && !vips.is_empty();
        let ports = if is_served { &asked.ports[..] } else { &[] };
        self.ports.retain(|_, served| {
            let stays = ports.contains(&served.lane.port);
            if !stays {
                served.lane.close();
            }
            stays
        });
        let only_node = service.is_external_local().then(|| &*self.shared.node);
        for port in ports {
            let lane = match self.ports.get(&port.number) {
                Some(served) => Arc::clone(&served.lane),
                None => {
                    let made =
                        Lane::new(&self.key, port.clone(), self.shared.limits, &self.certificate, &self.shared.back);
                    match made {
                        Ok(mut lane) => {
                            lane.counts = self.shared.figures.of(&self.key);
                            self.shared.register(lane)
                        }
                        Err(error) => {
                            notices.push(("ListenerFailed", format!("port {}: {error}", port.number)));
                            continue;
                        }
                    }
                }
            };
            let found = endpoints::find(&self.slices.values(), &port.name, &service.spec.ip_families, only_node);
            let renewed = lane.backends.load().renewed(&found, self.shared.workers.count());
            lane.backends.store(Arc::new(renewed));
            lane.sources.store(Arc::new(Sources::of(&service.spec.load_balancer_source_ranges)));
            let served = self.ports.entry(port.number).or_insert_with(|| Served { lane, doors: Vec::new() });
            notices.extend(open(served, &vips, &self.shared));
        }
        self.publish();
        let told: BTreeSet<_> = notices.into_iter().collect();
        for (reason, message) in told.difference(&self.told) {
            self.shared.tell(self.notice(reason, message));
        }
        self.told = told;
    }

    /// Takes the certificate in, if it is a new one. What is served stays when there is nothing better.
    fn load(&mut self, secrets: &Secrets) -> Option<(&'static str, String)> {
        let stays = if self.certificate.is_there() { "; the one before is still served" } else { "; TLS is refused" };
        let found = match secrets.place.choose(secrets.all.values(), self.namespace()) {
            Ok(secret) => secret.clone(),
            Err(why) => return Some(("CertificateMissing", format!("{why}{stays}"))),
        };
        let is_known = self.loaded.as_ref() == Some(&found);
        match certificates::load(&found, Timestamp::now()) {
            Ok(Loaded { key, warning }) => {
                if !is_known {
                    self.certificate.set(key);
                    tracing::info!(service = &*self.key, secret = ?found, "a certificate is served");
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

    /// Says where its ports are listened for.
    fn publish(&self) {
        let bound = self.ports.values().flat_map(|served| {
            let name = &served.lane.port.name;
            served.doors.iter().map(|door| Bound { name: Arc::clone(name), address: door.address })
        });
        self.shared.publish(&self.key, bound.collect());
    }

    fn sweep(&self) {
        let Some(before) = Instant::now().checked_sub(self.shared.limits.spare_idle) else { return };
        for served in self.ports.values() {
            let backends = served.lane.backends.load();
            for spare in backends.all().iter().flat_map(|endpoint| &endpoint.spare) {
                spare.lock().sweep(before);
            }
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.ports.values().for_each(|served| served.lane.close());
        self.shared.publish(&self.key, Vec::new());
        self.shared.figures.forget(&self.key);
    }
}

/// Opens a listener in each family in which the load balancer has an address, where this node has one.
fn open(served: &mut Served, vips: &[IpAddr], shared: &Shared) -> Vec<(&'static str, String)> {
    let mut problems = Vec::new();
    let addresses = shared.addresses.borrow().clone();
    let mut doors = Vec::new();
    for is_v4 in [true, false] {
        let mut candidates = addresses.iter().filter(|ip| ip.is_ipv4() == is_v4);
        if !vips.iter().any(|ip| ip.is_ipv4() == is_v4) {
            continue;
        }
        let is_here = |door: &Door| candidates.clone().next() == Some(&door.address.ip());
        if let Some(place) = served.doors.iter().position(is_here) {
            doors.push(served.doors.swap_remove(place));
            continue;
        }
        let mut why = "this node has no address of the family".to_owned();
        let opened = candidates.find_map(|ip| {
            Door::open(*ip, &served.lane, &shared.workers).map_err(|error| why = format!("{ip}: {error}")).ok()
        });
        match opened {
            Some(door) => doors.push(door),
            None => {
                let (port, family) = (served.lane.port.number, if is_v4 { "IPv4" } else { "IPv6" });
                problems.push(("ListenerFailed", format!("port {port} is not served by {family} on this node: {why}")));
            }
        }
    }
    served.doors = doors;
    problems
}

fn slices_of(namespace: &str, name: &str) -> Result<Selection, Status> {
    Selection::all(&kinds::endpointslice::KIND).within(namespace).selected(&format!("{SERVICE_NAME}={name}"), "")
}

/// One Secret by its name; or all of them, where one must claim to be it and nobody has said which one does.
fn secrets_at(place: &Place) -> Result<Selection, Status> {
    let all = Selection::all(&kinds::secret::KIND).within(place.namespace());
    match place {
        Place::Named { name, .. } | Place::Claimed { secret: Some(name), .. } => all.named(name),
        Place::Claimed { .. } => all.selected("", &format!("type={TYPE}")),
    }
}

/// Hears of Secrets; for ever when none are watched.
async fn hear(secrets: &mut Option<Secrets>) {
    let Some(secrets) = secrets else { return std::future::pending().await };
    let event = secrets.watching.next().await;
    take(event, &mut secrets.known, &mut secrets.all);
    while let Some(event) = secrets.watching.try_next() {
        take(event, &mut secrets.known, &mut secrets.all);
    }
}

/// Keeps what a watch says.
fn take<T: serde::de::DeserializeOwned>(event: Event, known: &mut KnownKeys, all: &mut BTreeMap<Box<str>, T>) {
    for gone in known.apply(&event) {
        all.remove(&gone);
    }
    match event {
        Event::InitApply(object) | Event::Apply(object) => {
            if let Some(form) = read(&object) {
                all.insert(object.key().into(), form);
            }
        }
        Event::Delete(object) => {
            all.remove(&*object.key());
        }
        Event::Init | Event::InitDone => {}
    }
}
