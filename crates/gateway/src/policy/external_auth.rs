//! External authentication: another server decides on each request, as with `auth_request` of nginx.
//!
//! In: a request. Out: headers for the backend and cookies for the client; or why it is denied. The server gets the
//! headers of the request, not its body. A response that is neither success nor a denial, and none in time, is 500.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, HeaderName, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body as _;
use routing::model::{BackendProtocol, BackendTls, ServiceTarget, Target};
use routing::policy::ExternalAuth;

use super::Asked;
use super::destinations::{Destinations, Place};
use super::refusal::{Reason, Refusal};
use super::values::{authority, target, values};
use crate::balance::Selection;
use crate::body::{RequestBody, ResponseBody};
use crate::forward::{Exchange, Policy, forward};
use crate::headers::{self, UpstreamProtocol};
use crate::routes::BY_NUMBER;
use crate::upstream::Upstream;

/// Time limit of an authorisation.
const LIMIT: Duration = Duration::from_secs(5);
/// Bytes of a response body that are read so that its connection can be used again.
const MAX_DRAINED: usize = 64 * 1024;
/// Headers by which proxies describe a request. Servers may believe them more than the URL, and clients can send them.
const CLAIMS: [HeaderName; 10] = [
    FORWARDED,
    HeaderName::from_static("x-forwarded-method"),
    HeaderName::from_static("x-forwarded-path"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-scheme"),
    HeaderName::from_static("x-forwarded-uri"),
    HeaderName::from_static("x-original-host"),
    HeaderName::from_static("x-original-uri"),
    HeaderName::from_static("x-rewrite-url"),
    HeaderName::from_static("x-scheme"),
];
/// Names the proxies on the way of a request (RFC 8586).
const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");
/// This one among them.
const OWN_NAME: &str = "waypost";
/// The most requests to servers of which each authorises the one before: a server may be behind a gateway, too.
const MAX_NESTED: usize = 3;
/// Headers that responses cannot set: they frame and route the request.
const FIXED: [HeaderName; 7] = [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, UPGRADE, TE, TRAILER];

/// Where the server is.
pub(super) struct AuthServer {
    /// Its endpoints, if the URL names a Service; otherwise the host of the URL is resolved.
    service: Option<Arc<Upstream>>,
    destinations: Arc<Destinations>,
    method: Method,
    /// Headers of the response that are copied to the request.
    copied: Vec<HeaderName>,
}

/// A request that the server has authorised.
pub(super) struct Granted {
    headers: HeaderMap,
    pub(super) cookies: Vec<HeaderValue>,
}

/// A request that is denied.
pub(super) struct Denied {
    pub(super) refusal: Refusal,
    /// Where the client can sign in.
    pub(super) signin: Option<String>,
    pub(super) cookies: Vec<HeaderValue>,
}

impl AuthServer {
    /// `upstream` finds the endpoints of Services.
    pub(super) fn new(
        auth: &ExternalAuth,
        destinations: Arc<Destinations>,
        mut upstream: impl FnMut(&Target) -> Option<Arc<Upstream>>,
    ) -> Self {
        let service = service_target(auth.url.source()).and_then(|target| upstream(&Target::Service(Arc::new(target))));
        let method = auth.method.as_ref().and_then(|method| Method::from_bytes(method.as_bytes()).ok());
        let names = auth.response_headers.iter().filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok());
        Self {
            service,
            destinations,
            method: method.unwrap_or(Method::GET),
            copied: names.filter(|name| !FIXED.contains(name)).collect(),
        }
    }

    /// Headers of the response that are copied to the request.
    pub(super) fn copied(&self) -> &[HeaderName] {
        &self.copied
    }

    /// Asks whether a request may pass.
    pub(super) async fn ask(&self, auth: &ExternalAuth, asked: &Asked<'_>, parts: &Parts) -> Result<Granted, Denied> {
        let url = auth.url.render(&values(asked, parts));
        if nesting(&parts.headers) >= MAX_NESTED {
            tracing::debug!(url, "request for external authentication leads back to a rule that requires it");
            return Err(unavailable());
        }
        let answer = tokio::time::timeout(LIMIT, self.send(&url, auth, asked, parts));
        let Ok(Some(answer)) = answer.await else {
            tracing::debug!(url, "cannot ask server for external authentication");
            self.doubt(&url);
            return Err(unavailable());
        };
        let (head, body) = answer.into_parts();
        drain(body);
        let cookies: Vec<HeaderValue> = head.headers.get_all(SET_COOKIE).iter().cloned().collect();
        match head.status {
            status if status.is_success() => Ok(Granted { headers: head.headers, cookies }),
            StatusCode::UNAUTHORIZED => {
                let text = "Authentication is required.";
                let mut refusal = Refusal::new(Reason::ExternalAuth, StatusCode::UNAUTHORIZED, text);
                for challenge in head.headers.get_all(WWW_AUTHENTICATE) {
                    refusal = refusal.with(WWW_AUTHENTICATE, challenge.clone());
                }
                let signin = auth.signin_location(&values(asked, parts));
                Err(Denied { refusal, signin, cookies })
            }
            StatusCode::FORBIDDEN => {
                let text = "The request is not authorised.";
                let refusal = Refusal::new(Reason::ExternalAuth, StatusCode::FORBIDDEN, text);
                Err(Denied { refusal, signin: None, cookies })
            }
            status => {
                tracing::debug!(url, %status, "unexpected response of server for external authentication");
                self.doubt(&url);
                Err(unavailable())
            }
        }
    }

    /// The addresses of the server may be those of before a change of its name.
    fn doubt(&self, url: &str) {
        let place = url.parse().ok().and_then(|uri| Place::of(&uri));
        place.filter(|_| self.service.is_none()).iter().for_each(|place| self.destinations.doubt(place));
    }

    /// The response of the server; none if there is none.
    async fn send(
        &self,
        url: &str,
        auth: &ExternalAuth,
        asked: &Asked<'_>,
        parts: &Parts,
    ) -> Option<Response<ResponseBody>> {
        let uri: Uri = url.parse().ok()?;
        let upstream = match &self.service {
            Some(upstream) => Arc::clone(upstream),
            None => self.destinations.find(&Place::of(&uri)?).await?,
        };
        let protocol = UpstreamProtocol { h2: false, tls: upstream.tls.load().is_some() };
        let head = self.head(&uri, auth, asked, parts, protocol)?;
        let request = Request::from_parts(head, RequestBody::default());
        let exchange = Exchange { request, is_h2: false, upgrade: None, in_use: Vec::new(), trail: None };
        let policy = Policy { whole: Some(LIMIT), ..Policy::silence(LIMIT) };
        let answer = forward(asked.client, &upstream, exchange, policy, &mut Selection::default()).await;
        matches!(answer.body(), ResponseBody::Upstream(_)).then_some(answer)
    }

    /// The request to the server.
    fn head(
        &self,
        uri: &Uri,
        auth: &ExternalAuth,
        asked: &Asked<'_>,
        parts: &Parts,
        protocol: UpstreamProtocol,
    ) -> Option<Parts> {
        let mut head = parts.clone();
        head.method = self.method.clone();
        head.uri = Uri::from(uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
        let original = format!("{}://{}{}", asked.scheme(), authority(parts), target(parts));
        let redirect = auth.request_redirect.render(&values(asked, parts));
        CLAIMS.iter().for_each(|name| drop(head.headers.remove(name)));
        let fields = [
            (HOST, HeaderValue::from_str(uri.authority()?.as_str()).ok()?),
            (HeaderName::from_static("x-original-url"), HeaderValue::try_from(original).ok()?),
            (HeaderName::from_static("x-original-method"), HeaderValue::from_str(parts.method.as_str()).ok()?),
            (HeaderName::from_static("x-forwarded-host"), HeaderValue::from_str(authority(parts)).ok()?),
            (HeaderName::from_static("x-real-ip"), asked.client.client.ip.clone()),
            (HeaderName::from_static("x-auth-request-redirect"), HeaderValue::try_from(redirect).ok()?),
        ];
        fields.into_iter().for_each(|(name, value)| drop(head.headers.insert(name, value)));
        head.headers.append(CDN_LOOP, HeaderValue::from_static(OWN_NAME));
        head.headers.remove(CONTENT_LENGTH);
        if ![Method::GET, Method::HEAD].contains(&head.method) {
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        headers::prepare(&mut head, &asked.client.client, protocol, None, "").ok()?;
        Some(head)
    }
}

impl Granted {
    /// Replaces headers of a request by those of the response: what the client sent does not remain.
    pub(super) fn apply(&self, copied: &[HeaderName], headers: &mut HeaderMap) {
        for name in copied {
            headers.remove(name);
            for value in self.headers.get_all(name) {
                headers.append(name, value.clone());
            }
        }
    }
}

/// How many requests for external authentication led to this one.
fn nesting(headers: &HeaderMap) -> usize {
    let lists = headers.get_all(CDN_LOOP).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).filter(|name| name.trim() == OWN_NAME).count()
}

fn unavailable() -> Denied {
    let text = "The server that authorises requests of this route did not answer as expected.";
    let refusal = Refusal::new(Reason::AuthUnavailable, StatusCode::INTERNAL_SERVER_ERROR, text);
    Denied { refusal, signin: None, cookies: Vec::new() }
}

/// Reads the rest of a short body, so that its connection can be used again. The deadline of the exchange ends it.
fn drain(mut body: ResponseBody) {
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(async move {
        let mut room = MAX_DRAINED;
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let length = frame.data_ref().map_or(0, bytes::Bytes::len);
            let Some(rest) = room.checked_sub(length) else { return };
            room = rest;
        }
    });
}

/// The Service of a URL with the DNS name of one, `name.namespace.svc` or `name.namespace.svc.cluster.local`.
fn service_target(url: &str) -> Option<ServiceTarget> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let place = Place::of(&format!("{scheme}://{authority}/").parse().ok()?)?;
    let mut labels = place.host.split('.');
    let (name, namespace, "svc") = (labels.next()?, labels.next()?, labels.next()?) else { return None };
    let rest: Vec<&str> = labels.collect();
    (rest.is_empty() || rest == ["cluster", "local"]).then_some(())?;
    let tls = place.is_tls.then(|| {
        let hostname = place.host.clone();
        Arc::new(BackendTls { hostname, authorities: Vec::new(), subject_alt_names: Vec::new(), verify: true })
    });
    Some(ServiceTarget {
        service: format!("{namespace}/{name}").into(),
        port: place.port,
        port_name: BY_NUMBER.into(),
        protocol: BackendProtocol::Http1,
        tls,
    })
}

/// Whether a URL is one of https; none for other schemes.
pub(super) fn is_tls(uri: &Uri) -> Option<bool> {
    match uri.scheme()? {
        scheme if *scheme == Scheme::HTTPS => Some(true),
        scheme if *scheme == Scheme::HTTP => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::policy::resolver::Resolver;

    #[test]
    fn services_are_recognised_by_their_dns_names() {
        let found = |url: &str| service_target(url).map(|target| (target.service, target.port, target.tls.is_some()));
        let some = |key: &str, port, is_tls| Some((Arc::from(key), port, is_tls));
        for (url, expected) in [
            ("http://auth.shop.svc.cluster.local/check", some("shop/auth", 80, false)),
            ("http://auth.shop.svc:4180/oauth2/auth?x=$arg_y", some("shop/auth", 4180, false)),
            ("https://AUTH.shop.svc.cluster.local.", some("shop/auth", 443, true)),
            ("http://auth.shop.svc.example.com/", None),
            ("http://pod.auth.shop.svc.cluster.local/", None),
            ("http://auth.shop/", None),
            ("http://auth.example.com/", None),
            ("http://$host/check", None),
            ("$scheme://auth.shop.svc/", None),
            ("http://user@auth.shop.svc/", None),
        ] {
            assert_eq!(found(url), expected, "{url}");
        }
    }

    #[test]
    fn headers_of_the_client_do_not_remain_where_the_server_says_nothing() {
        let auth = ExternalAuth {
            response_headers: vec!["X-User".into(), "X-Group".into(), "Host".into(), "Content-Length".into()],
            ..ExternalAuth::new("http://auth.shop.svc/").expect("a URL")
        };
        let resolver = Arc::new(Resolver::new(Limits::default(), 1, Box::new(|_| false)));
        let server = AuthServer::new(&auth, Arc::new(Destinations::new(&resolver)), |_| None);
        let of = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            let pairs =
                pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            let mut headers = HeaderMap::new();
            headers.extend(pairs);
            headers
        };
        let mut request = of(&[("x-user", "root"), ("x-group", "wheel"), ("host", "a"), ("x-other", "kept")]);
        let granted = Granted {
            headers: of(&[("x-user", "ann"), ("x-user", "also"), ("host", "b"), ("content-length", "7")]),
            cookies: Vec::new(),
        };
        granted.apply(server.copied(), &mut request);
        assert_eq!(request, of(&[("x-user", "ann"), ("x-user", "also"), ("host", "a"), ("x-other", "kept")]));
    }
}
