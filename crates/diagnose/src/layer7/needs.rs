//! What the diagnosis of an object reads. With fewer objects it would report as missing what is only not visible.
//!
//! In: an object. Out: kinds with the namespaces in which all their objects have to be known.

use std::collections::BTreeSet;

use api::view::gateway_api::{ObjectRef, ParentRef};
use routing::model::RouteId;

use super::attachment::parent_kind;
use super::objects::{Kind, Route};
use super::{Layer7, namespace_of};

const SERVICES: &str = "services";
const SLICES: &str = "endpointslices";

/// Kinds, by plural, each with a namespace; with all of them if that is empty.
pub type Needs = BTreeSet<(&'static str, Box<str>)>;

impl Layer7<'_> {
    /// What the diagnosis of an object reads besides the object itself.
    #[must_use]
    pub fn needs(&self, kind: Kind, key: &str) -> Needs {
        let own = namespace_of(key);
        let mut needs = Needs::new();
        match (kind, kind.route(key)) {
            (Kind::Gateway, _) => {
                needs.insert((Kind::GatewayClass.plural(), "".into()));
                needs.insert((SERVICES, own.into()));
                let gateway = self.objects.gateways.get(key);
                let listeners = gateway.map(|gateway| &gateway.spec.listeners[..]).unwrap_or_default();
                let client = gateway.and_then(|gateway| gateway.spec.tls.backend.client_certificate_ref.as_ref());
                let tls = listeners.iter().filter_map(|listener| listener.tls.as_ref());
                add_grants(&mut needs, own, tls.flat_map(|tls| &tls.certificate_refs).chain(client));
            }
            (Kind::ListenerSet, _) => {
                needs.insert((Kind::GatewayClass.plural(), "".into()));
                needs.insert((Kind::Namespace.plural(), "".into()));
                if let Some(set) = self.objects.sets.get(key) {
                    add_parent(&mut needs, Kind::Gateway, own, &set.spec.parent_ref);
                    let tls = set.spec.listeners.iter().filter_map(|listener| listener.tls.as_ref());
                    add_grants(&mut needs, own, tls.flat_map(|tls| &tls.certificate_refs));
                }
            }
            (Kind::Ingress, _) => {
                needs.insert((Kind::IngressClass.plural(), "".into()));
                needs.extend([SERVICES, SLICES].map(|plural| (plural, own.into())));
            }
            (_, Some(id)) => self.add_route(&mut needs, &id),
            _ => drop(needs.insert((Kind::Gateway.plural(), "".into()))),
        }
        needs
    }

    fn add_route(&self, needs: &mut Needs, id: &RouteId) {
        let Some(route) = self.objects.routes.get(id) else { return };
        needs.extend([Kind::GatewayClass, Kind::Namespace].map(|kind| (kind.plural(), "".into())));
        self.add_parents(needs, id, route);
        let own = namespace_of(&id.key);
        for service in route.services(&id.key) {
            let namespace = namespace_of(&service);
            let kinds = [SERVICES, SLICES, Kind::BackendTlsPolicy.plural()];
            needs.extend(kinds.map(|plural| (plural, namespace.into())));
            if namespace != own {
                needs.insert((Kind::ReferenceGrant.plural(), namespace.into()));
            }
        }
    }

    fn add_parents(&self, needs: &mut Needs, id: &RouteId, route: &Route) {
        let own = namespace_of(&id.key);
        for reference in route.parents() {
            if reference.is_service() {
                needs.insert((SERVICES, namespace_of(&reference.key(own)).into()));
                // Those of the namespace compete for its ports.
                let rivals = [Kind::HttpRoute, Kind::GrpcRoute, Kind::TlsRoute, Kind::TcpRoute];
                needs.extend(rivals.map(|kind| (kind.plural(), own.into())));
            }
            let Some(kind) = parent_kind(reference) else { continue };
            add_parent(needs, kind, own, reference);
            let key = reference.key(own);
            if let Some(set) = self.objects.sets.get(&*key).filter(|_| kind == Kind::ListenerSet) {
                add_parent(needs, Kind::Gateway, namespace_of(&key), &set.spec.parent_ref);
            }
        }
    }
}

fn add_parent(needs: &mut Needs, kind: Kind, own: &str, reference: &ParentRef) {
    needs.insert((kind.plural(), namespace_of(&reference.key(own)).into()));
}

/// The grants that references to other namespaces need.
fn add_grants<'a>(needs: &mut Needs, own: &str, references: impl Iterator<Item = &'a ObjectRef>) {
    for reference in references {
        let key = reference.key(own);
        if namespace_of(&key) != own {
            needs.insert((Kind::ReferenceGrant.plural(), namespace_of(&key).into()));
        }
    }
}
