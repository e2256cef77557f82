//! The backend of a request, and how its endpoint is selected: by its session, by a hash, or by load.
//!
//! In: a rule, the request as the client has sent it. Out: a backend, a [`Selection`], and what the response tells the client
//! about its session. Sessions come before weights: they keep a backend whose weight is 0.

use http::HeaderMap;
use http::request::Parts;
use routing::policy::BalancingMethod;

use super::request_values::hash_of;
use super::rule::{CompiledBackend, CompiledRule};
use super::session::Visit;
use crate::balance::Selection;
use crate::http_proxy::ClientConnection;

/// Where a request goes.
pub(super) struct Choice<'a> {
    rule: &'a CompiledRule,
    /// None if all weights are 0.
    pub(super) backend: Option<&'a CompiledBackend>,
    pub(super) selection: Selection<'a>,
    visit: Visit,
}

impl CompiledRule {
    /// Selects the backend of a request.
    pub(super) fn choose(&self, client: &ClientConnection, parts: &Parts) -> Choice<'_> {
        let mut selection = Selection::by(&self.balancing);
        if let BalancingMethod::ConsistentHash(key) = &self.balancing.method {
            selection.hash = hash_of(key, client.client.ip.as_bytes(), parts);
        }
        let Some(session) = &self.session else {
            return Choice { rule: self, backend: self.next(), selection, visit: Visit::New };
        };
        let upstreams = self.backends.iter().map(|backend| backend.upstream.as_deref());
        let visit = session.visit(&parts.headers, upstreams);
        let backend = match visit {
            Visit::New => self.next(),
            Visit::Known { backend, endpoint, .. } => {
                selection.endpoint = Some(endpoint);
                self.backends.get(backend)
            }
            Visit::Keyed { hash, .. } => {
                selection.hash = Some(hash);
                self.rotation.at(hash).and_then(|index| self.backends.get(index))
            }
        };
        Choice { rule: self, backend, selection, visit }
    }
}

impl Choice<'_> {
    /// Tells the client about its session, if that is new or has changed.
    pub(super) fn tell(&self, client: &ClientConnection, headers: &mut HeaderMap) {
        let Some(session) = &self.rule.session else { return };
        let upstream = self.backend.and_then(|backend| backend.upstream.as_deref());
        let Some((upstream, served)) = upstream.zip(self.selection.served) else { return };
        let is_tls = client.client.proto.as_bytes() == b"https";
        if let Some((name, value)) = session.tell(self.visit, served, upstream, is_tls) {
            headers.append(name, value);
        }
    }
}
