//! The Service of the cluster's DNS: `kube-dns` in `kube-system`, at the tenth address of the range, as tools expect.
//!
//! In: the listen addresses of this machine. Out: the Service and its slices, by server-side apply.

use std::net::{IpAddr, SocketAddr};

use anyhow::ensure;
use api::ip::Family;
use api::view::labels::{ENDPOINT_SLICE_MANAGED_BY, SERVICE_NAME};
use bytes::Bytes;
use client::http::{Client, Method};
use client::remote::Remote;
use ipnet::IpNet;
use serde_json::{Value, json};

/// The index of its address in a range.
const TENTH: usize = 10;
const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-dns";

/// The addresses of the Service, one of each range.
fn addresses(ranges: &[IpNet]) -> Vec<IpAddr> {
    ranges
        .iter()
        .filter_map(|range| range.hosts().nth(if range.addr().is_ipv4() { TENTH - 1 } else { TENTH }))
        .collect()
}

fn service(ips: &[IpAddr]) -> Value {
    let families: Vec<&str> = ips.iter().map(|ip| if ip.is_ipv4() { "IPv4" } else { "IPv6" }).collect();
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": NAME, "namespace": NAMESPACE,
            "labels": {"k8s-app": NAME, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "Waypost"},
        },
        "spec": {
            "clusterIP": ips.first(), "clusterIPs": ips, "ipFamilies": families,
            "ipFamilyPolicy": if ips.len() > 1 { "RequireDualStack" } else { "SingleStack" },
            "ports": [
                {"name": "dns", "port": super::settings::PORT, "protocol": "UDP"},
                {"name": "dns-tcp", "port": super::settings::PORT, "protocol": "TCP"},
            ],
        },
    })
}

fn slice(family: Family, at: &[SocketAddr]) -> Value {
    let kind = if family == Family::V4 { "IPv4" } else { "IPv6" };
    let port = at.first().map_or(super::settings::PORT, SocketAddr::port);
    let endpoints: Vec<Value> =
        at.iter().map(|at| json!({"addresses": [at.ip()], "conditions": {"ready": true}})).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": kind,
        "metadata": {
            "name": format!("{NAME}-{}", kind.to_lowercase()), "namespace": NAMESPACE,
            "labels": {SERVICE_NAME: NAME, ENDPOINT_SLICE_MANAGED_BY: "waypost-dns"},
        },
        "endpoints": endpoints,
        "ports": [{"name": "dns", "port": port, "protocol": "UDP"}, {"name": "dns-tcp", "port": port, "protocol": "TCP"}],
    })
}

/// Applies the Service with endpoints on this machine; returns its addresses.
///
/// # Errors
/// When the API rejects it, for example because another Service has the address.
pub(in crate::commands) async fn publish(
    remote: &Remote,
    ranges: &[IpNet],
    at: &[SocketAddr],
) -> anyhow::Result<Vec<IpAddr>> {
    let mut client = remote.client();
    let ips = addresses(ranges);
    apply(&mut client, &format!("/api/v1/namespaces/{NAMESPACE}/services/{NAME}"), &service(&ips)).await?;
    for family in [Family::V4, Family::V6] {
        let here: Vec<SocketAddr> = at.iter().copied().filter(|at| Family::of(at.ip()) == family).collect();
        let slice = slice(family, &here);
        let name = slice["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{name}");
        apply(&mut client, &path, &slice).await?;
    }
    Ok(ips)
}

async fn apply(client: &mut Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let path = format!("{path}?fieldManager=waypost-dns&force=true");
    let body = Bytes::from(object.to_string());
    let (code, answer) = client.bytes(Method::PATCH, &path, Some("application/apply-patch+yaml"), body).await?;
    let status: Value = serde_json::from_slice(&answer).unwrap_or_default();
    ensure!(code < 300, "{}", status["message"].as_str().unwrap_or("the API returned no message"));
    Ok(())
}
