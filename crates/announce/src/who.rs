//! Who announces an address, since when and how; or why nobody does, and what to type next. For people.
//!
//! In: the objects that announcers look at, Events, and whose Leases were renewed while somebody looked. Out: a [`Said`] for an address
//! of a Service. Pure. That an announcer lives is never told from a clock, since those of two machines may differ: whoever asks
//! looks twice at its Lease. What a node found on the wire, and how sessions with routers stand, is known from Events alone, which the
//! server forgets after a while; what nobody knows is said to be so.

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

/// The reasons of the Events that are looked at.
pub const REASONS: [&str; 4] = ["Announcing", "AddressInUse", "SessionUp", "SessionDown"];

/// What is known.
#[derive(Debug)]
pub struct Evidence<'a> {
    lists: &'a Lists,
    objects: Objects,
    living: &'a BTreeSet<Box<str>>,
    events: &'a [Value],
}

/// What is said of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// Somebody announces it.
    Announced {
        /// Who, how, and since when.
        how: String,
        /// The node that answers neighbours, if one does.
        node: Option<Box<str>>,
    },
    /// Somebody should, and nobody does.
    Nobody {
        /// Why.
        why: String,
        /// What to type.
        fix: String,
    },
    /// It is not for us to announce.
    NotOurs(String),
    /// Nobody knows.
    Unknown {
        /// Why not.
        why: String,
        /// How to find out.
        how: String,
    },
}

impl<'a> Evidence<'a> {
    /// What is known: objects, the names of Leases that were renewed while somebody looked, and Events with [`REASONS`].
    #[must_use]
    pub fn new(lists: &'a Lists, living: &'a BTreeSet<Box<str>>, events: &'a [Value]) -> Self {
        Self { lists, objects: listed(lists), living, events }
    }

    /// Who announces an address of a Service, which is called `namespace/name`.
    #[must_use]
    pub fn who(&self, key: &str, address: IpAddr) -> Said {
        let Some(service) = self.objects.services.get(key) else {
            return Said::NotOurs("packets do not arrive with it: somebody in front of the nodes has it".to_owned());
        };
        let owner = self.objects.nodes.iter().find(|(_, node)| node.addresses.contains(&address));
        if let Some((name, _)) = owner {
            return Said::NotOurs(format!("it is node {name}'s own address: that machine answers for it by itself"));
        }
        let (l2, bgp) = ways(&self.objects, service, address);
        if !l2 && !bgp {
            return Said::NotOurs(nobodys(service));
        }
        let all = wanted(&self.objects, "");
        let Some(wanted) = all.get(&address).filter(|_| !service.deleting) else {
            return Said::NotOurs("its Service is being deleted: it is announced no more".to_owned());
        };
        if wanted.nodes.is_empty() {
            return self.no_candidate(key, service, address);
        }
        let routers = bgp.then(|| self.to_routers(wanted)).flatten();
        match (l2.then(|| self.to_neighbours(key, wanted)), routers) {
            (Some(Said::Announced { how, node }), Some(Said::Announced { how: more, .. })) => {
                Said::Announced { how: format!("{how}; {more}"), node }
            }
            (Some(announced @ Said::Announced { .. }), _) | (_, Some(announced @ Said::Announced { .. })) => announced,
            (Some(said), _) | (None, Some(said)) => said,
            (None, None) => Said::Nobody {
                why: "it is to be announced by BGP, and no BGPPeer means a node that may: no router is told".to_owned(),
                fix: "kubectl get bgppeers".to_owned(),
            },
        }
    }

    /// Who answers neighbours.
    fn to_neighbours(&self, key: &str, wanted: &Wanted) -> Said {
        let address = wanted.address;
        let lease = self.objects.leases.get(&*Key::Address(address).name()).filter(|lease| !lease.holder.is_empty());
        let Some(lease) = lease else { return self.not_taken(wanted) };
        let holder = &lease.holder;
        if !self.is_same_life(lease) {
            return Said::Nobody {
                why: format!("node {holder} answered for it and has ended; another takes over within two seconds"),
                fix: "kubectl get nodes".to_owned(),
            };
        }
        if !self.living.contains(&*Key::Node(holder.clone()).name()) {
            return Said::Nobody {
                why: format!(
                    "node {holder} has the Lease of the address and does not renew its own any more: its program stands still, or \
                     cannot reach the API; and no other node that may announce it runs an announcer"
                ),
                fix: format!("kubectl describe node {holder}"),
            };
        }
        if let Some(in_use) = self.in_use(key, address) {
            return in_use;
        }
        let how = if address.is_ipv4() { "ARP" } else { "neighbour discovery" };
        let since = self.since(address).map(|since| format!(" since {since}")).unwrap_or_default();
        Said::Announced {
            how: format!("node {holder} answers neighbours for it by {how}{since}"),
            node: Some(holder.clone()),
        }
    }

    /// Whether a node still is in the life in which it got the Lease of an address.
    fn is_same_life(&self, got: &Lease) -> bool {
        let own = self.objects.leases.get(&*Key::Node(got.holder.clone()).name());
        own.is_some_and(|own| own.holder == got.holder && own.life == got.life)
    }

    /// Since when the Lease of an address is as it is: it is written only when somebody else has it.
    fn since(&self, address: IpAddr) -> Option<String> {
        let name = Key::Address(address).name();
        let lease = self.lists.leases.iter().find(|lease| lease.text("metadata.name") == name)?;
        let written = lease.text("spec.renewTime");
        let seconds = written.split_once('.').map_or_else(|| written.to_owned(), |(seconds, _)| format!("{seconds}Z"));
        (!seconds.is_empty()).then_some(seconds)
    }

    /// Nobody has the Lease of the address.
    fn not_taken(&self, wanted: &Wanted) -> Said {
        let lives = |node: &str| self.living.contains(&*Key::Node(node.into()).name());
        let names = names(wanted.nodes.iter());
        if let Some(node) = wanted.nodes.iter().find(|node| lives(node)) {
            return Said::Nobody {
                why: "nobody answers for it yet; that is being decided, and takes a second".to_owned(),
                fix: format!("kubectl describe node {node}"),
            };
        }
        Said::Nobody {
            why: format!(
                "no node that may announce it runs an announcer ({names} may): that is the role `announce`, and takes CAP_NET_RAW"
            ),
            fix: "waypost node --roles proxy,announce".to_owned(),
        }
    }

    /// Another machine has the address: the last that was said of it on the Service.
    fn in_use(&self, key: &str, address: IpAddr) -> Option<Said> {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let (whole, text) = (address.to_string(), |event: &Value| event.text("message").to_owned());
        let named = |event: &&Value| {
            event.text("involvedObject.namespace") == namespace
                && event.text("involvedObject.name") == name
                && text(event).split([' ', ',', ';']).any(|word| word == whole)
        };
        let last = self.last("Service", named)?;
        // Who claims it while a node answers is a warning of another kind.
        (last.text("reason") == "AddressInUse" && text(last).contains("is not announced")).then(|| Said::Nobody {
            why: text(last).split(';').next().unwrap_or_default().to_owned(),
            fix: format!("kubectl describe service {name} -n {namespace}"),
        })
    }

    /// The last Event of those about objects of a kind that fit.
    fn last(&self, kind: &str, fits: impl Fn(&&'a Value) -> bool) -> Option<&'a Value> {
        let about = self.events.iter().filter(|event| event.text("involvedObject.kind") == kind).filter(fits);
        let revision = |event: &Value| event.text("metadata.resourceVersion").parse::<u64>().unwrap_or(0);
        about.max_by_key(|event| (event.text("lastTimestamp").to_owned(), revision(event)))
    }

    /// Which routers are told by whom; nothing where there are no routers.
    fn to_routers(&self, wanted: &Wanted) -> Option<Said> {
        let mut pools = self.objects.pools.values().flat_map(|pool| &pool.ranges);
        if !pools.any(|range| range.contains(&wanted.address)) {
            return Some(Said::Nobody {
                why: "it is in no IPPool, and routers are told of addresses of pools alone".to_owned(),
                fix: "kubectl get ippools".to_owned(),
            });
        }
        let (mut told, mut silent, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for node in &wanted.nodes {
            let pairs = peers::peers(&self.objects, node).into_iter();
            for (name, peer) in pairs.filter_map(|(name, peer)| Some((name, peer.ok()?))) {
                let Peer { address, settings, .. } = &peer;
                let router = format!("{name} ({}, AS {})", address.ip(), settings.peer_asn);
                let says = format!("node {node}, ");
                let last = self.last("BGPPeer", |event| {
                    event.text("involvedObject.name") == &*name && event.text("message").starts_with(&says)
                });
                match last.map(|event| (event.text("reason"), event)) {
                    Some(("SessionUp", event)) => {
                        told.push(format!("node {node} tells router {router} since {}", event.text("lastTimestamp")));
                    }
                    Some((_, event)) => {
                        let why = event.text("message").split_once(" UTC: ").map_or("", |(_, why)| why);
                        silent.push((name, format!("node {node} has no session with router {router}: {why}")));
                    }
                    None => unknown.push((name, format!("node {node} is to tell router {router}"))),
                }
            }
        }
        if !told.is_empty() {
            return Some(Said::Announced { how: told.join("; "), node: None });
        }
        if let Some((name, _)) = unknown.first() {
            let how =
                format!("kubectl describe bgppeer {name}; kubeproxy_waypost_bgp_session_up at the proxy's /metrics");
            let all: Vec<String> = unknown.iter().map(|(_, text)| text.clone()).collect();
            return Some(Said::Unknown {
                why: format!("{}; no Event says how the session stands", all.join("; ")),
                how,
            });
        }
        let (name, _) = silent.first()?;
        let fix = format!("kubectl describe bgppeer {name}");
        let all: Vec<String> = silent.iter().map(|(_, text)| text.clone()).collect();
        Some(Said::Nobody { why: all.join("; "), fix })
    }

    /// No node may announce it.
    fn no_candidate(&self, key: &str, service: &Service, address: IpAddr) -> Said {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let slices = self.objects.slices.get(key).into_iter().flat_map(|slices| slices.values());
        let fits = slices.filter(|slice| slice.is_ipv6 == address.is_ipv6());
        let behind: BTreeSet<&str> = fits.flat_map(|slice| &slice.ready).map(|node| &**node).collect();
        if service.local && behind.is_empty() {
            return Said::Nobody {
                why: "externalTrafficPolicy is Local, and no node has a ready endpoint: a node that announced it would drop what \
                      comes"
                    .to_owned(),
                fix: format!("waypost explain svc/{name} -n {namespace}"),
            };
        }
        let all = self.objects.nodes.iter().filter(|(name, _)| !service.local || behind.contains(&***name));
        let barred: Vec<(String, String)> = all.filter_map(|(name, node)| barred(name, node)).collect();
        let whose = if service.local { "with a ready endpoint (externalTrafficPolicy is Local) " } else { "" };
        let words = names(barred.iter().map(|(why, _)| why));
        let words = if words.is_empty() { "there is no such Node".to_owned() } else { words };
        let fix = barred.into_iter().next().map_or_else(|| "kubectl get nodes".to_owned(), |(_, fix)| fix);
        Said::Nobody { why: format!("no node {whose}may announce it: {words}"), fix }
    }
}

/// Why a node announces nothing, and what changes that.
fn barred(name: &str, node: &Node) -> Option<(String, String)> {
    if !node.ready {
        return Some((format!("{name} is not Ready"), format!("kubectl describe node {name}")));
    }
    let label = EXCLUDE_FROM_LOAD_BALANCERS;
    node.excluded.then(|| (format!("{name} has the label {label}"), format!("kubectl label node {name} {label}-")))
}

/// Why an address is announced by nobody, and is not meant to be.
fn nobodys(service: &Service) -> String {
    match service.class.as_deref() {
        Some(CLASS_PROXY) => format!("its class is {CLASS_PROXY}: it has addresses of nodes"),
        Some(class) => format!("its class is {class}: whoever serves that announces it, or not"),
        None => format!(
            "it is in no IPPool, so it may be a cloud's; the classes {CLASS_L2} and {CLASS_BGP} have it announced all the same"
        ),
    }
}

fn names(all: impl Iterator<Item = impl AsRef<str>>) -> String {
    all.map(|one| one.as_ref().to_owned()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
