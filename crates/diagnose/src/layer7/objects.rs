//! The objects of layer 7: lists of any source as typed objects, and the engines of `routing` fed with them.
//!
//! In: lists of each [`Kind`], and the Secrets and ConfigMaps that [`materials`] names. Out: typed objects by key, a
//! [`Cluster`] and the [`Ingresses`]. An object that cannot be read is an empty one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::value::ValueExt as _;
use api::view::gateway_api::{
    BackendRef, BackendTlsPolicy, Filter, Gateway, GatewayClass, GrpcRoute, HttpRoute, ListenerSet, ParentRef,
    ReferenceGrant, StreamRoute,
};
use api::view::{self, Ingress, IngressClass, ObjectMeta, StringMap, TrafficPolicy};
use routing::cluster::{CaState, Change, Cluster, Options, SecretState};
use routing::ingress::{self, Ingresses};
use routing::model::{RouteId, RouteKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use super::kind::Kind;
pub use api::view::gateway_api::Material;

use crate::model::of;
use crate::snapshot::{Object, Snapshot};

/// The lists; one that could not be read is absent.
pub type Lists<'a> = BTreeMap<Kind, Vec<Object<'a>>>;

/// A Secret or a ConfigMap.
#[derive(Clone, PartialEq, Debug)]
pub enum MaterialObject<'a> {
    /// As the API sends it.
    Found(&'a Value),
    /// It does not exist.
    Missing,
    /// It could not be read: taken as valid unless a status says otherwise.
    Unreadable,
}

/// What is known of Secrets and ConfigMaps; those that are absent could not be read.
pub type Materials<'a> = BTreeMap<Material, MaterialObject<'a>>;

/// A route of any kind.
#[derive(Clone, Debug)]
pub(super) enum Route {
    Http(Arc<HttpRoute>),
    Grpc(Arc<GrpcRoute>),
    Stream(Arc<StreamRoute>),
}

/// A rule of a route of any kind, as written.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenRule<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) filters: &'a [Filter],
    pub(super) backends: &'a [BackendRef],
}

impl Route {
    pub(super) fn parents(&self) -> &[ParentRef] {
        match self {
            Self::Http(route) => &route.spec.parent_refs,
            Self::Grpc(route) => &route.spec.parent_refs,
            Self::Stream(route) => &route.spec.parent_refs,
        }
    }

    pub(super) fn hostnames(&self) -> &[Box<str>] {
        match self {
            Self::Http(route) => &route.spec.hostnames,
            Self::Grpc(route) => &route.spec.hostnames,
            Self::Stream(route) => &route.spec.hostnames,
        }
    }

    pub(super) fn rules(&self) -> Vec<WrittenRule<'_>> {
        macro_rules! rules {
            ($route:expr) => {
                $route.spec.rules.iter().map(|rule| (rule.name.as_deref(), &rule.filters[..], &rule.backend_refs[..]))
            };
        }
        let rule = |(name, filters, backends)| WrittenRule { name, filters, backends };
        match self {
            Self::Http(route) => rules!(route).map(rule).collect(),
            Self::Grpc(route) => rules!(route).map(rule).collect(),
            Self::Stream(route) => {
                let rules = route.spec.rules.iter();
                rules.map(|one| rule((one.name.as_deref(), &[][..], &one.backend_refs[..]))).collect()
            }
        }
    }
}

impl Route {
    /// The Services that its backends and mirrors name, by `namespace/name`; `own` is its key.
    pub(super) fn services(&self, own: &str) -> BTreeSet<String> {
        let rules = self.rules();
        let backends = rules.iter().flat_map(|rule| rule.backends.iter().map(|backend| &backend.object));
        let mirrors = rules.iter().flat_map(|rule| super::backends::mirrored(rule.filters));
        let services =
            backends.chain(mirrors).filter(|one| one.group().is_empty() && one.kind_or("Service") == "Service");
        services.map(|one| one.key(super::namespace_of(own)).into()).collect()
    }
}

/// Typed objects by key.
#[derive(Debug, Default)]
pub(super) struct Objects<'a> {
    pub(super) classes: BTreeMap<Arc<str>, Arc<GatewayClass>>,
    pub(super) gateways: BTreeMap<Arc<str>, Arc<Gateway>>,
    pub(super) sets: BTreeMap<Arc<str>, Arc<ListenerSet>>,
    pub(super) routes: BTreeMap<RouteId, Route>,
    pub(super) grants: BTreeMap<Arc<str>, Arc<ReferenceGrant>>,
    pub(super) policies: BTreeMap<Arc<str>, Arc<BackendTlsPolicy>>,
    pub(super) traffic_policies: BTreeMap<Arc<str>, Arc<TrafficPolicy>>,
    pub(super) namespaces: BTreeMap<Arc<str>, StringMap>,
    pub(super) ingress_classes: BTreeMap<Arc<str>, Arc<IngressClass>>,
    pub(super) ingresses: BTreeMap<Arc<str>, Arc<Ingress>>,
    /// Gateways and ListenerSets with their statuses.
    listed: BTreeMap<(Kind, Arc<str>), Object<'a>>,
}

/// Reads the objects of a kind; those of a store get the namespace and the name of their key.
fn typed<T: DeserializeOwned + Default>(
    lists: &Lists<'_>,
    kind: Kind,
    metadata: fn(&mut T) -> &mut ObjectMeta,
) -> BTreeMap<Arc<str>, Arc<T>> {
    let list = lists.get(&kind).into_iter().flatten();
    list.map(|object| {
        let mut read: T = object.parse();
        let own = metadata(&mut read);
        (own.namespace, own.name) = (object.namespace().into(), object.name().into());
        (key_of(*object), Arc::new(read))
    })
    .collect()
}

/// `namespace/name`, or the name of an object without namespace.
fn key_of(object: Object<'_>) -> Arc<str> {
    match object.namespace() {
        "" => object.name().into(),
        namespace => format!("{namespace}/{}", object.name()).into(),
    }
}

impl<'a> Objects<'a> {
    pub(super) fn read(lists: &Lists<'a>) -> Self {
        let mut routes = BTreeMap::new();
        let mut add = |kind, all: Vec<(Arc<str>, Route)>| {
            routes.extend(all.into_iter().map(|(key, route)| (RouteId { kind, key }, route)));
        };
        let http = typed::<HttpRoute>(lists, Kind::HttpRoute, |one| &mut one.metadata);
        add(RouteKind::Http, http.into_iter().map(|(key, route)| (key, Route::Http(route))).collect());
        let grpc = typed::<GrpcRoute>(lists, Kind::GrpcRoute, |one| &mut one.metadata);
        add(RouteKind::Grpc, grpc.into_iter().map(|(key, route)| (key, Route::Grpc(route))).collect());
        for kind in [RouteKind::Tls, RouteKind::Tcp, RouteKind::Udp] {
            let all = typed::<StreamRoute>(lists, Kind::of_route(kind), |one| &mut one.metadata);
            add(kind, all.into_iter().map(|(key, route)| (key, Route::Stream(route))).collect());
        }
        let namespaces = lists.get(&Kind::Namespace).into_iter().flatten();
        let labels = |object: &Object<'_>| object.labels().iter().cloned().collect::<StringMap>();
        let listed = [Kind::Gateway, Kind::ListenerSet].into_iter();
        let listed = listed.flat_map(|kind| lists.get(&kind).into_iter().flatten().map(move |one| (kind, one)));
        Self {
            classes: typed(lists, Kind::GatewayClass, |one: &mut GatewayClass| &mut one.metadata),
            gateways: typed(lists, Kind::Gateway, |one: &mut Gateway| &mut one.metadata),
            sets: typed(lists, Kind::ListenerSet, |one: &mut ListenerSet| &mut one.metadata),
            routes,
            grants: typed_grants(lists),
            policies: typed(lists, Kind::BackendTlsPolicy, |one: &mut BackendTlsPolicy| &mut one.metadata),
            traffic_policies: typed(lists, Kind::TrafficPolicy, |one: &mut TrafficPolicy| &mut one.metadata),
            namespaces: namespaces.map(|object| (object.name().into(), labels(object))).collect(),
            ingress_classes: typed(lists, Kind::IngressClass, |one: &mut IngressClass| &mut one.metadata),
            ingresses: typed(lists, Kind::Ingress, |one: &mut Ingress| &mut one.metadata),
            listed: listed.map(|(kind, object)| ((kind, key_of(*object)), *object)).collect(),
        }
    }

    /// The engines, fed with everything.
    pub(super) fn engines(
        &self,
        lists: &Lists<'_>,
        known: &Materials<'_>,
        snapshot: &Snapshot<'_>,
    ) -> (Cluster, Ingresses) {
        let mut cluster = Cluster::new(Options::default());
        cluster.apply_all(self.changes(lists, known, snapshot));
        let mut ingresses = Ingresses::new(ingress::Options::default());
        for change in self.ingress_changes(lists, known, snapshot) {
            ingresses.apply(change);
        }
        (cluster, ingresses)
    }

    fn changes(&self, lists: &Lists<'_>, known: &Materials<'_>, snapshot: &Snapshot<'_>) -> Vec<Change> {
        let mut all: Vec<Change> = Vec::new();
        all.extend(self.classes.iter().map(|(key, one)| Change::GatewayClass(key.clone(), Some(one.clone()))));
        all.extend(self.gateways.iter().map(|(key, one)| Change::Gateway(key.clone(), Some(one.clone()))));
        all.extend(self.sets.iter().map(|(key, one)| Change::ListenerSet(key.clone(), Some(one.clone()))));
        all.extend(self.grants.iter().map(|(key, one)| Change::ReferenceGrant(key.clone(), Some(one.clone()))));
        all.extend(self.policies.iter().map(|(key, one)| Change::BackendTlsPolicy(key.clone(), Some(one.clone()))));
        all.extend(
            self.traffic_policies.iter().map(|(key, one)| Change::TrafficPolicy(key.clone(), Some(one.clone()))),
        );
        all.extend(self.namespaces.iter().map(|(key, one)| Change::Namespace(key.clone(), Some(one.clone()))));
        all.extend(
            snapshot
                .services()
                .iter()
                .map(|(key, service)| Change::Service(key.as_str().into(), Some(Arc::new((**service).clone())))),
        );
        all.extend(self.routes.iter().filter_map(|(id, route)| route_change(id, route)));
        let passwords: BTreeSet<Material> = self.traffic_policies.values().flat_map(|one| one.materials()).collect();
        all.extend(materials(lists).into_iter().map(|material| match &material {
            Material::Secret(key) if passwords.contains(&material) => {
                Change::Secret((**key).into(), passwords_of(known.get(&material)))
            }
            Material::Secret(key) => Change::Secret((**key).into(), secret(known.get(&material))),
            Material::ConfigMap(key) => Change::ConfigMap((**key).into(), authorities(known.get(&material))),
        }));
        all
    }

    fn ingress_changes(
        &self,
        lists: &Lists<'_>,
        known: &Materials<'_>,
        snapshot: &Snapshot<'_>,
    ) -> Vec<ingress::Change> {
        let mut all: Vec<ingress::Change> = Vec::new();
        if self.ingresses.is_empty() {
            return all;
        }
        all.extend(
            self.ingress_classes.iter().map(|(key, one)| ingress::Change::Class(key.clone(), Some(one.clone()))),
        );
        all.extend(
            snapshot.services().iter().map(|(key, service)| {
                ingress::Change::Service(key.as_str().into(), Some(Arc::new((**service).clone())))
            }),
        );
        for material in materials(lists) {
            let Material::Secret(key) = &material else { continue };
            let state = secret(known.get(&material));
            all.push(ingress::Change::Secret((**key).into(), state));
        }
        all.extend(self.ingresses.iter().map(|(key, one)| ingress::Change::Ingress(key.clone(), Some(one.clone()))));
        all
    }

    /// What the status of a listener says about its references, where that is about the current generation: the reason
    /// and the message of the condition `ResolvedRefs` that does not hold.
    pub(super) fn reported(&self, kind: Kind, key: &str, listener: &str) -> Option<(String, String)> {
        let object: Value = self.listed.get(&(kind, key.into()))?.parse();
        let listeners = object.items("status.listeners").iter();
        let own = listeners.clone().find(|one| one.text("name") == listener)?;
        let current = |one: &&Value| one.int("observedGeneration") == object.int("metadata.generation");
        let mut conditions = own.items("conditions").iter().filter(current);
        let refs = conditions.find(|one| one.text("type") == "ResolvedRefs" && one.text("status") == "False")?;
        Some((refs.text("reason").to_owned(), refs.text("message").to_owned()))
    }
}

/// Metadata of grants are not read: their namespace is in the key.
fn typed_grants(lists: &Lists<'_>) -> BTreeMap<Arc<str>, Arc<ReferenceGrant>> {
    let list = lists.get(&Kind::ReferenceGrant).into_iter().flatten();
    list.map(|object| (key_of(*object), Arc::new(object.parse()))).collect()
}

fn route_change(id: &RouteId, route: &Route) -> Option<Change> {
    let key = id.key.clone();
    Some(match (id.kind, route) {
        (_, Route::Http(route)) => Change::HttpRoute(key, Some(route.clone())),
        (_, Route::Grpc(route)) => Change::GrpcRoute(key, Some(route.clone())),
        (RouteKind::Tls, Route::Stream(route)) => Change::TlsRoute(key, Some(route.clone())),
        (RouteKind::Tcp, Route::Stream(route)) => Change::TcpRoute(key, Some(route.clone())),
        (RouteKind::Udp, Route::Stream(route)) => Change::UdpRoute(key, Some(route.clone())),
        (RouteKind::Http | RouteKind::Grpc | RouteKind::Ingress, Route::Stream(_)) => return None,
    })
}

/// The Secrets and ConfigMaps that listed objects refer to.
#[must_use]
pub fn materials(lists: &Lists<'_>) -> BTreeSet<Material> {
    let mut all = BTreeSet::new();
    for one in typed(lists, Kind::Gateway, |one: &mut Gateway| &mut one.metadata).values() {
        all.extend(one.materials());
    }
    for one in typed(lists, Kind::ListenerSet, |one: &mut ListenerSet| &mut one.metadata).values() {
        all.extend(one.materials());
    }
    for one in typed(lists, Kind::BackendTlsPolicy, |one: &mut BackendTlsPolicy| &mut one.metadata).values() {
        all.extend(one.materials());
    }
    for one in typed(lists, Kind::TrafficPolicy, |one: &mut TrafficPolicy| &mut one.metadata).values() {
        all.extend(one.materials());
    }
    for one in typed(lists, Kind::Ingress, |one: &mut Ingress| &mut one.metadata).values() {
        let names = one.spec.tls.iter().map(|tls| &tls.secret_name).filter(|name| !name.is_empty());
        all.extend(names.map(|name| Material::Secret(format!("{}/{name}", one.metadata.namespace).into())));
    }
    all
}

/// A Secret as a certificate. Only its shape is judged: whether key and certificate fit each other is in the statuses that
/// the controllers write.
fn secret(object: Option<&MaterialObject<'_>>) -> Option<SecretState> {
    let secret = match object {
        Some(MaterialObject::Missing) => return None,
        Some(MaterialObject::Found(secret)) => secret,
        Some(MaterialObject::Unreadable) | None => return Some(SecretState::Certificate),
    };
    let data = secret.map("data");
    let lacks = |key: &&str| data.and_then(|data| data.get(*key)?.as_str()).is_none_or(str::is_empty);
    Some(match ["tls.crt", "tls.key"].iter().find(|key| lacks(key)) {
        Some(key) => SecretState::Invalid(format!("it has no {key}")),
        None => SecretState::Certificate,
    })
}

/// A Secret as passwords of a TrafficPolicy.
fn passwords_of(object: Option<&MaterialObject<'_>>) -> Option<SecretState> {
    match object {
        Some(MaterialObject::Found(secret)) if of::<view::Secret>(secret).has_passwords() => {
            Some(SecretState::Passwords)
        }
        Some(MaterialObject::Unreadable) | None => Some(SecretState::Passwords),
        other => secret(other),
    }
}

fn authorities(object: Option<&MaterialObject<'_>>) -> Option<CaState> {
    let map = match object {
        Some(MaterialObject::Missing) => return None,
        Some(MaterialObject::Found(map)) => map,
        Some(MaterialObject::Unreadable) | None => return Some(CaState::Bundle),
    };
    let bundle = map.map("data").and_then(|data| data.get("ca.crt")?.as_str()).unwrap_or_default();
    Some(match bundle.contains("-----BEGIN CERTIFICATE-----") {
        true => CaState::Bundle,
        false => CaState::Invalid("it has no PEM certificate in ca.crt".to_owned()),
    })
}
