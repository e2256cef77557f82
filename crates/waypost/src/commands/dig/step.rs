//! One question of the walk: what the objects say, what a server says, and whether that is the same.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::Context as _;
use dns::explain::{Explained, Explanation};
use dns::snapshot::ZoneSnapshot;
use dns::wire::{Record, rcode, rtype};

use super::ask::{self, Reply};

/// A question and its answers.
#[derive(Debug)]
pub(super) struct Step {
    /// The name, with a dot at its end.
    pub(super) name: String,
    /// The type.
    pub(super) qtype: u16,
    /// What the objects say.
    pub(super) book: Explanation,
    /// What the server says, or why it does not.
    pub(super) server: Option<Result<Reply, String>>,
}

/// What a server says otherwise than the objects.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Difference {
    /// The codes, when they differ: of the server and of the objects.
    pub(super) codes: Option<(u16, u16)>,
    /// Records that only the server has.
    pub(super) only_server: Vec<String>,
    /// Records that only the objects have.
    pub(super) only_objects: Vec<String>,
}

impl Step {
    /// Asks for a name.
    pub(super) async fn take(
        book: &ZoneSnapshot,
        name: &str,
        qtype: u16,
        server: Option<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let explained = book.explain(name, qtype);
        let explained =
            explained.with_context(|| format!("{name:?} cannot be asked for; labels have 1 to 63 bytes, names 253"))?;
        let server = match server {
            Some(server) => Some(ask::ask(server, name, qtype).await.map_err(|error| format!("{error:#}"))),
            None => None,
        };
        Ok(Self { name: name.to_owned(), qtype, book: explained, server })
    }

    /// Whether a record was found, by the objects or by the server.
    pub(super) fn is_found(&self) -> bool {
        !self.book.answer.is_empty() || matches!(&self.server, Some(Ok(reply)) if !reply.answer.is_empty())
    }

    /// Whether a server was asked in vain.
    pub(super) const fn is_unanswered(&self) -> bool {
        matches!(self.server, Some(Err(_)))
    }

    /// Whether the objects say nothing at all, because the name is not theirs.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.book.forwarded.is_some() && self.book.answer.is_empty()
    }

    /// What the server says otherwise. Whatever others add to an alias that leads out is theirs.
    pub(super) fn difference(&self) -> Option<Difference> {
        let Some(Ok(reply)) = &self.server else { return None };
        if self.is_elsewhere() {
            return None;
        }
        let ours: BTreeSet<String> = self.book.answer.iter().map(|Explained { record, .. }| identity(record)).collect();
        let theirs: BTreeSet<String> = reply.answer.iter().map(identity).collect();
        let leads_out = self.book.forwarded.is_some();
        let only = |these: &BTreeSet<String>, those| these.difference(those).cloned().collect::<Vec<_>>();
        let difference = Difference {
            codes: (!leads_out && reply.rcode != self.book.rcode).then_some((reply.rcode, self.book.rcode)),
            only_server: if leads_out { Vec::new() } else { only(&theirs, &ours) },
            only_objects: only(&ours, &theirs),
        };
        (difference != Difference::default()).then_some(difference)
    }
}

/// A record without what may differ: its time, and how its owner is spelled.
fn identity(record: &Record) -> String {
    let owner = dns::wire::to_text(&record.owner).to_ascii_lowercase();
    format!("{owner} {} {}", type_text(record.rtype), record.data_text())
}

/// How a type is written.
pub(super) fn type_text(number: u16) -> String {
    rtype::text(number).map_or_else(|| format!("TYPE{number}"), str::to_owned)
}

/// How a code is written.
pub(super) fn code_text(code: u16) -> String {
    match rcode::text(code) {
        "OTHER" => format!("RCODE{code}"),
        text => text.to_owned(),
    }
}
