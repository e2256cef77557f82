//! Which node announces an address, since when and how; or why none does, and the next command to run.
//!
//! In: the objects of announcers, Events, and the Leases that were renewed while the caller watched. Out: the
//! [`AnnouncementStatus`] of an address of a Service. Pure. Liveness is not derived from timestamps, since clocks of machines
//! differ: the caller reads Leases twice. Address conflicts and BGP sessions are known from Events alone, which expire; what
//! is not known is reported as such.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::value::ValueExt as _;
use api::view::labels::EXCLUDE_FROM_LOAD_BALANCERS;
use api::view::service::{CLASS_BGP, CLASS_L2, CLASS_PROXY};
use serde_json::Value;

use super::bgp::peers::{self, Peer};
use super::inputs::{Lists, listed};
use super::lease::{Key, Lease};
use super::objects::{Node, Objects, Service};
use super::wanted::{Wanted, wanted, ways};

/// Reasons of the Events that are used.
pub const REASONS: [&str; 4] = ["Announcing", "AddressInUse", "SessionUp", "SessionDown"];

/// Inputs of the status.
#[derive(Debug)]
pub struct Evidence<'a> {
    lists: &'a Lists,
    objects: Objects,
    renewed: &'a BTreeSet<Box<str>>,
    events: &'a [Value],
}

/// Status of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnnouncementStatus {
    /// It is announced.
    Announced {
        /// By which nodes, how, and since when.
        how: String,
        /// The node that announces it by layer 2, if any.
        node: Option<Box<str>>,
    },
    /// It should be announced, and is not.
    NotAnnounced {
        /// Why.
        why: String,
        /// Next command.
        fix: String,
    },
    /// It is not announced by us; why.
    NotOurs(String),
    /// Not known.
    Unknown {
        /// Why not.
        why: String,
        /// How to find out.
        how: String,
    },
}

impl<'a> Evidence<'a> {
    /// From objects, the names of Leases that were renewed while the caller watched, and Events with [`REASONS`].
    #[must_use]
    pub fn new(lists: &'a Lists, renewed: &'a BTreeSet<Box<str>>, events: &'a [Value]) -> Self {
        Self { lists, objects: listed(lists), renewed, events }
    }

    /// Status of an address of the Service `namespace/name`.
    #[must_use]
    pub fn status(&self, key: &str, address: IpAddr) -> AnnouncementStatus {
        let Some(service) = self.objects.services.get(key) else {
            return AnnouncementStatus::NotOurs(
                "packets do not arrive with this destination: a proxy in front of the nodes has the address".to_owned(),
            );
        };
        let owner = self.objects.nodes.iter().find(|(_, node)| node.addresses.contains(&address));
        if let Some((name, _)) = owner {
            return AnnouncementStatus::NotOurs(format!("it is node {name}'s own address, which its kernel announces"));
        }
        let (l2, bgp) = ways(&self.objects, service, address);
        if !l2 && !bgp {
            return AnnouncementStatus::NotOurs(not_ours(service));
        }
        let all = wanted(&self.objects, "");
        let Some(wanted) = all.get(&address).filter(|_| !service.deleting) else {
            return AnnouncementStatus::NotOurs("its Service is being deleted".to_owned());
        };
        if wanted.nodes.is_empty() {
            return self.no_candidate(key, service, address);
        }
        let routers = bgp.then(|| self.bgp_status(wanted)).flatten();
        match (l2.then(|| self.layer2_status(key, wanted)), routers) {
            (
                Some(AnnouncementStatus::Announced { how, node }),
                Some(AnnouncementStatus::Announced { how: more, .. }),
            ) => AnnouncementStatus::Announced { how: format!("{how}; {more}"), node },
            (Some(announced @ AnnouncementStatus::Announced { .. }), _)
            | (_, Some(announced @ AnnouncementStatus::Announced { .. })) => announced,
            (Some(status), _) | (None, Some(status)) => status,
            (None, None) => AnnouncementStatus::NotAnnounced {
                why: "it is announced by BGP, and no BGPPeer selects a candidate node".to_owned(),
                fix: "kubectl get bgppeers".to_owned(),
            },
        }
    }

    /// Status of the layer 2 announcement.
    fn layer2_status(&self, key: &str, wanted: &Wanted) -> AnnouncementStatus {
        let address = wanted.address;
        let lease = self.objects.leases.get(&*Key::Address(address).name()).filter(|lease| !lease.holder.is_empty());
        let Some(lease) = lease else { return self.not_taken(wanted) };
        let holder = &lease.holder;
        if !self.is_same_life(lease) {
            return AnnouncementStatus::NotAnnounced {
                why: format!("node {holder} announced it and has stopped; another node takes over within two seconds"),
                fix: "kubectl get nodes".to_owned(),
            };
        }
        if !self.renewed.contains(&*Key::Node(holder.clone()).name()) {
            return AnnouncementStatus::NotAnnounced {
                why: format!(
                    "node {holder} holds the Lease of the address and does not renew its own: its process hangs or cannot reach \
                     the API; and no other candidate node runs an announcer"
                ),
                fix: format!("kubectl describe node {holder}"),
            };
        }
        if let Some(in_use) = self.in_use(key, address) {
            return in_use;
        }
        let how = if address.is_ipv4() { "ARP" } else { "neighbour discovery" };
        let since = self.since(address).map(|since| format!(" since {since}")).unwrap_or_default();
        AnnouncementStatus::Announced {
            how: format!("node {holder} announces it by {how}{since}"),
            node: Some(holder.clone()),
        }
    }

    /// Whether the session in which the Lease of an address was acquired still exists.
    fn is_same_life(&self, got: &Lease) -> bool {
        let own = self.objects.leases.get(&*Key::Node(got.holder.clone()).name());
        own.is_some_and(|own| own.holder == got.holder && own.session == got.session)
    }

    /// When the Lease of an address was acquired: it is written only then.
    fn since(&self, address: IpAddr) -> Option<String> {
        let name = Key::Address(address).name();
        let lease = self.lists.leases.iter().find(|lease| lease.text("metadata.name") == name)?;
        let written = lease.text("spec.renewTime");
        let seconds = written.split_once('.').map_or_else(|| written.to_owned(), |(seconds, _)| format!("{seconds}Z"));
        (!seconds.is_empty()).then_some(seconds)
    }

    /// Status of an address whose Lease has no holder.
    fn not_taken(&self, wanted: &Wanted) -> AnnouncementStatus {
        let is_renewed = |node: &str| self.renewed.contains(&*Key::Node(node.into()).name());
        let names = names(wanted.nodes.iter());
        if let Some(node) = wanted.nodes.iter().find(|node| is_renewed(node)) {
            return AnnouncementStatus::NotAnnounced {
                why: "no node announces it yet; the election takes about a second".to_owned(),
                fix: format!("kubectl describe node {node}"),
            };
        }
        AnnouncementStatus::NotAnnounced {
            why: format!(
                "no candidate node runs an announcer (candidates: {names}): it needs the role `announce` and CAP_NET_RAW"
            ),
            fix: "waypost node --roles proxy,announce".to_owned(),
        }
    }

    /// Status of an address that another machine has, by the last Event of the Service.
    fn in_use(&self, key: &str, address: IpAddr) -> Option<AnnouncementStatus> {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let (whole, text) = (address.to_string(), |event: &Value| event.text("message").to_owned());
        let named = |event: &&Value| {
            event.text("involvedObject.namespace") == namespace
                && event.text("involvedObject.name") == name
                && text(event).split([' ', ',', ';']).any(|word| word == whole)
        };
        let last = self.last("Service", named)?;
        // A conflict while it is announced is only a warning.
        (last.text("reason") == "AddressInUse" && text(last).contains("is not announced")).then(|| {
            AnnouncementStatus::NotAnnounced {
                why: text(last).split(';').next().unwrap_or_default().to_owned(),
                fix: format!("kubectl describe service {name} -n {namespace}"),
            }
        })
    }

    /// The last matching Event about objects of a kind.
    fn last(&self, kind: &str, fits: impl Fn(&&'a Value) -> bool) -> Option<&'a Value> {
        let about = self.events.iter().filter(|event| event.text("involvedObject.kind") == kind).filter(fits);
        let revision = |event: &Value| event.text("metadata.resourceVersion").parse::<u64>().unwrap_or(0);
        about.max_by_key(|event| (event.text("lastTimestamp").to_owned(), revision(event)))
    }

    /// Status of the BGP announcement; none without BGPPeers.
    fn bgp_status(&self, wanted: &Wanted) -> Option<AnnouncementStatus> {
        let mut pools = self.objects.pools.values().flat_map(|pool| &pool.ranges);
        if !pools.any(|range| range.contains(&wanted.address)) {
            return Some(AnnouncementStatus::NotAnnounced {
                why: "it is in no IPPool, and only addresses of pools are announced by BGP".to_owned(),
                fix: "kubectl get ippools".to_owned(),
            });
        }
        let (mut announced, mut down, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for node in &wanted.nodes {
            let pairs = peers::peers(&self.objects, node).into_iter();
            for (name, peer) in pairs.filter_map(|(name, peer)| Some((name, peer.ok()?))) {
                let Peer { address, settings, .. } = &peer;
                let router = format!("{name} ({}, AS {})", address.ip(), settings.peer_asn);
                let prefix = format!("node {node}, ");
                let last = self.last("BGPPeer", |event| {
                    event.text("involvedObject.name") == &*name && event.text("message").starts_with(&prefix)
                });
                match last.map(|event| (event.text("reason"), event)) {
                    Some(("SessionUp", event)) => {
                        announced.push(format!(
                            "node {node} announces it to router {router} since {}",
                            event.text("lastTimestamp")
                        ));
                    }
                    Some((_, event)) => {
                        let why = event.text("message").split_once(" UTC: ").map_or("", |(_, why)| why);
                        down.push((name, format!("node {node} has no session with router {router}: {why}")));
                    }
                    None => unknown.push((name, format!("node {node} should announce it to router {router}"))),
                }
            }
        }
        if !announced.is_empty() {
            return Some(AnnouncementStatus::Announced { how: announced.join("; "), node: None });
        }
        if let Some((name, _)) = unknown.first() {
            let how = format!("kubectl describe bgppeer {name}; waypost_bgp_session_up at the proxy's /metrics");
            let all: Vec<String> = unknown.iter().map(|(_, text)| text.clone()).collect();
            return Some(AnnouncementStatus::Unknown {
                why: format!("{}; no Event reports the state of the session", all.join("; ")),
                how,
            });
        }
        let (name, _) = down.first()?;
        let fix = format!("kubectl describe bgppeer {name}");
        let all: Vec<String> = down.iter().map(|(_, text)| text.clone()).collect();
        Some(AnnouncementStatus::NotAnnounced { why: all.join("; "), fix })
    }

    /// Status of an address without candidates.
    fn no_candidate(&self, key: &str, service: &Service, address: IpAddr) -> AnnouncementStatus {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let slices = self.objects.slices.get(key).into_iter().flat_map(|slices| slices.values());
        let fits = slices.filter(|slice| slice.is_ipv6 == address.is_ipv6());
        let behind: BTreeSet<&str> = fits.flat_map(|slice| &slice.ready).map(|node| &**node).collect();
        if service.local && behind.is_empty() {
            return AnnouncementStatus::NotAnnounced {
                why: "externalTrafficPolicy is Local, and no node has a ready endpoint: nodes would drop the traffic"
                    .to_owned(),
                fix: format!("waypost explain svc/{name} -n {namespace}"),
            };
        }
        let all = self.objects.nodes.iter().filter(|(name, _)| !service.local || behind.contains(&***name));
        let exclusion: Vec<(String, String)> = all.filter_map(|(name, node)| exclusion(name, node)).collect();
        let whose = if service.local { "with a ready endpoint (externalTrafficPolicy is Local) " } else { "" };
        let words = names(exclusion.iter().map(|(why, _)| why));
        let words = if words.is_empty() { "there is no such Node".to_owned() } else { words };
        let fix = exclusion.into_iter().next().map_or_else(|| "kubectl get nodes".to_owned(), |(_, fix)| fix);
        AnnouncementStatus::NotAnnounced { why: format!("no node {whose}may announce it: {words}"), fix }
    }
}

/// Why a node is no candidate, and the command that changes it.
fn exclusion(name: &str, node: &Node) -> Option<(String, String)> {
    if !node.ready {
        return Some((format!("{name} is not Ready"), format!("kubectl describe node {name}")));
    }
    let label = EXCLUDE_FROM_LOAD_BALANCERS;
    node.excluded.then(|| (format!("{name} has the label {label}"), format!("kubectl label node {name} {label}-")))
}

/// Why an address is not announced by us.
fn not_ours(service: &Service) -> String {
    match service.class.as_deref() {
        Some(CLASS_PROXY) => format!("its class is {CLASS_PROXY}: it has addresses of nodes"),
        Some(class) => format!("its class is {class}: announced by the implementation of that class, if at all"),
        None => format!(
            "it is in no IPPool, so it may belong to a cloud; the classes {CLASS_L2} and {CLASS_BGP} announce it anyway"
        ),
    }
}

fn names(all: impl Iterator<Item = impl AsRef<str>>) -> String {
    all.map(|one| one.as_ref().to_owned()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
