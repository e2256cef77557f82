//! The resolver as the one who stands beyond our names, and our names as the resolver sees them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Known, Local, Resolver};
use crate::answer::{Chase, Outcome, Scratch};
use crate::beyond::{Beyond, Ends, Later, Lookup, Question, Ruling, Transport};
use crate::book::Book;
use crate::config::Name;
use crate::wire::rcode;

impl Beyond for Resolver {
    fn cached(&self, question: &Question<'_>, now: Instant, out: &mut Vec<u8>) -> bool {
        Self::cached(self, question, now, out)
    }

    fn resolve<'a>(&'a self, question: Question<'a>) -> Later<'a, Vec<u8>> {
        let me = self.me.upgrade();
        Box::pin(async move {
            match me {
                Some(me) => Self::resolve(&me, question).await,
                // It is being dropped; whoever waits is, too.
                None => Vec::new(),
            }
        })
    }

    fn lookup<'a>(&'a self, name: &'a [u8], qtype: u16, ends: Ends) -> Later<'a, Lookup> {
        let me = self.me.upgrade();
        Box::pin(async move {
            match me {
                Some(me) => Self::lookup(&me, name, qtype, ends).await,
                None => Lookup { rcode: rcode::SERVFAIL, ..Lookup::default() },
            }
        })
    }

    fn has_rules(&self) -> bool {
        self.rules_ours
    }

    fn rule(&self, question: &Question<'_>, now: Instant, out: &mut Vec<u8>) -> Ruling {
        self.ruling(question, now, out)
    }

    fn logs(&self) -> bool {
        self.logs
    }

    fn log(&self, question: &Question<'_>, reply: &[u8], took: Duration) {
        self.log_question(question, reply, took);
    }

    fn walks(&self, question: &Question<'_>) -> bool {
        self.walks && self.has_search_path(question)
    }
}

/// Our own names, for rewrites that lead to them and for search paths.
pub struct Ours {
    /// The names.
    pub book: Arc<Book>,
    /// The domains that follow the namespace of a Pod in its search path: those of the cluster, then those of the host.
    pub domains: Vec<Name>,
}

impl Local for Ours {
    fn answer(&self, message: &[u8]) -> Known {
        let (mut scratch, mut out) = (Scratch::new(fastrand::u32(..)), Vec::new());
        // As long as it is: what does not fit is cut where it is sent.
        match self.book.answer(message, Transport::Tcp, &mut scratch, &mut out) {
            Outcome::Reply | Outcome::Unready => Known::All(out),
            Outcome::Chase(chase) => Known::Alias(chase),
            Outcome::Silent | Outcome::Beyond => Known::Nothing,
        }
    }

    fn followed(&self, message: &[u8], chase: &Chase, found: &Lookup) -> Vec<u8> {
        let mut out = Vec::new();
        self.book.chased(message, Transport::Tcp, chase, found, &mut out);
        out
    }

    fn search_path(&self, client: IpAddr) -> Option<Vec<Name>> {
        let namespace = self.book.namespace_of(client)?;
        let zone = self.domains.first()?;
        let own = Name::parse(&format!("{namespace}.svc.{zone}")).ok()?;
        let services = Name::parse(&format!("svc.{zone}")).ok()?;
        Some([own, services].into_iter().chain(self.domains.iter().cloned()).collect())
    }
}
