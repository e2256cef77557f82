//! The gateway of a node: finds the Services that ask for it, and has a [`Site`] for each.
//!
//! In: a [`Source`]. Out: sites, and where they listen, as a value that [`Split`](crate::split::Split) follows.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::kinds;
use api::status::Status;
use api::view::labels::SERVICE_PROXY_NAME;
use api::view::{Node, Service};
use client::watch::{Event, KnownKeys, Object, Selection, Source, Watch};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::lane::Lane;
use crate::limits::Limits;
use crate::metrics::Figures;
use crate::objects::read;
use crate::site::Site;
use crate::split::{Bound, Listening};
use crate::tls::Back;
use crate::wanted::{HINT, wanted};
use crate::workers::Workers;

/// How often it is looked whether the last connection has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Something that the owner of a Service should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// The namespace of the Service.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// Who hears of notices; must not wait.
pub type Tell = Arc<dyn Fn(Notice) + Send + Sync>;

/// What a gateway must know of its node.
#[derive(Clone)]
pub struct Settings {
    /// The name of the node.
    pub node: String,
    /// Its addresses, for as long as its Node object names none.
    pub addresses: Vec<IpAddr>,
    /// Bounds.
    pub limits: Limits,
    /// Who hears of notices.
    pub tell: Tell,
}

/// What all sites share.
pub(crate) struct Shared {
    pub(crate) node: Box<str>,
    pub(crate) addresses: watch::Receiver<Arc<[IpAddr]>>,
    pub(crate) limits: Limits,
    pub(crate) workers: Arc<Workers>,
    pub(crate) back: Back,
    tell: Tell,
    listening: watch::Sender<Arc<Listening>>,
    /// Those that may have connections.
    lanes: Mutex<Vec<Weak<Lane>>>,
    pub(crate) figures: Figures,
}

impl Shared {
    pub(crate) fn tell(&self, notice: Notice) {
        tracing::warn!(
            service = format!("{}/{}", notice.namespace, notice.name),
            reason = notice.reason,
            "{}",
            notice.message
        );
        (self.tell)(notice);
    }

    pub(crate) fn register(&self, lane: Lane) -> Arc<Lane> {
        let lane = Arc::new(lane);
        let mut lanes = self.lanes.lock();
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Arc::downgrade(&lane));
        lane
    }

    /// Says where the ports of a Service are listened for.
    pub(crate) fn publish(&self, key: &str, bound: Vec<Bound>) {
        self.listening.send_if_modified(|all| {
            if all.get(key).map_or(&[][..], |known| known) == bound {
                return false;
            }
            let all = Arc::make_mut(all);
            if bound.is_empty() {
                all.remove(key)
            } else {
                all.insert(key.into(), bound)
            };
            true
        });
    }
}

/// A gateway that runs. Dropping it ends it at once.
pub struct Gateway {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Gateway {
    /// Starts it; inside a tokio runtime.
    ///
    /// # Errors
    /// When a selector or a cipher of ours is not understood, which would be a fault in the program.
    pub fn start(source: Arc<dyn Source>, settings: Settings) -> Result<Self, String> {
        let not_understood = |status: Status| status.message;
        let services = Selection::all(&kinds::service::KIND).selected(&format!("!{SERVICE_PROXY_NAME}"), "");
        let services = source.watch(services.map_err(not_understood)?);
        let node = Selection::all(&kinds::node::KIND).named(&settings.node).map_err(not_understood)?;
        let node = source.watch(node.optional());
        let (tell_addresses, addresses) = watch::channel(Arc::from(settings.addresses.clone()));
        let shared = Arc::new(Shared {
            node: settings.node.into(),
            addresses,
            limits: settings.limits,
            workers: Arc::new(Workers::new()),
            back: Back::new().map_err(|error| error.to_string())?,
            tell: settings.tell,
            listening: watch::Sender::default(),
            lanes: Mutex::default(),
            figures: Figures::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(follow_node(node, settings.addresses, tell_addresses));
        tasks.spawn(follow_services(services, source, Arc::clone(&shared)));
        Ok(Self { shared, tasks })
    }

    /// Where it listens, as it changes.
    #[must_use]
    pub fn listening(&self) -> watch::Receiver<Arc<Listening>> {
        self.shared.listening.subscribe()
    }

    /// What it counts.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.shared.figures.clone()
    }

    /// Takes no more connections, and waits until those that are there have ended, as long as is allowed for that.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
        let over = Instant::now() + self.shared.limits.drain;
        let open = || self.shared.lanes.lock().iter().filter_map(Weak::upgrade).map(|lane| lane.open()).sum::<usize>();
        while open() > 0 && Instant::now() < over {
            sleep(LOOK).await;
        }
    }
}

/// Follows the addresses of our Node; what it cannot be reached by is no address of ours.
async fn follow_node(mut watching: Watch, own: Vec<IpAddr>, tell: watch::Sender<Arc<[IpAddr]>>) {
    loop {
        let named = match watching.next().await {
            Event::InitApply(object) | Event::Apply(object) => read::<Node>(&object).map(|node| node.addresses()),
            Event::Delete(_) => Some(Vec::new()),
            Event::Init | Event::InitDone => None,
        };
        let Some(mut all) = named else { continue };
        all.extend(own.iter().copied().filter(|ip| !all.contains(ip)).collect::<Vec<_>>());
        let all: Arc<[IpAddr]> = all.into();
        tell.send_if_modified(|known| {
            let is_new = *known != all;
            *known = all;
            is_new
        });
    }
}

/// Has a site for each Service that asks for one.
async fn follow_services(mut watching: Watch, source: Arc<dyn Source>, shared: Arc<Shared>) {
    let mut known = KnownKeys::default();
    let (mut sites, mut leaving) = (HashMap::<Box<str>, At>::new(), HashMap::<Box<str>, JoinHandle<()>>::new());
    loop {
        let event = watching.next().await;
        leaving.retain(|_, task| !task.is_finished());
        for gone in known.apply(&event) {
            leave(&gone, &mut sites, &mut leaving);
        }
        match event {
            Event::InitApply(object) | Event::Apply(object) => {
                let key: Box<str> = object.key().into();
                let Some(service) = asking(&object) else {
                    leave(&key, &mut sites, &mut leaving);
                    continue;
                };
                let service = Arc::new(service);
                if let Some(site) = sites.get(&key) {
                    site.tell.send_replace(service);
                    continue;
                }
                if let Some(before) = leaving.remove(&key) {
                    // What it takes back at its end must not be what this one gives.
                    let _ = before.await;
                }
                let (tell, hears) = watch::channel(service);
                let task = tokio::spawn(Site::new(&key, Arc::clone(&shared), hears).run(Arc::clone(&source)));
                sites.insert(key, At { tell, task });
            }
            Event::Delete(object) => leave(&object.key(), &mut sites, &mut leaving),
            Event::Init | Event::InitDone => {}
        }
    }
}

/// Where a site hears of its Service. It ends when nobody speaks to it.
struct At {
    tell: watch::Sender<Arc<Service>>,
    task: JoinHandle<()>,
}

fn leave(key: &str, sites: &mut HashMap<Box<str>, At>, leaving: &mut HashMap<Box<str>, JoinHandle<()>>) {
    if let Some(At { task, .. }) = sites.remove(key) {
        leaving.insert(key.into(), task);
    }
}

/// A Service that asks for the gateway.
fn asking(object: &Object) -> Option<Service> {
    object.value.windows(HINT.len()).any(|part| part == HINT).then_some(())?;
    let needs_word = |service: &Service| {
        let wanted = wanted(service);
        // Whoever asked in vain is told, too.
        !wanted.ports.is_empty() || !wanted.warnings.is_empty()
    };
    read::<Service>(object).filter(needs_word)
}
