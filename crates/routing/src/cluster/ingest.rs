//! Stores changed objects, and marks what has to be derived again.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Cluster;
use super::change::Change;
use super::graph::{Input, Node, Owner};
use super::objects::{RouteObject, gateway_of_set, namespace_of, reindex, reindex_traffic, store, target_services};
use crate::mesh;
use crate::model::{RouteId, RouteKind};
use crate::traffic::{self, Stored, Target};

impl Cluster {
    /// Stores an object. Nothing happens when it is equal to the stored one.
    pub(super) fn ingest(&mut self, change: Change) {
        match change {
            Change::GatewayClass(key, class) => {
                if store(&mut self.objects.classes, Arc::clone(&key), class).is_some() {
                    self.dirty.insert(Node::Class(key));
                }
            }
            Change::Gateway(key, gateway) => self.ingest_gateway(&key, gateway),
            Change::ListenerSet(key, set) => self.ingest_set(&key, set),
            Change::HttpRoute(key, route) => self.ingest_route(RouteKind::Http, key, route.map(RouteObject::Http)),
            Change::GrpcRoute(key, route) => self.ingest_route(RouteKind::Grpc, key, route.map(RouteObject::Grpc)),
            Change::TlsRoute(key, route) => self.ingest_route(RouteKind::Tls, key, route.map(RouteObject::Stream)),
            Change::TcpRoute(key, route) => self.ingest_route(RouteKind::Tcp, key, route.map(RouteObject::Stream)),
            Change::UdpRoute(key, route) => self.ingest_route(RouteKind::Udp, key, route.map(RouteObject::Stream)),
            Change::ReferenceGrant(key, grant) => {
                if let Some(change) = store(&mut self.objects.grants, Arc::clone(&key), grant) {
                    let namespace: Arc<str> = namespace_of(&key).into();
                    let entries = |exists: bool| exists.then(|| Arc::clone(&namespace)).into_iter().collect();
                    let (old, new) = (entries(change.old.is_some()), entries(change.new.is_some()));
                    reindex(&mut self.objects.grants_of, &key, &old, &new);
                    self.fire(&Input::Grants(namespace));
                }
            }
            Change::BackendTlsPolicy(key, policy) => self.ingest_policy(&key, policy),
            Change::TrafficPolicy(key, policy) => self.ingest_traffic_policy(&key, policy),
            Change::Service(key, service) => self.ingest_service(&key, service),
            Change::Namespace(key, labels) => {
                if store(&mut self.objects.namespaces, Arc::clone(&key), labels).is_some() {
                    self.fire(&Input::Namespace(key));
                }
            }
            Change::Secret(key, secret) => {
                if store(&mut self.objects.secrets, Arc::clone(&key), secret).is_some() {
                    self.fire(&Input::Secret(key));
                }
            }
            Change::ConfigMap(key, bundle) => {
                if store(&mut self.objects.config_maps, Arc::clone(&key), bundle).is_some() {
                    self.fire(&Input::ConfigMap(key));
                }
            }
        }
    }

    fn ingest_gateway(&mut self, key: &Arc<str>, gateway: Option<Arc<api::view::gateway_api::Gateway>>) {
        let Some(change) = store(&mut self.objects.gateways, Arc::clone(key), gateway) else { return };
        let owner = Owner::Gateway(Arc::clone(key));
        self.dirty.extend([Node::Listeners(owner.clone()), Node::Claim(owner.clone()), Node::Member(owner)]);
        if change.differs(|gateway| &gateway.spec.tls.frontend) {
            self.fire(&Input::Frontend(Arc::clone(key)));
        }
        if change.differs(|gateway| &gateway.spec.allowed_listeners) {
            self.fire(&Input::Group(Arc::clone(key)));
        }
        let classes = |gateway: &Option<Arc<api::view::gateway_api::Gateway>>| -> BTreeSet<Arc<str>> {
            gateway.iter().map(|gateway| (&*gateway.spec.gateway_class_name).into()).collect()
        };
        let (old, new) = (classes(&change.old), classes(&change.new));
        reindex(&mut self.objects.gateways_of, key, &old, &new);
        for class in old.symmetric_difference(&new) {
            self.fire(&Input::GatewaysOf(Arc::clone(class)));
        }
    }

    fn ingest_set(&mut self, key: &Arc<str>, set: Option<Arc<api::view::gateway_api::ListenerSet>>) {
        let Some(change) = store(&mut self.objects.sets, Arc::clone(key), set) else { return };
        let gateways = |set: &Option<Arc<api::view::gateway_api::ListenerSet>>| -> BTreeSet<Arc<str>> {
            set.iter().filter_map(|set| gateway_of_set(key, set)).collect()
        };
        let (old, new) = (gateways(&change.old), gateways(&change.new));
        reindex(&mut self.objects.sets_of, key, &old, &new);
        let owner = Owner::Set(Arc::clone(key));
        self.dirty.extend([Node::Listeners(owner.clone()), Node::Claim(owner)]);
    }

    fn ingest_route(&mut self, kind: RouteKind, key: Arc<str>, route: Option<RouteObject>) {
        let id = RouteId { kind, key };
        if let Some(change) = store(&mut self.objects.routes, id.clone(), route) {
            self.contend(&id, change.old.as_ref(), change.new.as_ref());
            self.fire(&Input::Route(id.clone()));
            self.dirty.insert(Node::Route(id));
        }
    }

    fn ingest_policy(&mut self, key: &Arc<str>, policy: Option<Arc<api::view::gateway_api::BackendTlsPolicy>>) {
        let Some(change) = store(&mut self.objects.policies, Arc::clone(key), policy) else { return };
        let services = |policy: &Option<Arc<api::view::gateway_api::BackendTlsPolicy>>| -> BTreeSet<Arc<str>> {
            policy.iter().flat_map(|policy| target_services(key, policy)).collect()
        };
        let (old, new) = (services(&change.old), services(&change.new));
        reindex(&mut self.objects.policies_of, key, &old, &new);
        self.dirty.insert(Node::Verdict(Arc::clone(key)));
        self.dirty.insert(Node::Policy(Arc::clone(key)));
        for service in old.union(&new) {
            self.fire(&Input::PoliciesOf(Arc::clone(service)));
        }
    }

    fn ingest_traffic_policy(&mut self, key: &Arc<str>, policy: Option<Arc<api::view::TrafficPolicy>>) {
        let stored = policy.map(|policy| Arc::new(Stored::new(key, policy)));
        let Some(change) = store(&mut self.objects.traffic, Arc::clone(key), stored) else { return };
        let targets = |stored: &Option<Arc<Stored>>| -> BTreeSet<Target> {
            stored.iter().flat_map(|stored| traffic::targets(key, &stored.policy)).collect()
        };
        let (old, new) = (targets(&change.old), targets(&change.new));
        reindex_traffic(&mut self.objects.traffic_of, key, change.old.as_deref(), change.new.as_deref());
        self.dirty.insert(Node::TrafficPolicy(Arc::clone(key)));
        for target in old.union(&new) {
            match target {
                Target::Gateway(key) => drop(self.dirty.insert(Node::Claim(Owner::Gateway(Arc::clone(key))))),
                Target::Set(key) => drop(self.dirty.insert(Node::Claim(Owner::Set(Arc::clone(key))))),
                Target::Route(id) => drop(self.dirty.insert(Node::Route(id.clone()))),
                Target::Service(key) => self.fire(&Input::PoliciesOf(Arc::clone(key))),
            }
            self.fire(&Input::TrafficOf(target.clone()));
        }
    }

    fn ingest_service(&mut self, key: &Arc<str>, service: Option<Arc<api::view::Service>>) {
        let Some(change) = store(&mut self.objects.services, Arc::clone(key), service) else { return };
        if change.differs(|service| (&service.spec.kind, &service.spec.ports)) {
            self.fire(&Input::Service(Arc::clone(key)));
        }
        let opts_in = [&change.old, &change.new].into_iter().flatten().any(|service| mesh::opts_in(service));
        if (opts_in || self.objects.contenders.contains_key(key)) && change.differs(|service| mesh::parts(service)) {
            self.dirty.insert(Node::Mesh(Arc::clone(key)));
        }
        if change.differs(|service| &service.status.load_balancer.ingress) {
            self.fire(&Input::Addresses(Arc::clone(key)));
        }
    }
}
