//! The backend of a request, and how its endpoint is selected: by its session, by a hash, or by load.
//!
//! In: a rule, the request as the client has sent it. Out: a backend, a [`Selection`], and what the response tells the client
//! about its session. Sessions come before weights: they keep a backend whose weight is 0.

use http::HeaderMap;
use http::request::Parts;
use routing::policy::BalancingMethod;

use super::request_values::hash_of;
use super::rule::{CompiledBackend, CompiledRule};
use super::session::{Session, Visit};
use crate::balance::Selection;
use crate::http_proxy::ClientConnection;

/// Where a request goes.
pub(super) struct Choice<'a> {
    /// None if all weights are 0.
    pub(super) backend: Option<&'a CompiledBackend>,
    pub(super) selection: Selection<'a>,
    visit: Option<(&'a Session, Visit)>,
}

impl CompiledRule {
    /// Selects the backend of a request.
    pub(super) fn choose(&self, client: &ClientConnection, parts: &Parts) -> Choice<'_> {
        let mut visit = self.session.as_ref().map(|session| {
            // Backends with sessions of their own take part by their weights only.
            let shared = self.backends.iter().map(|backend| Some(backend).filter(|one| one.session().is_none()));
            let upstreams = shared.map(|backend| backend.and_then(|backend| backend.upstream.as_deref()));
            (session, session.visit(&parts.headers, upstreams))
        });
        let backend = match visit {
            Some((_, Visit::Known { backend, .. })) => self.backends.get(backend),
            Some((_, Visit::Keyed { hash, .. })) => self.rotation.at(hash).and_then(|index| self.backends.get(index)),
            Some((_, Visit::New)) | None => self.next(),
        };
        let Some(backend) = backend else {
            return Choice { backend: None, selection: Selection::default(), visit: None };
        };
        if let Some(session) = backend.session() {
            let only = std::iter::once(backend.upstream.as_deref());
            visit = Some((session, session.visit(&parts.headers, only)));
        }
        let balancing = &self.settings(backend).balancing;
        let mut selection = Selection::by(balancing);
        if let BalancingMethod::ConsistentHash(key) = &balancing.method {
            selection.hash = hash_of(key, client.client.ip.as_bytes(), parts);
        }
        match visit {
            Some((_, Visit::Known { endpoint, .. })) => selection.endpoint = Some(endpoint),
            Some((_, Visit::Keyed { hash, .. })) => selection.hash = Some(hash),
            Some((_, Visit::New)) | None => {}
        }
        Choice { backend: Some(backend), selection, visit }
    }
}

impl CompiledBackend {
    /// Sessions of its own.
    fn session(&self) -> Option<&Session> {
        self.settings.as_ref()?.session.as_ref()
    }
}

impl Choice<'_> {
    /// Tells the client about its session, if that is new or has changed.
    pub(super) fn tell(&self, client: &ClientConnection, headers: &mut HeaderMap) {
        let Some((session, visit)) = self.visit else { return };
        let upstream = self.backend.and_then(|backend| backend.upstream.as_deref());
        let Some((upstream, served)) = upstream.zip(self.selection.served) else { return };
        let is_tls = client.client.proto.as_bytes() == b"https";
        if let Some((name, value)) = session.tell(visit, served, upstream, is_tls) {
            headers.append(name, value);
        }
    }
}
