//! Services as parents of routes: which routes name them, and what is derived again when one of both changes.
//!
//! A Service that nobody names and that does not opt in is stored, and nothing is derived from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Cluster;
use super::change::Touched;
use super::graph::{Input, Node};
use super::objects::{RouteObject, namespace_of};
use super::state::Ancestor;
use crate::mesh::{self, Claim, Contender, Kinds, MOST_CONSUMED, Mesh};
use crate::model::{Clients, RouteId};
use crate::rules;

impl Cluster {
    /// Notes the Services that a changed route names as parents.
    pub(super) fn contend(&mut self, id: &RouteId, old: Option<&RouteObject>, new: Option<&RouteObject>) {
        let before = claims(id, old);
        let claims = claims(id, new);
        let is_refused = !claims.is_empty() && new.is_some_and(rules::is_refused);
        for service in before.into_keys().filter(|service| !claims.contains_key(service)) {
            if let Some(contenders) = self.objects.contenders.get_mut(&service) {
                contenders.remove(id);
                if contenders.is_empty() {
                    self.objects.contenders.remove(&service);
                }
            }
            self.count_consumed(&service, id, false);
            self.dirty.insert(Node::Mesh(service));
        }
        for (service, claims) in claims {
            let contender = Contender { claims: claims.into(), is_refused };
            let contenders = self.objects.contenders.entry(Arc::clone(&service)).or_default();
            let previous = contenders.insert(id.clone(), contender.clone());
            if previous.is_none() {
                self.count_consumed(&service, id, true);
            }
            if previous != Some(contender) {
                self.dirty.insert(Node::Mesh(service));
            }
        }
    }

    /// Counts the routes of a namespace that name a Service of another one. Others of these Services depend on it only when
    /// there are more than count.
    fn count_consumed(&mut self, service: &Arc<str>, id: &RouteId, comes: bool) {
        let Clients::Namespace(namespace) = mesh::clients_of(service, id) else { return };
        let services = self.objects.consumed.entry(Arc::clone(&namespace)).or_default();
        let before = services.len();
        let count = services.entry(Arc::clone(service)).or_default();
        *count = if comes { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            services.remove(service);
        }
        let after = services.len();
        if services.is_empty() {
            self.objects.consumed.remove(&namespace);
        }
        if before != after && before.max(after) > MOST_CONSUMED {
            self.fire(&Input::Consumed(namespace));
        }
    }

    /// Derives a Service as a parent again, and marks the routes that see a difference.
    pub(super) fn update_mesh(&mut self, node: &Node, key: &Arc<str>, touched: &mut Touched) {
        let new = self.compute(node, |reader, cluster| {
            let contenders = cluster.objects.contenders.get(key).into_iter().flatten();
            mesh::derive(reader, key, contenders, cluster.meshes.get(key))
        });
        let old = self.meshes.remove(key);
        if old.as_ref().map(|mesh| &mesh.view) != new.as_ref().map(|mesh| &mesh.view) {
            self.fire(&Input::ServiceParent(Arc::clone(key)));
        }
        for clients in differing(old.as_ref(), new.as_ref()) {
            self.fire(&Input::Kinds(Arc::clone(key), clients));
        }
        let config = |mesh: Option<&Mesh>| mesh.and_then(|mesh| mesh.config.clone());
        if config(old.as_ref()) != config(new.as_ref()) {
            touched.mesh.insert(Arc::clone(key));
        }
        let reach = |mesh: Option<&Mesh>| -> BTreeSet<_> {
            let own = mesh.filter(|mesh| mesh.is_own_backend());
            own.map(|_| (Arc::clone(key), Ancestor::service(key))).into_iter().collect()
        };
        self.count_reach(&reach(old.as_ref()), &reach(new.as_ref()));
        if let Some(new) = new {
            self.meshes.insert(Arc::clone(key), new);
        }
    }
}

/// The Services that a route names as parents, with the ports of each.
fn claims(id: &RouteId, object: Option<&RouteObject>) -> BTreeMap<Arc<str>, Vec<Claim>> {
    let mut claims: BTreeMap<Arc<str>, Vec<Claim>> = BTreeMap::new();
    let references = object.into_iter().flat_map(RouteObject::parent_refs);
    for reference in references.filter(|reference| reference.is_service()) {
        let service = reference.key(namespace_of(&id.key)).into();
        let claim = Claim { section: reference.section_name.clone(), port: reference.port };
        claims.entry(service).or_default().push(claim);
    }
    claims
}

/// The groups of clients for which the kinds of routes differ.
fn differing(old: Option<&Mesh>, new: Option<&Mesh>) -> Vec<Clients> {
    let none = Kinds::new();
    let [old, new] = [old, new].map(|mesh| mesh.map_or(&none, |mesh| &mesh.kinds));
    let all: BTreeSet<&Clients> = old.keys().chain(new.keys()).collect();
    all.into_iter().filter(|clients| old.get(*clients) != new.get(*clients)).cloned().collect()
}
