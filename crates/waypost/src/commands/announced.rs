//! Announcements of load-balancer addresses, from the API.
//!
//! In: an API, and lists of Services, slices and Nodes. Out: [`Announced`], which evaluates an address by [`announce::status`]. Leases are read
//! several times, until renewals were seen: the clocks of two machines cannot be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use announce::inputs::Lists;
use announce::lease::Lease;
use announce::status::{AnnouncementStatus, Evidence, REASONS};
use api::value::ValueExt as _;
use cli::api_client::ApiClient;
use cli::host::{AnnouncedObjects, Announcement, Announcements};
use serde_json::Value;

/// The Leases of announcers.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?labelSelector=waypost.dev%2Fannouncer";
/// How often Leases are read again, and the interval. Together longer than the time after which another node takes over.
const ATTEMPTS: usize = 4;
const INTERVAL: Duration = Duration::from_millis(300);

/// The objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Announced {
    lists: Lists,
    /// The names of Leases that were renewed while they were watched.
    renewed: BTreeSet<Box<str>>,
    events: Vec<Value>,
}

impl Announcements for Announced {
    fn of(&self, service: &str, address: IpAddr) -> Announcement {
        match Evidence::new(&self.lists, &self.renewed, &self.events).status(service, address) {
            AnnouncementStatus::Announced { how, node } => Announcement::Announced { how, node },
            AnnouncementStatus::NotAnnounced { why, fix } => Announcement::NotAnnounced { why, fix },
            AnnouncementStatus::NotOurs(why) => Announcement::NotOurs(why),
            AnnouncementStatus::Unknown { why, how } => Announcement::Unknown { why, how },
        }
    }
}

/// Reads Leases, pools, peers and Events.
///
/// # Errors
/// When Leases may not be read: they name the announcing nodes.
pub(crate) async fn read(api: &mut ApiClient, objects: AnnouncedObjects) -> anyhow::Result<Announced> {
    let AnnouncedObjects { services, slices, nodes } = objects;
    let mut lists = Lists { services, slices, nodes, ..Lists::default() };
    let first = api.list(LEASES).await?;
    let first_seen: BTreeMap<Box<str>, Lease> =
        first.iter().map(read_lease).filter(|(_, lease)| is_held(lease)).collect();
    lists.leases = first;
    let mut renewed = BTreeSet::new();
    for _ in 0..ATTEMPTS {
        if renewed.len() >= first_seen.len() {
            break;
        }
        tokio::time::sleep(INTERVAL).await;
        lists.leases = api.list(LEASES).await?;
        let changed = lists.leases.iter().map(read_lease);
        let changed = changed.filter(|(name, now)| first_seen.get(name).is_some_and(|was| was != now));
        renewed.extend(changed.map(|(name, _)| name));
    }
    lists.pools = api.optional("/apis/waypost.dev/v1/ippools").await;
    lists.peers = api.optional("/apis/waypost.dev/v1/bgppeers").await;
    let mut events = Vec::new();
    for reason in REASONS {
        events.extend(api.optional(&format!("/api/v1/events?fieldSelector=reason%3D{reason}")).await);
    }
    Ok(Announced { lists, renewed, events })
}

/// A Lease with its name.
fn read_lease(object: &Value) -> (Box<str>, Lease) {
    (object.text("metadata.name").into(), Lease::read(object))
}

/// Whether it is a node's Lease that was not released.
fn is_held(lease: &Lease) -> bool {
    !lease.holder.is_empty() && lease.renewal > 0
}

#[cfg(test)]
mod tests {
    use announce::lease::Key;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    const IP: &str = "203.0.113.7";

    /// A load balancer that node n1 answers for.
    fn announced() -> Announced {
        let node = |name: &str, ip: &str| {
            json!({"metadata": {"name": name}, "status": {
                "addresses": [{"type": "InternalIP", "address": ip}], "conditions": [{"type": "Ready", "status": "True"}]}})
        };
        let own = Key::Node("n1".into());
        let lease = |key: &Key| {
            Lease { holder: "n1".into(), session: "a".into(), renewal: 1 }.write(key, None, Timestamp::UNIX_EPOCH)
        };
        let lists = Lists {
            services: vec![json!({
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"type": "LoadBalancer", "loadBalancerClass": "waypost.dev/l2"},
                "status": {"loadBalancer": {"ingress": [{"ip": IP}]}},
            })],
            nodes: vec![node("n1", "192.0.2.11"), node("n2", "192.0.2.12")],
            leases: vec![lease(&own), lease(&Key::Address(IP.parse().expect("an address")))],
            ..Lists::default()
        };
        Announced { lists, renewed: BTreeSet::from([own.name().into()]), events: Vec::new() }
    }

    #[test]
    fn the_holder_of_the_lease_announces_an_address_while_it_renews_its_own() {
        let mut announced = announced();
        let ip: IpAddr = IP.parse().expect("an address");
        let how = "node n1 announces it by ARP since 1970-01-01T00:00:00Z".to_owned();
        assert_eq!(announced.of("default/web", ip), Announcement::Announced { how, node: Some("n1".into()) });
        announced.renewed.clear();
        match announced.of("default/web", ip) {
            Announcement::NotAnnounced { why, fix } => {
                assert!(why.starts_with("node n1 holds the Lease"), "{why}");
                assert_eq!(fix, "kubectl describe node n1");
            }
            other => panic!("announced: {other:?}"),
        }
    }
}
