//! `services/NAME/proxy` and `pods/NAME/proxy`: the server speaks to a Pod for the client.
//!
//! Only ever to an address that a Pod of the same namespace has, resolved once, never to loopback, link-local or other
//! special addresses: otherwise anyone who may write Endpoints could reach whatever the server can reach.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::ip;
use api::kinds;
use api::status::{Resource, Status};
use api::value::ValueExt as _;
use api::{field, object};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::{HeaderName, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use store::{Key, Table};
use tokio::net::TcpStream;

use crate::body;
use crate::handler::{Ask, Shared};
use crate::reply::Reply;
use crate::route::Target;

/// Headers that belong to one connection, or to our own client.
const PRIVATE: [HeaderName; 5] =
    [header::AUTHORIZATION, header::CONNECTION, header::HOST, header::TRANSFER_ENCODING, header::UPGRADE];

/// Forwards a request to a Pod.
pub(super) async fn proxy(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    incoming: Incoming,
) -> Result<Reply, Status> {
    let id = target.name.unwrap_or_default();
    let address = match target.kind.plural {
        "services" => service_address(shared, target.namespace, id)?,
        "pods" => pod_address(shared, target.namespace, id)?,
        _ => return Err(Status::unavailable(format!("no agent can be reached for {} \"{id}\"", target.kind.plural))),
    };
    let bytes = body::read(incoming).await?;
    forward(ask, target, address, bytes)
        .await
        .map_err(|error| Status::unavailable(format!("error trying to reach service: {address}: {error}")))
}

/// `name`, `name:port` or `scheme:name:port`.
fn split_id(id: &str) -> Option<(&str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    match parts[..] {
        [name] => Some((name, "")),
        [name, port] => Some((name, port)),
        ["" | "http", name, port] => Some((name, port)),
        _ => None,
    }
}

fn service_address(shared: &Shared, namespace: &str, id: &str) -> Result<SocketAddr, Status> {
    let (name, port) =
        split_id(id).ok_or_else(|| Status::bad_request(format!("invalid service request {}", field::quote(id))))?;
    let none = || Status::unavailable(format!("no endpoints available for service {}", field::quote(name)));
    let port_name = match port.parse::<i64>() {
        Ok(number) => {
            let services = Resource { group: "", plural: "services", kind: "Service" };
            let service = stored(shared, "services/specs", &format!("{namespace}/{name}"));
            let service = service.ok_or_else(|| Status::not_found(services, name))?;
            let found = service.items("spec.ports").iter().find(|port| port.int("port") == number);
            let missing =
                || Status::unavailable(format!("no service port {number} found for service {}", field::quote(name)));
            found.ok_or_else(missing)?.text("name").to_owned()
        }
        Err(_) => port.to_owned(),
    };
    let mut found = endpoints(shared, namespace, name, &port_name);
    if found.is_empty() {
        return Err(none());
    }
    Ok(found.swap_remove(fastrand::usize(..found.len())))
}

/// Ready endpoints of a Service that are Pods of its namespace.
fn endpoints(shared: &Shared, namespace: &str, service: &str, port_name: &str) -> Vec<SocketAddr> {
    let prefix = format!("{namespace}/");
    let Ok(slices) = shared.registry.store.range(Table::named("endpointslices"), &prefix, None) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for entry in slices.entries {
        if entry.facts.label("kubernetes.io/service-name") != Some(service) {
            continue;
        }
        let slice = object::decode_light(&entry.value);
        let ports = slice.items("ports").iter().filter(|port| port.text("name") == port_name);
        for port in ports.filter_map(|port| u16::try_from(port.int("port")).ok()) {
            for endpoint in slice.items("endpoints") {
                let ready = endpoint.at("conditions.ready").as_bool().unwrap_or(true);
                let addresses = endpoint.texts("addresses");
                let of_pod = |address: &&&str| is_of_pod(shared, namespace, endpoint.at("targetRef"), address);
                let address = addresses.iter().find(of_pod).and_then(|text| text.parse::<IpAddr>().ok());
                out.extend(address.filter(|_| ready).map(|address| SocketAddr::new(address, port)));
            }
        }
    }
    out
}

fn is_of_pod(shared: &Shared, namespace: &str, reference: &Value, address: &str) -> bool {
    let same_namespace = matches!(reference.text("namespace"), "") || reference.text("namespace") == namespace;
    if reference.text("kind") != "Pod" || !same_namespace {
        return false;
    }
    let pod = stored(shared, "pods", &format!("{namespace}/{}", reference.text("name")));
    pod.is_some_and(|pod| pod.items("status.podIPs").iter().any(|have| have.text("ip") == address))
}

fn pod_address(shared: &Shared, namespace: &str, id: &str) -> Result<SocketAddr, Status> {
    let (name, port) =
        split_id(id).ok_or_else(|| Status::bad_request(format!("invalid pod request {}", field::quote(id))))?;
    let pods = Resource { group: "", plural: "pods", kind: "Pod" };
    let pod = stored(shared, "pods", &format!("{namespace}/{name}")).ok_or_else(|| Status::not_found(pods, name))?;
    let declared = pod.items("spec.containers").iter().flat_map(|container| container.items("ports"));
    let port = if port.is_empty() {
        declared.map(|port| port.int("containerPort")).next().unwrap_or(80)
    } else {
        port.parse().map_err(|_| Status::bad_request(format!("invalid pod request {}", field::quote(id))))?
    };
    let refused = || Status::bad_request("address not allowed");
    let address: IpAddr = pod.text("status.podIP").parse().map_err(|_| refused())?;
    let mut errors = field::Errors::default();
    ip::check_not_special(&field::Path::Root("ip"), &address.to_string(), &mut errors);
    let port = u16::try_from(port).map_err(|_| refused())?;
    if errors.is_empty() { Ok(SocketAddr::new(address, port)) } else { Err(refused()) }
}

fn stored(shared: &Shared, table: &'static str, name: &str) -> Option<Value> {
    let kind = kinds::by_table(table)?;
    let entry = shared.registry.store.get(&Key { table: Table::named(table), name: name.into() })?;
    Some(object::decode(kind, &entry.value, entry.modified))
}

async fn forward(
    ask: &Ask<'_>,
    target: &Target<'_>,
    address: SocketAddr,
    bytes: Bytes,
) -> Result<Reply, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // The end of this connection is reported to the one who waits for the answer.
        let _ = connection.await;
    });
    let query: Vec<String> = ask.query.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let path = format!("/{}{}{}", target.rest, if query.is_empty() { "" } else { "?" }, query.join("&"));
    let mut request =
        Request::builder().method(ask.method).uri(path.parse::<Uri>()?).header(header::HOST, address.to_string());
    for (name, value) in ask.headers.iter().filter(|(name, _)| !PRIVATE.contains(*name)) {
        request = request.header(name, value);
    }
    let response = sender.send_request(request.body(Full::new(bytes))?).await?;
    let (parts, body) = response.into_parts();
    let frames = stream::unfold(body, |mut body| async move {
        loop {
            let frame = body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                return Some((data, body));
            }
        }
    });
    let mut reply = Reply::stream("application/octet-stream", frames.boxed());
    reply.code = parts.status.as_u16();
    for (name, value) in parts.headers.iter().filter(|(name, _)| !PRIVATE.contains(*name)) {
        reply.headers.push((name.clone(), value.to_str().unwrap_or_default().to_owned()));
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_three_forms() {
        assert_eq!(split_id("web"), Some(("web", "")));
        assert_eq!(split_id("web:80"), Some(("web", "80")));
        assert_eq!(split_id("http:web:http"), Some(("web", "http")));
        assert_eq!(split_id("ftp:web:80"), None);
        assert_eq!(split_id("a:b:c:d"), None);
    }
}
