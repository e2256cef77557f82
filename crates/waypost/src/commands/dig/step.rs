//! One query of a resolution: the response from the objects, the response of a server, and their difference.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::Context as _;
use dns::explain::{Explained, Explanation};
use dns::snapshot::ZoneSnapshot;
use dns::wire::{Record, rcode, rtype};

use super::query::{self, Reply};

/// A query and its responses.
#[derive(Debug)]
pub(super) struct Step {
    /// The name, with a dot at its end.
    pub(super) name: String,
    /// The type.
    pub(super) qtype: u16,
    /// The response from the objects.
    pub(super) zone: Explanation,
    /// The response of the server, or the error.
    pub(super) server: Option<anyhow::Result<Reply>>,
}

/// The difference between the responses of a server and of the objects.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Difference {
    /// The response codes, if they differ: of the server and of the objects.
    pub(super) codes: Option<(u16, u16)>,
    /// Records that only the server has.
    pub(super) only_server: Vec<String>,
    /// Records that only the objects have.
    pub(super) only_objects: Vec<String>,
}

impl Step {
    /// Queries a name.
    pub(super) async fn run(
        zone: &ZoneSnapshot,
        name: &str,
        qtype: u16,
        server: Option<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let explained = zone.explain(name, qtype);
        let explained =
            explained.with_context(|| format!("{name:?} cannot be queried; labels have 1 to 63 bytes, names 253"))?;
        let server = match server {
            Some(server) => Some(query::query(server, name, qtype).await),
            None => None,
        };
        Ok(Self { name: name.to_owned(), qtype, zone: explained, server })
    }

    /// Whether a record was found, by the objects or by the server.
    pub(super) fn has_records(&self) -> bool {
        !self.zone.answer.is_empty() || matches!(&self.server, Some(Ok(reply)) if !reply.answer.is_empty())
    }

    /// Whether the query to the server failed.
    pub(super) const fn has_failed(&self) -> bool {
        matches!(self.server, Some(Err(_)))
    }

    /// Whether the name is outside of our zones.
    pub(super) fn is_outside_zones(&self) -> bool {
        self.zone.forwarded.is_some() && self.zone.answer.is_empty()
    }

    /// The difference. Records behind a CNAME that leaves our zones are not compared.
    pub(super) fn difference(&self) -> Option<Difference> {
        let Some(Ok(reply)) = &self.server else { return None };
        if self.is_outside_zones() {
            return None;
        }
        let ours: BTreeSet<String> = self.zone.answer.iter().map(|Explained { record, .. }| identity(record)).collect();
        let theirs: BTreeSet<String> = reply.answer.iter().map(identity).collect();
        let leads_out = self.zone.forwarded.is_some();
        let only = |these: &BTreeSet<String>, those| these.difference(those).cloned().collect::<Vec<_>>();
        let difference = Difference {
            codes: (!leads_out && reply.rcode != self.zone.rcode).then_some((reply.rcode, self.zone.rcode)),
            only_server: if leads_out { Vec::new() } else { only(&theirs, &ours) },
            only_objects: only(&ours, &theirs),
        };
        (difference != Difference::default()).then_some(difference)
    }
}

/// A record without TTL, its owner in lower case.
fn identity(record: &Record) -> String {
    let owner = dns::wire::to_text(&record.owner).to_ascii_lowercase();
    format!("{owner} {} {}", type_text(record.rtype), record.data_text())
}

/// The name of a type.
pub(super) fn type_text(number: u16) -> String {
    rtype::text(number).map_or_else(|| format!("TYPE{number}"), str::to_owned)
}

/// The name of a response code.
pub(super) fn code_text(code: u16) -> String {
    match rcode::text(code) {
        "OTHER" => format!("RCODE{code}"),
        text => text.to_owned(),
    }
}
