//! `services/NAME/proxy` and `pods/NAME/proxy`: the server speaks to a Pod for the client.
//!
//! Only ever to an address that a Pod of the same namespace has, resolved once, never to loopback, link-local or other
//! special addresses: otherwise anyone who may write Endpoints could reach whatever the server can reach. Bodies pass through as they
//! come, and so does another protocol than HTTP when both sides agree on it. Certificates of Pods are not looked at, as in the
//! original: nobody could say which authority a Pod's should be of, and nothing secret of ours is sent.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use api::ip;
use api::kinds;
use api::status::{Resource, Status};
use api::value::ValueExt as _;
use api::{field, object};
use serde_json::Value;
use store::{Key, Table};

use crate::forward::{self, Outward, Sent};
use crate::handler::{Ask, Shared};
use crate::pki;
use crate::reply::Reply;
use crate::route::Target;

/// Where a large cloud tells its machines secrets; its other address of this kind is link-local.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

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
    let io = forward::connect(address, tls.then(pki::trusting_config)).await.map_err(failed)?;
    let host = address.to_string();
    let outward = Outward { method: ask.method, path: &path, host: &host, headers: ask.headers };
    forward::send(io, &outward, sent).await.map_err(failed)
}

/// The path behind `proxy`, and the query, both as the client encoded them.
fn path(ask: &Ask<'_>, target: &Target<'_>) -> String {
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
    Ok((found.swap_remove(fastrand::usize(..found.len())), scheme == "https"))
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
                let allowed = address.filter(|address| ready && is_ordinary(*address));
                out.extend(allowed.map(|address| SocketAddr::new(address, port)));
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
    if is_ordinary(address) { Ok((SocketAddr::new(address, port), scheme == "https")) } else { Err(refused()) }
}

/// Whether an address is one that a Pod may have: not loopback, not link-local, not a group.
fn is_ordinary(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let mut errors = field::Errors::default();
    ip::check_not_special(&field::Path::Root("ip"), &address.to_string(), &mut errors);
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    errors.is_empty() && !address.is_multicast() && !broadcast && address != IpAddr::V6(METADATA)
}

fn stored(shared: &Shared, table: &'static str, name: &str) -> Option<Value> {
    let kind = kinds::by_table(table)?;
    let entry = shared.registry.store.get(&Key { table: Table::named(table), name: name.into() })?;
    Some(object::decode(kind, &entry.value, entry.modified))
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

    #[test]
    fn s15_special_addresses_are_no_pods() {
        for address in [
            "127.0.0.1",
            "::1",
            "169.254.169.254",
            "fe80::1",
            "224.0.0.1",
            "0.0.0.0",
            "::ffff:127.0.0.1",
            "fd00:ec2::254",
        ] {
            assert!(!is_ordinary(address.parse().expect("an address")), "{address}");
        }
        for address in ["10.244.0.7", "fd00:10:244::7", "192.0.2.1"] {
            assert!(is_ordinary(address.parse().expect("an address")), "{address}");
        }
    }
}
