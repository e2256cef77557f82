//! Sessions of a rule: requests of a client that reach the same backend and endpoint.
//!
//! In: the settings of a rule, headers of a request. Out: the backend and the endpoint of its session; and the cookie or
//! header that tells the client, if the session is new or has changed.
//!
//! A session keeps its endpoint by a token ([`crate::session_token`]). Sessions of Ingresses without the mode `persistent`
//! have a random key instead, whose hash selects backend and endpoint, so that some of them move when endpoints are added.

use std::net::SocketAddr;
use std::time::Duration;

use api::hash::mixed64 as hash;
use api::view::gateway_api::{PathMatchKind, SessionPersistence, SessionPersistenceKind};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{HeaderName, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use routing::durations;
use routing::model::{Matches, Rule, Target};
use routing::policy::{CookieAffinity, SameSite};

use super::request_values::cookies;
use crate::session_token::{Sealed, Token};
use crate::upstream::Upstream;

/// Values of a request that are looked at.
const MAX_VALUES: usize = 8;
/// Draws of a key that leads to another endpoint.
const DRAWS: usize = 64;
/// Longest key that is accepted, in bytes.
const MAX_KEY: usize = 256;
/// The part of the idle timeout after which a token is replaced.
const REFRESH: u32 = 8;

/// Sessions of a rule.
pub(super) struct Session {
    carrier: Carrier,
    /// Tokens of another rule are not valid.
    scope: u64,
    is_balanced: bool,
    /// Whether a session moves when its endpoint does not answer.
    change_on_failure: bool,
    /// How long a session lasts, in seconds.
    absolute: Option<u32>,
    /// How long it lasts without requests, in seconds.
    idle: Option<u32>,
}

/// What carries the token.
enum Carrier {
    Cookie(Box<CookieAffinity>),
    Header(HeaderName),
}

/// The session of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Visit {
    /// There is none yet.
    New,
    /// It has an endpoint.
    Known { backend: usize, endpoint: SocketAddr, token: Token },
    /// It has a key with this hash, which leads to an endpoint; the key itself is here if it is new.
    Keyed { hash: u64, new: Option<u128> },
}

impl Session {
    /// The sessions of a rule, if it has any.
    pub(super) fn of_rule(rule: &Rule) -> Option<Self> {
        let which = rule.name.as_deref().map_or_else(|| rule.index.to_string(), |name| format!("rule {name}"));
        let scope = hash(format!("{} {} {which}", rule.route.kind.name(), rule.route.key).as_bytes());
        if let Some(spec) = &rule.session {
            return Self::of_spec(spec, scope);
        }
        let mut cookie = rule.policy.as_ref()?.session.clone()?;
        cookie.path.get_or_insert_with(|| path_of(rule).into());
        Some(Self::of_cookie(cookie, scope))
    }

    /// The sessions of a backend, which all rules with this backend share.
    pub(super) fn of_backend(cookie: &CookieAffinity, target: &Target) -> Self {
        let scope = match target {
            Target::Service(service) => hash(format!("Service {} {}", service.service, service.port).as_bytes()),
            Target::Invalid(_) => 0,
        };
        Self::of_cookie(cookie.clone(), scope)
    }

    fn of_cookie(cookie: CookieAffinity, scope: u64) -> Self {
        Self {
            scope,
            is_balanced: !cookie.is_persistent,
            change_on_failure: cookie.change_on_failure,
            carrier: Carrier::Cookie(Box::new(cookie)),
            absolute: None,
            idle: None,
        }
    }

    /// None if the kind is not known.
    fn of_spec(spec: &SessionPersistence, scope: u64) -> Option<Self> {
        let duration = |text: Option<&str>| durations::parse(text?).filter(|time| !time.is_zero());
        let seconds = |time: Duration| u32::try_from(time.as_secs().max(1)).unwrap_or(u32::MAX);
        let absolute = duration(spec.absolute_timeout.as_deref());
        let carrier = match spec.kind {
            SessionPersistenceKind::Cookie => Carrier::Cookie(Box::new(cookie(spec, scope, absolute))),
            SessionPersistenceKind::Header => {
                let name = spec.header.as_ref().map(|header| &header.name).or(spec.session_name.as_ref())?;
                Carrier::Header(HeaderName::try_from(&**name).ok()?)
            }
            SessionPersistenceKind::Unknown => return None,
        };
        Some(Self {
            carrier,
            scope,
            is_balanced: false,
            change_on_failure: true,
            absolute: absolute.map(seconds),
            idle: duration(spec.idle_timeout.as_deref()).map(seconds),
        })
    }

    /// The session of a request, at one of these backends.
    pub(super) fn visit<'a>(
        &self,
        headers: &HeaderMap,
        upstreams: impl IntoIterator<Item = Option<&'a Upstream>, IntoIter: Clone>,
    ) -> Visit {
        let upstreams = upstreams.into_iter();
        let find = |value: &[u8]| {
            if self.is_balanced {
                return (1..=MAX_KEY).contains(&value.len()).then(|| Visit::Keyed { hash: hash(value), new: None });
            }
            let sealed = Sealed::parse(value)?;
            upstreams.clone().enumerate().find_map(|(backend, upstream)| self.open(backend, upstream?, &sealed))
        };
        let found = match &self.carrier {
            Carrier::Cookie(cookie) => cookies(headers, &cookie.name).take(MAX_VALUES).find_map(find),
            Carrier::Header(name) => {
                headers.get_all(name).into_iter().take(MAX_VALUES).find_map(|value| find(value.as_bytes().trim_ascii()))
            }
        };
        found.unwrap_or_else(|| match self.is_balanced {
            true => {
                let key = fastrand::u128(..);
                Visit::Keyed { hash: hash(text_of(key).as_bytes()), new: Some(key) }
            }
            false => Visit::New,
        })
    }

    /// The session of a token, if it is valid and its endpoint is one of this backend.
    fn open(&self, backend: usize, upstream: &Upstream, sealed: &Sealed) -> Option<Visit> {
        let backends = upstream.backends.load();
        let endpoint = backends.tagged(sealed.tag())?;
        let token = backends.key.as_ref()?.open(self.scope, sealed)?;
        let now = seconds(upstream.clock.date());
        let lasts = |since: u32, limit: Option<u32>| limit.is_none_or(|limit| now.saturating_sub(since) < limit);
        let is_valid = lasts(token.issued, self.absolute) && lasts(token.seen, self.idle);
        is_valid.then_some(Visit::Known { backend, endpoint, token })
    }

    /// The header that tells the client about its session, which this endpoint has answered; none if nothing changed.
    pub(super) fn tell(
        &self,
        visit: Visit,
        served: SocketAddr,
        upstream: &Upstream,
        is_tls: bool,
    ) -> Option<(HeaderName, HeaderValue)> {
        let date = upstream.clock.date();
        let value = match self.is_balanced {
            true => self.new_key(visit, served, upstream)?,
            false => self.new_token(visit, served, upstream, seconds(date))?,
        };
        let (name, text) = match &self.carrier {
            Carrier::Cookie(cookie) => (SET_COOKIE, cookie.set_cookie(&value, is_tls, date)),
            Carrier::Header(name) => (name.clone(), value),
        };
        Some((name, HeaderValue::from_str(&text).ok()?))
    }

    fn new_token(&self, visit: Visit, served: SocketAddr, upstream: &Upstream, now: u32) -> Option<String> {
        let issued = match visit {
            Visit::Known { endpoint, token, .. } if endpoint == served => {
                let refresh = self.idle.map(|idle| (idle / REFRESH).max(1));
                refresh.filter(|after| now.saturating_sub(token.seen) >= *after)?;
                token.issued
            }
            Visit::Known { .. } if !self.change_on_failure => return None,
            _ => now,
        };
        let key = upstream.backends.load().key.clone()?;
        Some(key.seal(self.scope, &Token { tag: key.tag(served), issued, seen: now }))
    }

    fn new_key(&self, visit: Visit, served: SocketAddr, upstream: &Upstream) -> Option<String> {
        let Visit::Keyed { hash: known, new } = visit else { return None };
        let backends = upstream.backends.load();
        let Some(failed) = backends.hashed(known).filter(|endpoint| *endpoint != served) else {
            return new.map(text_of);
        };
        if new.is_none() && !self.change_on_failure {
            return None;
        }
        let mut draws = std::iter::repeat_with(|| text_of(fastrand::u128(..))).take(DRAWS);
        draws.find(|key| backends.hashed(hash(key.as_bytes())) != Some(failed))
    }
}

/// The text of a key.
fn text_of(key: u128) -> String {
    URL_SAFE_NO_PAD.encode(key.to_be_bytes())
}

fn seconds(date: Timestamp) -> u32 {
    u32::try_from(date.as_second()).unwrap_or_default()
}

/// The path of the only match of a rule; `/` if there is no such path.
fn path_of(rule: &Rule) -> &str {
    let Matches::Http(matches) = &rule.matches else { return "/" };
    let [only] = &matches[..] else { return "/" };
    let path = only.path.as_ref().filter(|path| matches!(path.kind, PathMatchKind::Exact | PathMatchKind::PathPrefix));
    let path = path.and_then(|path| path.value.as_deref());
    path.filter(|path| is_attribute(path)).unwrap_or("/")
}

/// Whether a text can be an attribute of a cookie.
fn is_attribute(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';')
}

/// The cookie of the Gateway API. `SameSite` is `Lax`: with `Strict`, a client that follows a link from another site would
/// lose its session.
fn cookie(spec: &SessionPersistence, scope: u64, absolute: Option<Duration>) -> CookieAffinity {
    let of_cookie = spec.cookie.as_ref().or(spec.cookie_config.as_ref());
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let name = of_cookie.and_then(|cookie| cookie.name.as_deref()).or(spec.session_name.as_deref());
    let name = name.filter(|name| !name.is_empty() && name.bytes().all(is_token));
    let name = name.map_or_else(|| format!("waypost-{scope:016x}"), str::to_owned);
    let path = of_cookie.and_then(|cookie| cookie.path.as_deref());
    let is_permanent = of_cookie.is_some_and(|cookie| cookie.lifetime_type.as_deref() == Some("Permanent"));
    CookieAffinity {
        path: Some(path.filter(|path| is_attribute(path)).unwrap_or("/").into()),
        max_age: absolute.filter(|_| is_permanent),
        same_site: Some(SameSite::Lax),
        change_on_failure: true,
        is_persistent: true,
        ..CookieAffinity::new(&name)
    }
}
