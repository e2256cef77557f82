//! The seam to whoever answers names that are not ours.
//!
//! In: a question as it came. Out: a complete reply, at once from what is remembered or later from others; or only the
//! records of a name, for an alias of ours that leads out; or what rules say to a question for a name of ours.
//! [`Nobody`] stands where nobody is configured.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::wire::{Query, Record, Reply, UDP_MIN, rcode, refuse};

/// How a question came.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// In a datagram.
    Udp,
    /// Through a connection.
    Tcp,
}

/// Who asks, and whom: blocks of a configuration belong to addresses and ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// Who asks.
    pub client: IpAddr,
    /// From which port.
    pub port: u16,
    /// Where we listen for it, as it was configured: for all addresses that is none in particular.
    pub at: SocketAddr,
}

impl Ends {
    /// Of a conversation between another one and a listener.
    #[must_use]
    pub fn new(peer: SocketAddr, at: SocketAddr) -> Self {
        Self { client: peer.ip().to_canonical(), port: peer.port(), at }
    }
}

impl From<IpAddr> for Ends {
    /// Somebody whose question did not come through a listener.
    fn from(client: IpAddr) -> Self {
        Self { client, port: 0, at: SocketAddr::from(([0, 0, 0, 0], 0)) }
    }
}

/// A question that is not, or not only, ours.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The whole message as it came.
    pub message: &'a [u8],
    /// Between whom.
    pub ends: Ends,
    /// How.
    pub transport: Transport,
}

/// What is known of a name elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lookup {
    /// How it went.
    pub rcode: u16,
    /// Whether records were left out.
    pub truncated: bool,
    /// The answer, in its order.
    pub records: Vec<Record>,
}

/// What rules say to a question for a name of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ruling {
    /// Nothing: it is answered as it would be without them.
    Pass,
    /// What is written now, which may be nothing at all.
    Said,
    /// It is answered by whoever stands beyond.
    Beyond,
}

/// An answer that comes later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whoever answers names that are not ours.
pub trait Beyond: Send + Sync {
    /// From memory, at once, into `out`; false when somebody must be asked.
    fn cached(&self, question: &Question<'_>, now: Instant, out: &mut Vec<u8>) -> bool;

    /// Asks whoever knows, and always has an answer, within limits. An empty one means that nothing is to be said.
    fn resolve<'a>(&'a self, question: Question<'a>) -> Later<'a, Vec<u8>>;

    /// The records of a name, which is on the wire.
    fn lookup<'a>(&'a self, name: &'a [u8], qtype: u16, ends: Ends) -> Later<'a, Lookup>;

    /// Whether there are rules for names of ours at all. It is asked once for many questions, and stays as it is.
    fn has_rules(&self) -> bool {
        false
    }

    /// What these rules say to a question for a name of ours, whose answer is in `out` and stays there unless they say
    /// something else.
    fn rule(&self, _question: &Question<'_>, _now: Instant, _out: &mut Vec<u8>) -> Ruling {
        Ruling::Pass
    }

    /// Whether questions are to be logged at all. It is asked once for many questions, and stays as it is.
    fn logs(&self) -> bool {
        false
    }

    /// Logs a question and what was said to it, which may be nothing, if such questions are to be.
    fn log(&self, _question: &Question<'_>, _reply: &[u8], _took: Duration) {}

    /// Whether it walks the search path of who asks, so that a name of ours that is not there is its business.
    fn walks(&self, _question: &Question<'_>) -> bool {
        false
    }
}

/// Nobody: what is not ours is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Beyond for Nobody {
    fn cached(&self, question: &Question<'_>, _now: Instant, out: &mut Vec<u8>) -> bool {
        match Query::parse(question.message) {
            Ok(query) => Reply::begin(out, &query, UDP_MIN).finish(rcode::REFUSED, 0),
            Err(refusal) => return refuse(question.message, refusal, out),
        }
        true
    }

    fn resolve<'a>(&'a self, question: Question<'a>) -> Later<'a, Vec<u8>> {
        let mut out = Vec::new();
        self.cached(&question, Instant::now(), &mut out);
        Box::pin(std::future::ready(out))
    }

    fn lookup<'a>(&'a self, _name: &'a [u8], _qtype: u16, _ends: Ends) -> Later<'a, Lookup> {
        Box::pin(std::future::ready(Lookup { rcode: rcode::REFUSED, ..Lookup::default() }))
    }
}
