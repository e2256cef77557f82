//! `services/NAME/proxy` and `pods/NAME/proxy`: the server speaks to a Pod for the client.
//!
//! Only ever to an address that a Pod of the same namespace has, resolved once, and that [`crate::dial`] allows: otherwise anyone who may
//! write Endpoints or the status of a Pod could reach whatever the server can reach. Bodies pass through as they
//! come, and so does another protocol than HTTP when both sides agree on it. Certificates of Pods are not looked at, as in the
//! original: nobody could say which authority a Pod's should be of, and nothing secret of ours is sent.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::field;
use api::status::{Resource, Status};
use api::value::ValueExt as _;
use ipnet::IpNet;
use serde_json::Value;

use crate::forward::{self, Outward, Sent};
use crate::handler::{Ask, Shared};
use crate::pki;
use crate::reply::Reply;
use crate::route::Target;
use crate::service_backends;

/// How long it may take until there is a connection to a Pod.
const CONNECT: Duration = Duration::from_secs(10);

/// Forwards a request to a Pod, or to the agent of a node.
pub(super) async fn proxy(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    sent: Sent,
) -> Result<Reply, Status> {
    let id = target.name.unwrap_or_default();
    let path = path(ask, target);
    let (address, tls) = match target.kind.plural {
        "services" => service_address(shared, target.namespace, id)?,
        "pods" => pod_address(shared, target.namespace, id)?,
        _ => return super::agent::node(shared, ask, target, &path, sent).await,
    };
    let failed = |why: String| Status::unavailable(format!("error trying to reach service: {address}: {why}"));
    let io = forward::connect(address, tls.then(pki::trusting_config), CONNECT).await.map_err(failed)?;
    let host = address.to_string();
    let outward = Outward { method: ask.method, path: &path, host: &host, headers: ask.headers };
    forward::send(io, &outward, sent).await.map_err(failed)
}

/// The path behind `proxy`, and the query, both as the client encoded them.
pub(super) fn path(ask: &Ask<'_>, target: &Target<'_>) -> String {
    // `/api/v1/namespaces/{ns}/{plural}/{name}/proxy/…`, or without a namespace.
    let before = if target.kind.namespaced { 8 } else { 6 };
    let rest = ask.uri.path().splitn(before + 1, '/').nth(before).unwrap_or_default();
    match ask.uri.query() {
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

/// Where to, and whether by TLS.
type Place = (SocketAddr, bool);

fn service_address(shared: &Shared, namespace: &str, id: &str) -> Result<Place, Status> {
    let (scheme, name, port) =
        split_id(id).ok_or_else(|| Status::bad_request(format!("invalid service request {}", field::quote(id))))?;
    let none = || Status::unavailable(format!("no endpoints available for service {}", field::quote(name)));
    let backends = shared.backends();
    let port_name = match port.parse::<i64>() {
        Ok(number) => {
            let services = Resource { group: "", plural: "services", kind: "Service" };
            let service = backends.service(namespace, name).ok_or_else(|| Status::not_found(services, name))?;
            service_backends::port_name(&service, name, number).map_err(Status::unavailable)?
        }
        Err(_) => port.to_owned(),
    };
    let mut found = backends.ready(namespace, name, &port_name);
    if found.is_empty() {
        return Err(none());
    }
    Ok((found.swap_remove(fastrand::usize(..found.len())), scheme == "https"))
}

fn pod_address(shared: &Shared, namespace: &str, id: &str) -> Result<Place, Status> {
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

/// The ranges of Services: those the server was started with, and those of ServiceCIDRs.
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
    fn ids_have_three_forms() {
        assert_eq!(split_id("web"), Some(("", "web", "")));
        assert_eq!(split_id("web:80"), Some(("", "web", "80")));
        assert_eq!(split_id("http:web:http"), Some(("http", "web", "http")));
        assert_eq!(split_id("https:web:443"), Some(("https", "web", "443")));
        assert_eq!(split_id("ftp:web:80"), None);
        assert_eq!(split_id("a:b:c:d"), None);
    }
}
