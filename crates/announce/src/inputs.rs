//! Watches Services, EndpointSlices, Nodes, IPPools, BGPPeers and Leases for announcers.
//!
//! In: a [`Source`] (the in-process store or a remote API server). Out: [`Objects`], kept up to date, and change
//! notifications for each [`View`]. Leases of announcers change several times a second, so they have a notification of
//! their own. IPPools and BGPPeers are optional: kube-apiserver does not have them.

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

/// The watches of announcers; dropping it stops them.
#[derive(Debug)]
pub struct Inputs {
    view: View,
    _tasks: JoinSet<()>,
}

/// The objects as an announcer sees them. Each clone is notified independently.
#[derive(Clone, Debug)]
pub struct View {
    objects: Arc<Mutex<Objects>>,
    /// Number of incomplete initial lists, and number of changes except of Leases.
    changes: watch::Receiver<(usize, u64)>,
    /// Number of changes of Leases.
    lease_changes: watch::Receiver<u64>,
}

/// An object before parsing.
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

/// Adds an object; returns whether anything changed.
type Apply = fn(&mut Objects, &str, Raw<'_>) -> serde_json::Result<bool>;

const SERVICE: Apply = |all, key, raw| Ok(service(all, key, &raw.parse()?));
const SLICE: Apply = |all, key, raw| Ok(slice(all, key, &raw.parse()?));
const NODE: Apply = |all, key, raw| Ok(put(&mut all.nodes, key, raw.parse::<view::Node>()?.into()));
const POOL: Apply = |all, key, raw| Ok(put(&mut all.pools, key, Pool::read(&raw.parse()?)));
const PEER: Apply = |all, key, raw| Ok(put(&mut all.peers, key, raw.parse()?));
const LEASE: Apply = |all, key, raw| Ok(put(&mut all.leases, own_name(key), Lease::from(&raw.parse::<view::Lease>()?)));

/// How objects of a kind are added and deleted; both return whether anything changed.
#[derive(Clone, Copy)]
struct Reading {
    apply: Apply,
    delete: fn(&mut Objects, &str) -> bool,
    is_lease: bool,
}

const fn plain(apply: Apply, delete: fn(&mut Objects, &str) -> bool) -> Reading {
    Reading { apply, delete, is_lease: false }
}

/// Notifies views of changes.
#[derive(Clone)]
struct Notifier {
    objects: Arc<Mutex<Objects>>,
    changes: Arc<watch::Sender<(usize, u64)>>,
    lease_changes: Arc<watch::Sender<u64>>,
}

impl Inputs {
    /// Starts the watches. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When a built-in selector is invalid, which is a bug.
    pub fn start(source: &dyn Source) -> Result<Self, Status> {
        let slices = Selection::all(&kinds::endpointslice::KIND).selected(&format!("!{HEADLESS}"), "")?;
        let leases = Selection::all(&kinds::lease::KIND).within(lease::NAMESPACE).selected(lease::LABEL, "")?;
        let mut watches = vec![
            (Selection::all(&kinds::service::KIND), plain(SERVICE, |all, key| all.services.remove(key).is_some())),
            (slices, plain(SLICE, delete_slice)),
            (Selection::all(&kinds::node::KIND), plain(NODE, |all, key| all.nodes.remove(key).is_some())),
            (leases, Reading { apply: LEASE, delete: delete_lease, is_lease: true }),
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
        let (changes, changes_receiver) = watch::channel((watches.len(), 0));
        let (lease_changes, lease_receiver) = watch::channel(0);
        let notifier =
            Notifier { objects: objects.clone(), changes: Arc::new(changes), lease_changes: Arc::new(lease_changes) };
        let mut tasks = JoinSet::new();
        for (what, reading) in watches {
            tasks.spawn(follow(source.watch(what), reading, notifier.clone()));
        }
        Ok(Self { view: View { objects, changes: changes_receiver, lease_changes: lease_receiver }, _tasks: tasks })
    }

    /// A view for an announcer.
    #[must_use]
    pub fn view(&self) -> View {
        self.view.clone()
    }
}

impl View {
    /// Waits for all initial lists; nothing may be announced or withdrawn before.
    pub async fn ready(&mut self) {
        // An error means that the watches were stopped.
        let _ = self.changes.wait_for(|(left, _)| *left == 0).await;
    }

    /// Waits for the next change except of Leases; false if the watches were stopped.
    pub async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }

    /// Waits for the next change of a Lease; false if the watches were stopped.
    pub async fn lease_changed(&mut self) -> bool {
        self.lease_changes.changed().await.is_ok()
    }

    /// Reads the objects under their lock.
    pub fn read<T>(&self, read: impl FnOnce(&Objects) -> T) -> T {
        read(&self.objects.lock())
    }
}

/// Objects from lists, without watches.
#[must_use]
pub fn listed(lists: &Lists) -> Objects {
    let mut all = Objects::default();
    let kinds: [(&[Value], Apply); 6] = [
        (&lists.services, SERVICE),
        (&lists.slices, SLICE),
        (&lists.nodes, NODE),
        (&lists.pools, POOL),
        (&lists.peers, PEER),
        (&lists.leases, LEASE),
    ];
    for (objects, apply) in kinds {
        for object in objects {
            let (namespace, name) = (object.text("metadata.namespace"), object.text("metadata.name"));
            let key = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            note(&key, apply(&mut all, &key, Raw::Value(object)));
        }
    }
    all
}

/// Lists of objects of the API.
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

/// Applies the events of one watch.
async fn follow(mut watching: Watch, reading: Reading, notifier: Notifier) {
    let (mut known, mut first) = (KnownKeys::default(), true);
    loop {
        let event = watching.next().await;
        let vanished = known.apply(&event);
        let mut changed = false;
        {
            let mut objects = notifier.objects.lock();
            match &event {
                Event::InitApply(object) | Event::Apply(object) => {
                    let key = object.key();
                    changed |= note(&key, (reading.apply)(&mut objects, &key, Raw::Json(&object.value)));
                }
                Event::Delete(object) => changed |= (reading.delete)(&mut objects, &object.key()),
                Event::Init | Event::InitDone => {}
            }
            for key in &vanished {
                changed |= (reading.delete)(&mut objects, key);
            }
        }
        if changed && reading.is_lease {
            notifier.lease_changes.send_modify(|count| *count += 1);
        }
        let complete = matches!(event, Event::InitDone) && std::mem::take(&mut first);
        if complete || (changed && !reading.is_lease) {
            notifier.changes.send_modify(|(left, count)| {
                *left -= usize::from(complete);
                *count += 1;
            });
        }
    }
}

/// Logs an invalid object, which is ignored.
fn note(key: &str, taken: serde_json::Result<bool>) -> bool {
    taken.unwrap_or_else(|error| {
        tracing::warn!(object = key, %error, "ignoring invalid object");
        false
    })
}

/// Inserts a value; returns whether it is new.
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
    let Some((service, slice)) = Slice::of(slice) else { return delete_slice(all, key) };
    let known = all.slices.get(&service).and_then(|slices| slices.get(key));
    if known == Some(&slice) {
        return false;
    }
    // Its label may have named another Service before.
    delete_slice(all, key);
    all.slices.entry(service).or_default().insert(key.into(), slice);
    true
}

fn delete_slice(all: &mut Objects, key: &str) -> bool {
    let mut found = false;
    all.slices.retain(|_, slices| {
        found |= slices.remove(key).is_some();
        !slices.is_empty()
    });
    found
}

/// The name of a Lease without the namespace, which is the same for all.
fn own_name(key: &str) -> &str {
    key.split_once('/').map_or(key, |(_, name)| name)
}

fn delete_lease(all: &mut Objects, key: &str) -> bool {
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
        assert!(delete_slice(&mut all, "shop/s") && all.slices.is_empty());
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
