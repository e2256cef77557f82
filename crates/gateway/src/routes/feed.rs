//! Watches of everything that routing depends on, as one stream of changes.
//!
//! In: a [`Source`]. Out: events, each with the watch that it comes from. Gateways, routes and Ingresses are watched always, the rest once
//! one is served; Pods of this node while a Service is served at layer 7; Secrets and ConfigMaps one by one, those that Gateways, policies and Ingresses refer to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::acme;
use api::gateway_api::watched;
use api::kind::Kind;
use api::kinds;
use api::view::gateway_api::{Material, ParentRef};
use api::view::labels::SERVICE_PROXY_NAME;
use client::watch::{Event, KnownKeys, Object, Selection, Source, Watch};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::objects::parse;

/// Capacity of the queue of events.
const QUEUE: usize = 1024;
/// Events of one batch.
const BATCH: usize = 8192;

/// Kind of an object that is watched.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Topic {
    Gateway,
    GatewayClass,
    ListenerSet,
    HttpRoute,
    GrpcRoute,
    TlsRoute,
    TcpRoute,
    UdpRoute,
    ReferenceGrant,
    BackendTlsPolicy,
    TrafficPolicy,
    IngressClass,
    Ingress,
    Namespace,
    Service,
    EndpointSlice,
    Secret,
    ConfigMap,
    /// The ConfigMap with answers to ACME challenges.
    Challenges,
    /// A Pod of this node.
    Pod,
}

/// The kinds that are watched always. Routes may have Services as their parents, without any Gateway.
const ALWAYS: [(Topic, &Kind); 7] = [
    (Topic::Gateway, &watched::GATEWAY),
    (Topic::HttpRoute, &watched::HTTP_ROUTE),
    (Topic::GrpcRoute, &watched::GRPC_ROUTE),
    (Topic::TlsRoute, &watched::TLS_ROUTE),
    (Topic::TcpRoute, &watched::TCP_ROUTE),
    (Topic::IngressClass, &kinds::ingressclass::KIND),
    (Topic::Ingress, &kinds::ingress::KIND),
];

/// The kinds that are watched as a whole once there is a Gateway, a Service at layer 7, or an Ingress to serve.
const WHOLE: [(Topic, &Kind); 9] = [
    (Topic::GatewayClass, &watched::GATEWAY_CLASS),
    (Topic::ListenerSet, &watched::LISTENER_SET),
    (Topic::UdpRoute, &watched::UDP_ROUTE),
    (Topic::ReferenceGrant, &watched::REFERENCE_GRANT),
    (Topic::BackendTlsPolicy, &watched::BACKEND_TLS_POLICY),
    (Topic::TrafficPolicy, &kinds::trafficpolicy::KIND),
    (Topic::Namespace, &kinds::namespace::KIND),
    (Topic::Service, &kinds::service::KIND),
    (Topic::EndpointSlice, &kinds::endpointslice::KIND),
];

/// A watch: of a kind, or of the one object of this name.
type WatchId = (Topic, Option<Arc<str>>);

/// A change of an object: its kind, its key, and the object unless it was deleted.
pub(super) struct Changed {
    pub(super) topic: Topic,
    pub(super) key: Arc<str>,
    pub(super) object: Option<Object>,
}

/// All watches.
pub(super) struct Feed {
    source: Arc<dyn Source>,
    sender: mpsc::Sender<(WatchId, Event)>,
    events: mpsc::Receiver<(WatchId, Event)>,
    known: HashMap<WatchId, KnownKeys>,
    tasks: JoinSet<()>,
    /// Tasks of single objects.
    single: BTreeMap<(Topic, Arc<str>), tokio::task::AbortHandle>,
    is_whole: bool,
    /// The name of this node.
    node: Box<str>,
    /// The watch of its Pods.
    pods: Option<tokio::task::AbortHandle>,
}

impl Feed {
    /// Starts to watch Gateways, routes and Ingresses.
    pub(super) fn new(source: Arc<dyn Source>, node: &str) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        let (known, tasks, single) = Default::default();
        let (node, pods) = (node.into(), None);
        let mut feed = Self { source, sender, events, known, tasks, single, is_whole: false, node, pods };
        for (topic, kind) in ALWAYS {
            feed.watch((topic, None), Selection::all(kind).optional());
        }
        feed
    }

    /// Waits for changes; returns all that are there.
    pub(super) async fn next(&mut self) -> Vec<Changed> {
        let mut changes = Vec::new();
        let mut next = self.events.recv().await;
        while let Some((id, event)) = next {
            self.apply(&id, event, &mut changes);
            next = (changes.len() < BATCH).then(|| self.events.try_recv().ok()).flatten();
        }
        let is_needed = |Changed { topic, object, .. }: &Changed| match (topic, object) {
            (Topic::Gateway, Some(_)) => true,
            (Topic::HttpRoute | Topic::GrpcRoute | Topic::TlsRoute | Topic::TcpRoute, Some(route)) => {
                has_service_parent(route)
            }
            _ => false,
        };
        if !self.is_whole && changes.iter().any(is_needed) {
            self.watch_everything();
        }
        changes
    }

    /// Watches the Pods of this node, or stops to; whether they are known. A server that forbids it never answers this.
    pub(super) fn watch_pods(&mut self, is_wanted: bool) -> bool {
        let id = (Topic::Pod, None);
        match (is_wanted, &self.pods) {
            (true, None) => {
                let selection = Selection::all(&kinds::pod::KIND).selected("", &format!("spec.nodeName={}", self.node));
                self.pods = selection.ok().map(|selection| self.watch(id.clone(), selection));
            }
            (false, Some(task)) => {
                task.abort();
                self.pods = None;
                self.known.remove(&id);
            }
            (true, Some(_)) | (false, None) => {}
        }
        self.known.get(&id).is_some_and(KnownKeys::is_complete)
    }

    /// Whether everything is watched.
    pub(super) const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether there is something to serve and all lists are complete.
    pub(super) fn is_ready(&self) -> bool {
        self.is_whole && self.known.values().all(KnownKeys::is_complete)
    }

    /// Whether it is not known yet whether some Secrets that are watched exist.
    pub(super) fn is_loading_secrets(&self) -> bool {
        self.known.iter().any(|((topic, _), known)| *topic == Topic::Secret && !known.is_complete())
    }

    /// Watches these Secrets and ConfigMaps, and no others. Objects that are no longer watched are returned as deleted.
    pub(super) fn refer_to(&mut self, wanted: &BTreeSet<Material>) -> Vec<Changed> {
        let wanted: BTreeSet<(Topic, Arc<str>)> = wanted
            .iter()
            .map(|material| match material {
                Material::Secret(key) => (Topic::Secret, (**key).into()),
                Material::ConfigMap(key) => (Topic::ConfigMap, (**key).into()),
            })
            .collect();
        while self.tasks.try_join_next().is_some() {}
        let gone: Vec<_> = self.single.keys().filter(|one| !wanted.contains(*one)).cloned().collect();
        for one in &gone {
            self.single.remove(one).iter().for_each(tokio::task::AbortHandle::abort);
            self.known.remove(&(one.0, Some(Arc::clone(&one.1))));
        }
        for (topic, key) in &wanted {
            if self.single.contains_key(&(*topic, Arc::clone(key))) {
                continue;
            }
            let kind = if *topic == Topic::Secret { &kinds::secret::KIND } else { &kinds::configmap::KIND };
            let Some((namespace, name)) = key.split_once('/') else { continue };
            let Ok(selection) = Selection::all(kind).within(namespace).named(name) else { continue };
            let task = self.watch((*topic, Some(Arc::clone(key))), selection.optional());
            self.single.insert((*topic, Arc::clone(key)), task);
        }
        gone.into_iter().map(|(topic, key)| Changed { topic, key, object: None }).collect()
    }

    /// Watches all kinds.
    pub(super) fn watch_everything(&mut self) {
        if std::mem::replace(&mut self.is_whole, true) {
            return;
        }
        for (topic, kind) in WHOLE {
            let all = Selection::all(kind);
            let selection = match topic {
                Topic::Service => match Selection::all(kind).selected(&format!("!{SERVICE_PROXY_NAME}"), "") {
                    Ok(selection) => selection,
                    Err(_) => all,
                },
                Topic::Namespace | Topic::EndpointSlice => all,
                // Without them routes would be served without restrictions.
                Topic::TrafficPolicy => all.optional_if_permitted(),
                _ => all.optional(),
            };
            self.watch((topic, None), selection);
        }
        let (namespace, name) = acme::ANSWERS;
        if let Ok(answers) = Selection::all(&kinds::configmap::KIND).within(namespace).named(name) {
            self.watch((Topic::Challenges, None), answers.optional());
        }
    }

    fn watch(&mut self, id: WatchId, selection: Selection) -> tokio::task::AbortHandle {
        self.known.insert(id.clone(), KnownKeys::default());
        self.tasks.spawn(pass(self.source.watch(selection), id, self.sender.clone()))
    }

    fn apply(&mut self, id: &WatchId, event: Event, changes: &mut Vec<Changed>) {
        // Events of a watch that has been stopped.
        let Some(known) = self.known.get_mut(id) else { return };
        let topic = id.0;
        let deleted = known.apply(&event).into_iter().map(|key| Changed { topic, key: key.into(), object: None });
        changes.extend(deleted);
        match event {
            Event::InitApply(object) | Event::Apply(object) => {
                changes.push(Changed { topic, key: object.key().into(), object: Some(object) });
            }
            Event::Delete(object) => changes.push(Changed { topic, key: object.key().into(), object: None }),
            Event::Init | Event::InitDone => {}
        }
    }
}

/// What of a route says whether it may be attached to a Service.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Parents {
    spec: ParentRefs,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ParentRefs {
    parent_refs: Vec<ParentRef>,
}

/// Whether a route has a Service as a parent.
fn has_service_parent(route: &Object) -> bool {
    let parents = parse::<Parents>(route).map(|route| route.spec.parent_refs).unwrap_or_default();
    parents.iter().any(|parent| parent.kind.as_deref() == Some(kinds::service::KIND.kind))
}

/// Passes the events of a watch on.
async fn pass(mut watch: Watch, id: WatchId, sender: mpsc::Sender<(WatchId, Event)>) {
    loop {
        let event = watch.next().await;
        if sender.send((id.clone(), event)).await.is_err() {
            return;
        }
    }
}
