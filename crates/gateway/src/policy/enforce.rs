//! Checks a request against the policy of its rule, in the order of nginx.
//!
//! In: a request, and who sent it. Out: what must accompany it to the backend and its response to the client, or the
//! answer that it gets instead.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{AUTHORIZATION, CONNECTION, SET_COOKIE, TRAILER};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Response, StatusCode, Uri};
use routing::hosts::host_of;
use routing::policy::{BasicAuth, ConnectionLimit, ExternalAuth, Policy, RateKey};

use super::Enforcer;
use super::addresses::client_key;
use super::basic_auth;
use super::buckets::Buckets;
use super::concurrency::{Counts, InUse};
use super::external_auth::{AuthServer, Denied};
use super::passwords::Current;
use super::refusal::{Reason, Refusal, redirect, status};
use super::values::{authority, target, values};
use crate::body::ResponseBody;
use crate::error_pages;
use crate::headers::{self, Rejection};
use crate::http_proxy::ClientConnection;
use crate::metrics::RouteMetrics;

/// A policy, ready to be enforced.
pub(crate) struct Enforced {
    pub(super) policy: Arc<Policy>,
    /// The buckets of each rate limit.
    pub(super) rate_limits: Vec<Arc<Buckets>>,
    /// What each of its layers demands, the outermost first.
    pub(super) layers: Vec<Layer>,
    pub(super) enforcer: Arc<Enforcer>,
}

/// What a layer of a policy demands, of which a policy without layers has only one.
pub(super) struct Layer {
    pub(super) connections: Option<(ConnectionLimit, Arc<Counts>)>,
    pub(super) passwords: Option<(BasicAuth, Current)>,
    pub(super) auth_server: Option<(ExternalAuth, AuthServer)>,
}

/// Who asks, and where.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) client: &'a ClientConnection,
    /// Port of the listener.
    pub(crate) port: u16,
    pub(crate) is_grpc: bool,
    pub(crate) metrics: &'a RouteMetrics,
}

/// A request that may be forwarded.
#[derive(Default)]
pub(crate) struct Admitted {
    /// Count the request until its response is complete.
    pub(crate) in_use: Vec<InUse>,
    /// Cookies of servers for external authentication, and whether the client gets them whatever the backend answers.
    pub(super) cookies: Vec<(HeaderValue, bool)>,
    /// The user whose password was right, for the access log.
    pub(crate) user: Option<String>,
}

impl<'a> Asked<'a> {
    pub(super) fn scheme(&self) -> &'a str {
        self.client.client.proto.to_str().unwrap_or("http")
    }

    /// The answer to a request whose body is too long. The connection is closed, because the body is not read.
    pub(crate) fn too_long(&self) -> Response<ResponseBody> {
        let text = "The request body is longer than this route accepts.";
        let refusal = Refusal::new(Reason::Body, StatusCode::PAYLOAD_TOO_LARGE, text);
        self.refuse(refusal.with(CONNECTION, HeaderValue::from_static("close")))
    }

    /// Counts a refusal, and answers it.
    fn refuse(&self, refusal: Refusal) -> Response<ResponseBody> {
        self.metrics.refused(refusal.reason);
        refusal.answer(self.is_grpc)
    }
}

impl Enforced {
    /// The answer to requests that go elsewhere, or nowhere.
    pub(crate) fn redirects(&self, asked: &Asked<'_>, parts: &Parts) -> Option<Response<ResponseBody>> {
        let policy = &self.policy;
        if let Some(code) = policy.require_https
            && asked.scheme() != "https"
        {
            let host = host_of(authority(parts));
            if host.is_empty() {
                return Some(error_pages::rejected(Rejection { status: StatusCode::BAD_REQUEST, why: NO_HOST }));
            }
            return Some(redirect(code, format!("https://{host}{}", target(parts))));
        }
        if let Some(code) = policy.refuse {
            let text = "Access to this route is restricted in a way that cannot be enforced.";
            return Some(asked.refuse(Refusal::new(Reason::Closed, status(code), text)));
        }
        let to = policy.redirect.as_ref()?;
        Some(redirect(to.status, to.location.render(&values(asked, parts))))
    }

    /// Checks whether a request may be forwarded; the error is its answer.
    pub(crate) async fn admit(&self, asked: &Asked<'_>, parts: &mut Parts) -> Result<Admitted, Response<ResponseBody>> {
        let in_use = self.limits(asked.client.address, parts).map_err(|refusal| asked.refuse(refusal))?;
        let mut admitted = Admitted { in_use, ..Admitted::default() };
        if self.layers.iter().any(Layer::authenticates) {
            // Boxed: the future is large and most rules have none.
            Box::pin(self.authenticate(asked, parts, &mut admitted)).await?;
        }
        Ok(admitted)
    }

    /// Address ranges, rates and concurrency.
    fn limits(&self, client: IpAddr, parts: &Parts) -> Result<Vec<InUse>, Refusal> {
        if !self.policy.admits(client) {
            let text = "Requests from this address are not accepted.";
            return Err(Refusal::new(Reason::Source, StatusCode::FORBIDDEN, text));
        }
        self.rates(client, parts)?;
        let limits = self.layers.iter().filter_map(|layer| layer.connections.as_ref());
        let limits = limits.filter(|(limit, _)| !limit.exempts(client));
        let enter = |(limit, counts): &(ConnectionLimit, Arc<Counts>)| {
            let text = "Too many requests of this client are in progress.";
            let in_use = counts.enter(client_key(client), limit.limit);
            in_use.ok_or_else(|| Refusal::new(Reason::Concurrency, status(limit.status), text))
        };
        limits.map(enter).collect()
    }

    /// A request counts for all limits or, if one of them refuses it, for none.
    fn rates(&self, client: IpAddr, parts: &Parts) -> Result<(), Refusal> {
        if self.rate_limits.is_empty() {
            return Ok(());
        }
        let now = self.enforcer.now();
        let each = || {
            let limits = self.policy.rate_limits.iter().zip(&self.rate_limits);
            limits.filter(|(limit, _)| !limit.exempts(client)).map(|(limit, buckets)| {
                let value = match &limit.key {
                    RateKey::Client => None,
                    RateKey::Header(name) => parts.headers.get(&**name),
                };
                // Without the header there is a limit, too: leaving it out must not be a way around.
                (limit, buckets, value.map_or_else(|| Key::Client(client_key(client)), Key::Header))
            })
        };
        let is_single = self.rate_limits.len() == 1;
        let full = (!is_single)
            .then(|| each().find(|(limit, buckets, key)| !buckets.has_room(key, limit.burst, now)))
            .flatten();
        let full = full.or_else(|| each().find(|(limit, buckets, key)| !buckets.take(key, limit.burst, now)));
        full.map_or(Ok(()), |(limit, ..)| {
            Err(Refusal::new(Reason::Rate, status(limit.status), "Too many requests; try again later."))
        })
    }

    /// Passwords of all layers, then the servers for external authentication: these do not see the passwords.
    async fn authenticate(
        &self,
        asked: &Asked<'_>,
        parts: &mut Parts,
        admitted: &mut Admitted,
    ) -> Result<(), Response<ResponseBody>> {
        for layer in &self.layers {
            let Some((auth, passwords)) = &layer.passwords else { continue };
            let checked = basic_auth::check(auth, passwords, &self.enforcer.hashing, &parts.headers).await;
            admitted.user = Some(checked.map_err(|refusal| asked.refuse(refusal))?);
        }
        if self.layers.iter().any(|layer| layer.passwords.is_some()) {
            parts.headers.remove(AUTHORIZATION);
        }
        if self.layers.iter().any(|layer| layer.auth_server.is_some()) {
            // Backends may take `X_User` of the client for the `X-User` that a server grants.
            headers::drop_underscores(&mut parts.headers);
            // And some merge trailers into headers. Only those that are announced are sent.
            parts.headers.remove(TRAILER);
        }
        for layer in &self.layers {
            let Some((auth, server)) = &layer.auth_server else { continue };
            self.ask(auth, server, asked, parts, admitted).await?;
        }
        Ok(())
    }

    /// Asks a server for external authentication.
    async fn ask(
        &self,
        auth: &ExternalAuth,
        server: &AuthServer,
        asked: &Asked<'_>,
        parts: &mut Parts,
        admitted: &mut Admitted,
    ) -> Result<(), Response<ResponseBody>> {
        match server.ask(auth, asked, parts).await {
            Ok(granted) => {
                granted.apply(server.copied(), &mut parts.headers);
                admitted.keep(granted.cookies, auth);
                Ok(())
            }
            Err(Denied { refusal, signin, cookies }) => {
                admitted.keep(cookies, auth);
                asked.metrics.refused(refusal.reason);
                let mut answer = match signin {
                    Some(location) if !asked.is_grpc => redirect(StatusCode::FOUND.as_u16(), location),
                    _ => refusal.answer(asked.is_grpc),
                };
                admitted.decorate(&mut answer);
                Err(answer)
            }
        }
    }

    /// The number of bytes that a request body may have.
    pub(crate) fn body_limit(&self) -> Option<u64> {
        self.policy.body_limit
    }

    /// Changes the path and the query that the backend sees; false if they are no valid ones.
    pub(crate) fn rewrite(&self, asked: &Asked<'_>, parts: &mut Parts) -> bool {
        let rewrite = self.policy.rewrite.as_ref();
        let Some(target) = rewrite.and_then(|rewrite| rewrite.apply(&values(asked, parts))) else { return true };
        let Ok(target) = PathAndQuery::try_from(target) else { return false };
        let mut uri = std::mem::take(&mut parts.uri).into_parts();
        uri.path_and_query = Some(target);
        Uri::from_parts(uri).map(|uri| parts.uri = uri).is_ok()
    }
}

impl Layer {
    const fn authenticates(&self) -> bool {
        self.passwords.is_some() || self.auth_server.is_some()
    }
}

impl Admitted {
    /// Keeps cookies of a server for external authentication.
    fn keep(&mut self, cookies: Vec<HeaderValue>, auth: &ExternalAuth) {
        self.cookies.extend(cookies.into_iter().map(|cookie| (cookie, auth.always_set_cookie)));
    }

    /// Adds the cookies of the server for external authentication to a response.
    pub(crate) fn decorate(&self, answer: &mut Response<ResponseBody>) {
        let passes = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308].contains(&answer.status().as_u16());
        let cookies = self.cookies.iter().filter(|(_, always)| *always || passes);
        answer.headers_mut().extend(cookies.map(|(cookie, _)| (SET_COOKIE, cookie.clone())));
    }
}

/// What a request has in common with others of a bucket.
#[derive(Hash)]
enum Key<'a> {
    Client(IpAddr),
    Header(&'a HeaderValue),
}

const NO_HOST: &str = "The request has no Host header.";
