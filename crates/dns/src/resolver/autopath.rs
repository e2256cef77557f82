//! The search path of a client, walked here instead of by the client.
//!
//! In: a question whose name ends in the first domain of the client's search path. Out: the first answer along that path that is
//! not "no such name", with an alias from the asked name to the found one. So a name outside of the cluster costs a Pod one
//! question instead of five. Only a client whose Pod is known now has a path: a stale one would lead to wrong answers.

use std::net::IpAddr;
use std::sync::Arc;

use super::answer::Unpacked;
use super::message::{Outgoing, Query, rcode};
use super::site::Site;
use super::{Record, Resolver};
use crate::beyond::Ends;
use crate::config::Name;

const CNAME: u16 = 5;
/// What only addresses are walked for, as CoreDNS does.
const ADDRESSES: [u16; 2] = [1, 28];

/// What is left of a name without the first domain of the path, and the path.
pub(super) struct Walk {
    labels: Vec<u8>,
    path: Vec<Name>,
}

impl Resolver {
    /// The walk for a question, if there is one.
    pub(super) fn walk(&self, site: &Site, lower: &[u8], qtype: u16, client: IpAddr) -> Option<Walk> {
        let autopath = site.block.autopath.as_ref()?;
        if !ADDRESSES.contains(&qtype) {
            return None;
        }
        let zones = if autopath.zones.is_empty() { &site.zones } else { &autopath.zones };
        if !zones.iter().any(|zone| zone.covers(lower)) {
            return None;
        }
        let path = match &autopath.file {
            Some(file) => self.config.searches.get(file)?.clone(),
            None => self.config.local.as_ref()?.search_path(client)?,
        };
        let name = Name::from_wire(lower)?;
        let labels = name.strip_suffix(path.first()?)?.to_vec();
        (!labels.is_empty()).then_some(Walk { labels, path })
    }

    /// Walks, and answers as if the asked name were an alias of the found one.
    pub(super) async fn walked(self: &Arc<Self>, walk: &Walk, query: &Query<'_>, ends: Ends) -> Option<Unpacked> {
        let mut first = None;
        let root = Name::root();
        for domain in walk.path.iter().chain([&root]) {
            let Ok(name) = Name::join(&walk.labels, domain) else { continue };
            let answer = self.asked(&Outgoing::of(query, &name), ends, 0).await;
            if answer.rcode == rcode::NXDOMAIN {
                first.get_or_insert(answer);
                continue;
            }
            return Some(aliased(query.name.as_wire(), &name, answer));
        }
        first
    }
}

fn aliased(asked: &[u8], found: &Name, mut answer: Unpacked) -> Unpacked {
    if asked != found.as_wire() {
        let ttl = answer.sections.iter().flatten().map(|record| record.ttl).next().unwrap_or(0);
        let data = found.as_wire().to_vec();
        answer.sections[0].insert(0, Record { owner: asked.to_vec(), rtype: CNAME, class: 1, ttl, data });
    }
    answer
}
