//! Brings Services, endpoints, Nodes, pools, peers and Leases to announcers, wherever they come from.
//!
//! In: a [`Source`], which is the store of this process or a server elsewhere. Out: [`Objects`], kept up to date, and a wake-up for
//! each announcer that has a [`View`] of them. Leases of announcers change several times a second where addresses are announced by
//! layer 2, so they have a wake-up of their own. A server that has no pools and peers, as a real kube-apiserver, is watched without.

use std::sync::Arc;

use api::kind::Kind;
use api::kinds;
use api::status::Status;
use api::value::ValueExt as _;
use api::view;
use api::view::labels::HEADLESS;
use client::watch::{Event, KnownKeys, Selection, Source, Watch};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::lease::{self, Lease};
use super::objects::{Objects, Pool, Service, Slice};

/// The watches of announcers. Dropping them ends the watches.
#[derive(Debug)]
pub struct Inputs {
    view: View,
    _tasks: JoinSet<()>,
}

/// What an announcer sees of the objects. Clones wake independently.
#[derive(Clone, Debug)]
pub struct View {
    objects: Arc<Mutex<Objects>>,
    /// How many watches have not completed their first list, and how often something other than a Lease changed.
    changes: watch::Receiver<(usize, u64)>,
    /// How often a Lease changed.
    beats: watch::Receiver<u64>,
}

/// An object as it arrives.
#[derive(Clone, Copy)]
enum Raw<'a> {
    /// The bytes of a watch.
    Json(&'a [u8]),
    /// An item of a list.
    Value(&'a Value),
}

impl Raw<'_> {
    fn parse<T: DeserializeOwned>(self) -> serde_json::Result<T> {
        match self {
            Self::Json(bytes) => view::parse(bytes),
            Self::Value(value) => T::deserialize(value),
        }
    }
}

/// Takes an object in, and says whether anything changed.
type Take = fn(&mut Objects, &str, Raw<'_>) -> serde_json::Result<bool>;

const SERVICE: Take = |all, key, raw| Ok(service(all, key, &raw.parse()?));
const SLICE: Take = |all, key, raw| Ok(slice(all, key, &raw.parse()?));
const NODE: Take = |all, key, raw| Ok(put(&mut all.nodes, key, raw.parse::<view::Node>()?.into()));
const POOL: Take = |all, key, raw| Ok(put(&mut all.pools, key, Pool::read(&raw.parse()?)));
const PEER: Take = |all, key, raw| Ok(put(&mut all.peers, key, raw.parse()?));
const LEASE: Take = |all, key, raw| Ok(put(&mut all.leases, own_name(key), Lease::from(&raw.parse::<view::Lease>()?)));

/// How an object of a kind is taken in, and how it goes. Both say whether anything changed.
#[derive(Clone, Copy)]
struct Reading {
    apply: Take,
    gone: fn(&mut Objects, &str) -> bool,
    is_lease: bool,
}

const fn plain(apply: Take, gone: fn(&mut Objects, &str) -> bool) -> Reading {
    Reading { apply, gone, is_lease: false }
}

/// Where changes are told.
#[derive(Clone)]
struct Bell {
    objects: Arc<Mutex<Objects>>,
    changes: Arc<watch::Sender<(usize, u64)>>,
    beats: Arc<watch::Sender<u64>>,
}

impl Inputs {
    /// Begins to watch; to be called inside a tokio runtime.
    ///
    /// # Errors
    /// When a selector of ours is not understood, which would be a fault in the program.
    pub fn start(source: &dyn Source) -> Result<Self, Status> {
        let slices = Selection::all(&kinds::endpointslice::KIND).selected(&format!("!{HEADLESS}"), "")?;
        let leases = Selection::all(&kinds::lease::KIND).within(lease::NAMESPACE).selected(lease::LABEL, "")?;
        let mut watches = vec![
            (Selection::all(&kinds::service::KIND), plain(SERVICE, |all, key| all.services.remove(key).is_some())),
            (slices, plain(SLICE, slice_gone)),
            (Selection::all(&kinds::node::KIND), plain(NODE, |all, key| all.nodes.remove(key).is_some())),
            (leases, Reading { apply: LEASE, gone: lease_gone, is_lease: true }),
        ];
        let own = |plural| {
            kinds::find("waypost.dev", "v1", plural).map(|kind: &'static Kind| Selection::all(kind).optional())
        };
        if let Some(pools) = own("ippools") {
            watches.push((pools, plain(POOL, |all, key| all.pools.remove(key).is_some())));
        }
        if let Some(peers) = own("bgppeers") {
            watches.push((peers, plain(PEER, |all, key| all.peers.remove(key).is_some())));
        }
        let objects = Arc::new(Mutex::new(Objects::default()));
        let (changes, hears_changes) = watch::channel((watches.len(), 0));
        let (beats, hears_beats) = watch::channel(0);
        let bell = Bell { objects: objects.clone(), changes: Arc::new(changes), beats: Arc::new(beats) };
        let mut tasks = JoinSet::new();
        for (what, reading) in watches {
            tasks.spawn(follow(source.watch(what), reading, bell.clone()));
        }
        Ok(Self { view: View { objects, changes: hears_changes, beats: hears_beats }, _tasks: tasks })
    }

    /// What an announcer sees.
    #[must_use]
    pub fn view(&self) -> View {
        self.view.clone()
    }
}

impl View {
    /// Waits until everything was read once; nothing may be announced or withdrawn before.
    pub async fn ready(&mut self) {
        // An error means that the watches have ended, and with them everything.
        let _ = self.changes.wait_for(|(left, _)| *left == 0).await;
    }

    /// Waits for the next change of anything but Leases. Answers false when there will be none.
    pub async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }

    /// Waits for the next change of a Lease. Answers false when there will be none.
    pub async fn beat(&mut self) -> bool {
        self.beats.changed().await.is_ok()
    }

    /// Looks at the objects as they are now. They are locked meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&Objects) -> T) -> T {
        look(&self.objects.lock())
    }
}

/// The same objects from lists that were read once, for those who only want to look.
#[must_use]
pub fn listed(lists: &Lists) -> Objects {
    let mut all = Objects::default();
    let takes: [(&[Value], Take); 6] = [
        (&lists.services, SERVICE),
        (&lists.slices, SLICE),
        (&lists.nodes, NODE),
        (&lists.pools, POOL),
        (&lists.peers, PEER),
        (&lists.leases, LEASE),
    ];
    for (objects, take) in takes {
        for object in objects {
            let (namespace, name) = (object.text("metadata.namespace"), object.text("metadata.name"));
            let key = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            note(&key, take(&mut all, &key, Raw::Value(object)));
        }
    }
    all
}

/// Lists of objects, as an API answers them.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// Services.
    pub services: Vec<Value>,
    /// EndpointSlices.
    pub slices: Vec<Value>,
    /// Nodes.
    pub nodes: Vec<Value>,
    /// IPPools.
    pub pools: Vec<Value>,
    /// BGPPeers.
    pub peers: Vec<Value>,
    /// Leases of announcers.
    pub leases: Vec<Value>,
}

/// Follows one watch.
async fn follow(mut watching: Watch, reading: Reading, bell: Bell) {
    let (mut known, mut first) = (KnownKeys::default(), true);
    loop {
        let event = watching.next().await;
        let vanished = known.apply(&event);
        let mut changed = false;
        {
            let mut objects = bell.objects.lock();
            match &event {
                Event::InitApply(object) | Event::Apply(object) => {
                    let key = object.key();
                    changed |= note(&key, (reading.apply)(&mut objects, &key, Raw::Json(&object.value)));
                }
                Event::Delete(object) => changed |= (reading.gone)(&mut objects, &object.key()),
                Event::Init | Event::InitDone => {}
            }
            for key in &vanished {
                changed |= (reading.gone)(&mut objects, key);
            }
        }
        if changed && reading.is_lease {
            bell.beats.send_modify(|count| *count += 1);
        }
        let complete = matches!(event, Event::InitDone) && std::mem::take(&mut first);
        if complete || (changed && !reading.is_lease) {
            bell.changes.send_modify(|(left, count)| {
                *left -= usize::from(complete);
                *count += 1;
            });
        }
    }
}

/// Whether anything changed; an object that cannot be read is logged and changes nothing.
fn note(key: &str, taken: serde_json::Result<bool>) -> bool {
    taken.unwrap_or_else(|error| {
        tracing::warn!(object = key, %error, "an object cannot be read; it is left out");
        false
    })
}

/// Puts a value in its place; answers whether it is another than before.
fn put<T: PartialEq>(map: &mut std::collections::BTreeMap<Box<str>, T>, key: &str, value: T) -> bool {
    if map.get(key) == Some(&value) {
        return false;
    }
    map.insert(key.into(), value);
    true
}

fn service(all: &mut Objects, key: &str, service: &view::Service) -> bool {
    match Service::of(service) {
        Some(service) => put(&mut all.services, key, service),
        None => all.services.remove(key).is_some(),
    }
}

fn slice(all: &mut Objects, key: &str, slice: &view::EndpointSlice) -> bool {
    let Some((service, slice)) = Slice::of(slice) else { return slice_gone(all, key) };
    let known = all.slices.get(&service).and_then(|slices| slices.get(key));
    if known == Some(&slice) {
        return false;
    }
    // Its label may have named another Service before.
    slice_gone(all, key);
    all.slices.entry(service).or_default().insert(key.into(), slice);
    true
}

fn slice_gone(all: &mut Objects, key: &str) -> bool {
    let mut found = false;
    all.slices.retain(|_, slices| {
        found |= slices.remove(key).is_some();
        !slices.is_empty()
    });
    found
}

/// Leases are known by their own name: all are of one namespace.
fn own_name(key: &str) -> &str {
    key.split_once('/').map_or(key, |(_, name)| name)
}

fn lease_gone(all: &mut Objects, key: &str) -> bool {
    all.leases.remove(own_name(key)).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_slice_that_changes_its_service_leaves_the_old_one() {
        let mut all = Objects::default();
        let of = |service: &str| {
            serde_json::from_value(json!({
                "metadata": {"namespace": "shop", "labels": {"kubernetes.io/service-name": service}},
                "addressType": "IPv4", "endpoints": [{"addresses": ["10.244.0.2"], "nodeName": "n1"}],
            }))
            .expect("a slice")
        };
        assert!(slice(&mut all, "shop/s", &of("a")));
        assert!(!slice(&mut all, "shop/s", &of("a")), "nothing new");
        assert!(slice(&mut all, "shop/s", &of("b")));
        assert_eq!(all.slices.keys().map(|key| &**key).collect::<Vec<_>>(), ["shop/b"]);
        assert!(slice_gone(&mut all, "shop/s") && all.slices.is_empty());
    }

    #[test]
    fn only_services_with_addresses_are_kept() {
        let mut all = Objects::default();
        let with = |ingress: Value| {
            let status = json!({"loadBalancer": {"ingress": ingress}});
            serde_json::from_value(json!({"spec": {"type": "LoadBalancer"}, "status": status})).expect("a Service")
        };
        assert!(!service(&mut all, "shop/a", &with(json!([]))));
        assert!(!service(&mut all, "shop/a", &with(json!([{"ip": "192.0.2.1", "ipMode": "Proxy"}]))));
        assert!(service(&mut all, "shop/a", &with(json!([{"ip": "192.0.2.1"}]))));
        assert!(service(&mut all, "shop/a", &with(json!([]))), "it is gone again");
        assert!(all.services.is_empty());
    }
}
