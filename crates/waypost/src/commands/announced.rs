//! What the API shows of announcing, read for people: who answers for addresses of load balancers.
//!
//! In: an API, and lists that were read already. Out: [`Announced`], which says of an address who announces it, by
//! [`announce::who`]. Leases are looked at more than once, until those that live were seen to be renewed: clocks of two
//! machines prove nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use announce::inputs::Lists;
use announce::lease::Lease;
use announce::who::{Evidence, REASONS, Said};
use api::value::ValueExt as _;
use serde_json::Value;

use super::reach::Api;

/// The Leases of announcers.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?labelSelector=waypost.dev%2Fannouncer";
/// How often Leases are looked at again, and after how long. Together it is longer than a silence by which others take over.
const LOOKS: usize = 4;
const PAUSE: Duration = Duration::from_millis(300);

/// What was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Announced {
    pub(crate) lists: Lists,
    /// The names of Leases that were renewed meanwhile.
    pub(crate) living: BTreeSet<Box<str>>,
    pub(crate) events: Vec<Value>,
}

impl Announced {
    /// Who announces an address of a Service, which is called `namespace/name`.
    pub(crate) fn who(&self, key: &str, address: IpAddr) -> Said {
        Evidence::new(&self.lists, &self.living, &self.events).who(key, address)
    }
}

/// Reads what is missing in lists of Services, slices and Nodes.
///
/// # Errors
/// When Leases may not be read: then nobody can say who answers.
pub(crate) async fn read(api: &mut Api, mut lists: Lists) -> anyhow::Result<Announced> {
    let first = api.list(LEASES).await?;
    let begun: BTreeMap<Box<str>, Lease> = first.iter().map(read_lease).filter(|(_, lease)| lives(lease)).collect();
    lists.leases = first;
    let mut living = BTreeSet::new();
    for _ in 0..LOOKS {
        if living.len() >= begun.len() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        lists.leases = api.list(LEASES).await?;
        let renewed = lists.leases.iter().map(read_lease);
        living
            .extend(renewed.filter(|(name, now)| begun.get(name).is_some_and(|was| was != now)).map(|(name, _)| name));
    }
    lists.pools = api.optional("/apis/waypost.dev/v1/ippools").await;
    lists.peers = api.optional("/apis/waypost.dev/v1/bgppeers").await;
    let mut events = Vec::new();
    for reason in REASONS {
        events.extend(api.optional(&format!("/api/v1/events?fieldSelector=reason%3D{reason}")).await);
    }
    Ok(Announced { lists, living, events })
}

/// A Lease and its name.
fn read_lease(object: &Value) -> (Box<str>, Lease) {
    (object.text("metadata.name").into(), Lease::read(object))
}

/// Whether it is that of a node that has not given it back.
fn lives(lease: &Lease) -> bool {
    !lease.holder.is_empty() && lease.beat > 0
}
