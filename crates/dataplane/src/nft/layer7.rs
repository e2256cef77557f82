//! Which cluster IPs lead to listeners of this node's gateway, from the tables alone: for the doctor, which knows no redirects.
//!
//! In: a plan without redirects, the tables, the addresses of the machine. Out: a redirect for each cluster IP whose only
//! target is at an address of the machine, and is none of the endpoints of the Service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::ip::Family;
use kernel::nft::{Dump, Value};
use plan::{Backend, Plan, Redirect, RedirectedFrontends, ServicePort};

use super::elements::slot_key;
use super::kernel_family;
use super::shapes::LOCAL_ENDPOINTS;

/// The redirects of cluster IPs that are in force.
#[must_use]
pub fn redirected_cluster_ips(
    plan: &Plan,
    tables: &BTreeMap<kernel::Family, Option<Dump>>,
    machine: &BTreeSet<IpAddr>,
) -> BTreeSet<Redirect> {
    let redirect = |port: &Arc<ServicePort>| {
        let listener = listener(port, tables.get(&kernel_family(port.key.family))?.as_ref()?)?;
        let backend = Backend { ip: listener.ip(), port: listener.port() };
        let is_endpoint = [&port.cluster, &port.local, &port.serving].iter().any(|list| list.contains(&backend));
        (machine.contains(&listener.ip()) && !is_endpoint).then(|| Redirect {
            service: Arc::clone(&port.key.service),
            port: Arc::clone(&port.key.port),
            protocol: port.key.protocol,
            frontends: RedirectedFrontends::ClusterIp,
            listener,
            direct: None,
            backends: BTreeSet::new(),
        })
    };
    plan.ports.values().filter_map(redirect).collect()
}

/// The first local endpoint of a cluster IP in a table.
fn listener(port: &ServicePort, table: &Dump) -> Option<SocketAddr> {
    let key = slot_key(port.cluster_ip?, port.key.protocol, port.port, 0);
    let Value::Data(data) = table.sets.get(LOCAL_ENDPOINTS)?.elements.get(&key)? else { return None };
    let (ip, rest) = match port.key.family {
        Family::V4 => data.split_first_chunk::<4>().map(|(bytes, rest)| (IpAddr::from(*bytes), rest)),
        Family::V6 => data.split_first_chunk::<16>().map(|(bytes, rest)| (IpAddr::from(*bytes), rest)),
    }?;
    let [high, low] = *rest.first_chunk::<2>()?;
    Some(SocketAddr::new(ip, u16::from_be_bytes([high, low])))
}
