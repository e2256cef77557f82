//! `services/NAME/proxy` and `pods/NAME/proxy`: forwards HTTP requests to a Pod.
//!
//! Only addresses of Pods of the same namespace are dialed, resolved once, and only if [`crate::dial`] allows them: otherwise users who may
//! write Endpoints or the status of a Pod could reach whatever the server can reach. Bodies and upgraded connections are streamed.
//! Certificates of Pods are not verified, as in kube-apiserver: there is no CA for them, and no credentials of the server are sent.
//! A path without a slash at its end is redirected to one with it, and links in responses lead through the proxy again.

mod html;
mod links;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use api::field;
use api::status::{Resource, Status};
use api::value::ValueExt as _;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};
use ipnet::IpNet;
use serde_json::Value;

use self::links::Links;
use super::api_request::ApiRequest;
use crate::forward::{self, BackendRequest, ClientBody};
use crate::handler::Shared;
use crate::pki;
use crate::reply::Reply;
use crate::service_backends;

/// The timeout for connecting to a Pod.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The path that the client requested, for backends that make links.
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// Forwards a request to a Pod, or to the agent of a node.
pub(super) async fn proxy(request: &ApiRequest<'_>, sent: ClientBody) -> Result<Reply, Status> {
    let ApiRequest { shared, context, target, name: id, .. } = *request;
    let path = path(request);
    let (address, tls) = match target.kind.plural {
        "services" => service_address(shared, target.namespace, id)?,
        "pods" => pod_address(shared, target.namespace, id)?,
        _ => return super::agent::node(request, &path, sent).await,
    };
    if let Some(location) = slash_added(context.method, context.uri)
        && forward::wanted(context.headers).is_none()
    {
        return Ok(Reply::bytes(301, "text/plain", "").with(header::LOCATION, location));
    }
    let failed = |error| Status::unavailable(format!("error trying to reach service: {address}: {error}"));
    let tls = tls.then(pki::insecure_skip_verify_config);
    let io = forward::connect(address, tls, CONNECT_TIMEOUT).await.map_err(failed)?;
    let host = address.to_string();
    let mut headers = context.headers.clone();
    if let Ok(path) = HeaderValue::from_str(context.uri.path()) {
        headers.insert(FORWARDED_URI, path);
    }
    let backend = BackendRequest { method: context.method, path: &path, host: &host, headers: &headers };
    let reply = forward::send(io, &backend, sent).await.map_err(failed)?;
    let prefix = format!("/api/v1/namespaces/{}/{}/{id}/proxy", target.namespace, target.kind.plural);
    Ok(Links { prefix, backend: host, server: server_name(context.uri, context.headers) }.apply(reply))
}

/// Where a request for the root of a backend is redirected to if its path has no slash at the end: relative links would lead elsewhere.
fn slash_added(method: &Method, uri: &Uri) -> Option<String> {
    let path = uri.path().strip_suffix("/proxy").filter(|path| path.matches('/').count() == 6)?;
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    matches!(*method, Method::GET | Method::HEAD).then(|| format!("{path}/proxy/{query}"))
}

/// The server, as the client named it.
fn server_name(uri: &Uri, headers: &HeaderMap) -> String {
    let header = || headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    uri.authority().map_or_else(header, |authority| authority.as_str()).to_owned()
}

/// The path after `proxy` and the query, as the client encoded them.
pub(super) fn path(request: &ApiRequest<'_>) -> String {
    let uri = request.context.uri;
    // `/api/v1/namespaces/{ns}/{plural}/{name}/proxy/…`, or without a namespace.
    let before = if request.target.kind.namespaced { 8 } else { 6 };
    let rest = uri.path().splitn(before + 1, '/').nth(before).unwrap_or_default();
    match uri.query() {
        Some(query) => format!("/{rest}?{query}"),
        None => format!("/{rest}"),
    }
}

/// `name`, `name:port` or `scheme:name:port`.
pub(super) fn split_id(id: &str) -> Option<(&str, &str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    match parts[..] {
        [name] => Some(("", name, "")),
        [name, port] => Some(("", name, port)),
        [scheme @ ("" | "http" | "https"), name, port] => Some((scheme, name, port)),
        _ => None,
    }
}

/// The address, and whether to use TLS.
type Upstream = (SocketAddr, bool);

fn service_address(shared: &Shared, namespace: &str, id: &str) -> Result<Upstream, Status> {
    let (scheme, name, port) =
        split_id(id).ok_or_else(|| Status::bad_request(format!("invalid service request {}", field::quote(id))))?;
    let none = || Status::unavailable(format!("no endpoints available for service {}", field::quote(name)));
    let backends = shared.backends();
    let port_name = match port.parse::<i64>() {
        Ok(number) => {
            let services = Resource { group: "", plural: "services", kind: "Service" };
            let service = backends.service(namespace, name).ok_or_else(|| Status::not_found(services, name))?;
            service_backends::port_name(&service, name, number)
                .map_err(|error| Status::unavailable(error.to_string()))?
        }
        Err(_) => port.to_owned(),
    };
    let mut found = backends.ready(namespace, name, &port_name);
    if found.is_empty() {
        return Err(none());
    }
    Ok((found.swap_remove(fastrand::usize(..found.len())), scheme == "https"))
}

fn pod_address(shared: &Shared, namespace: &str, id: &str) -> Result<Upstream, Status> {
    let (scheme, name, port) =
        split_id(id).ok_or_else(|| Status::bad_request(format!("invalid pod request {}", field::quote(id))))?;
    let pods = Resource { group: "", plural: "pods", kind: "Pod" };
    let pod = stored(shared, "pods", &format!("{namespace}/{name}")).ok_or_else(|| Status::not_found(pods, name))?;
    let declared = pod.items("spec.containers").iter().flat_map(|container| container.items("ports"));
    let usual = if scheme == "https" { 443 } else { 80 };
    let port = if port.is_empty() {
        declared.map(|port| port.int("containerPort")).next().unwrap_or(usual)
    } else {
        port.parse().map_err(|_| Status::bad_request(format!("invalid pod request {}", field::quote(id))))?
    };
    let refused = || Status::bad_request("address not allowed");
    let address: IpAddr = pod.text("status.podIP").parse().map_err(|_| refused())?;
    let port = u16::try_from(port).map_err(|_| refused())?;
    let at = SocketAddr::new(address, port);
    shared.dial.pod(at, &service_ranges(shared)).map_err(|_| refused())?;
    Ok((at, scheme == "https"))
}

/// The Service CIDRs of the command line and of ServiceCIDR objects.
pub(super) fn service_ranges(shared: &Shared) -> Vec<IpNet> {
    shared.backends().service_ranges()
}

fn stored(shared: &Shared, table: &'static str, name: &str) -> Option<Value> {
    shared.backends().stored(table, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_of_the_bare_path_are_redirected() {
        let redirect = |method: Method, uri: &'static str| slash_added(&method, &Uri::from_static(uri));
        let to = Some("/api/v1/namespaces/a/pods/p/proxy/?q=1".to_owned());
        assert_eq!(redirect(Method::GET, "/api/v1/namespaces/a/pods/p/proxy?q=1"), to);
        assert_eq!(redirect(Method::HEAD, "https://s/api/v1/namespaces/a/pods/p/proxy?q=1"), to);
        assert_eq!(redirect(Method::POST, "/api/v1/namespaces/a/pods/p/proxy"), None);
        assert_eq!(redirect(Method::GET, "/api/v1/namespaces/a/pods/p/proxy/"), None);
        assert_eq!(redirect(Method::GET, "/api/v1/namespaces/a/pods/p/proxy/proxy"), None);
    }

    #[test]
    fn ids_have_three_forms() {
        assert_eq!(split_id("web"), Some(("", "web", "")));
        assert_eq!(split_id("web:80"), Some(("", "web", "80")));
        assert_eq!(split_id("http:web:http"), Some(("http", "web", "http")));
        assert_eq!(split_id("https:web:443"), Some(("https", "web", "443")));
        assert_eq!(split_id("ftp:web:80"), None);
        assert_eq!(split_id("a:b:c:d"), None);
    }
}
