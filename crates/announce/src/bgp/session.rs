//! A session with one peer, as a machine of states: no clock, no socket.
//!
//! In: [`Event`]s, each with its time. Out: [`Action`]s for whoever has the connection, and [`Session::due`], when to come again.
//!
//! ```text
//! Idle ──due──▶ Connect ──connected──▶ OpenSent ──OPEN──▶ OpenConfirm ──KEEPALIVE──▶ Established
//!  ▲______________│________________________│__________________│__________________________│   whatever goes wrong: a pause, longer each time
//! ```
//! We open connections and take none, so there are no two of them that collide. What the peer announces is counted and forgotten: nodes
//! have their own routes. We are the one that restarts (RFC 4724): rules stay in the kernel while this program is away, so a peer may keep
//! our routes; after a start we say so once, tell all routes again, and mark their end.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::time::Instant;

use super::reasons::Down;
use super::routes::{Hops, Manner};
use super::wire::open::AS_TRANS;
use super::wire::{self, Capability, Family, Message, Notification, Open, Restart, Taken, Terms, Update};

/// How long a connection may take to open. A peer with another password does not answer at all.
const CONNECTING: Duration = Duration::from_secs(10);
/// How long a peer may take to say who it is.
const INTRODUCING: Duration = Duration::from_secs(60);
/// The pause after a failure, and the longest one after many.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The pause after a peer has told us of too many networks: somebody has to change something.
const LONG_PAUSE: Duration = Duration::from_secs(600);
/// A session that lasted so long was a good one: failures before it count no more.
const LASTING: Duration = Duration::from_secs(30);

/// What a session is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Our autonomous system.
    pub my_asn: u32,
    /// That of the peer.
    pub peer_asn: u32,
    /// Our name among routers.
    pub id: Ipv4Addr,
    /// How many seconds of silence are fine.
    pub hold: u16,
    /// For how many seconds a peer should keep our routes while this program is away.
    pub restart: Option<u16>,
    /// How many networks a peer may tell us of.
    pub max_prefixes: usize,
    /// Communities of all routes.
    pub communities: Vec<u32>,
    /// How much they are preferred.
    pub local_pref: u32,
}

/// Where a session is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// Nothing is tried until a pause is over.
    Idle,
    /// A connection is being opened.
    Connect,
    /// We have said who we are.
    OpenSent,
    /// Both have.
    OpenConfirm,
    /// Routes are told.
    Established,
    /// It is over for good.
    Stopped,
}

/// Addresses to announce.
pub type Offer = Arc<BTreeSet<IpAddr>>;

/// How a session is ended from our side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Farewell {
    /// We come back soon, with the same routes: a peer that can keep them is not told to forget them.
    ComeBack,
    /// We go for good; routes go with us.
    Leave(Notification),
}

/// What happens.
#[derive(Debug)]
pub enum Event<'a> {
    /// Time has passed.
    Time,
    /// The connection is open; packets for us go there.
    Connected(Hops),
    /// It could not be opened.
    Failed(Down),
    /// The peer hung up, or the connection broke.
    Closed(String),
    /// Bytes came.
    Heard(&'a [u8]),
    /// Other addresses are to be announced.
    Offer(Offer),
    /// It is to end.
    End(Farewell),
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Open a connection; answer with [`Event::Connected`] or [`Event::Failed`].
    Connect,
    /// Send this.
    Send(Vec<u8>),
    /// Close the connection, when all is sent that was to be sent before; or give up opening it.
    Close,
    /// Tell people.
    Tell(Report),
}

/// What people are told, once for each change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// It stands.
    Up,
    /// It does not.
    Down(Down),
    /// The peer said something that is wrong, but not wrong enough to end the session.
    Odd(&'static str),
}

/// A session.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    state: State,
    /// When the present state is over: a pause, a patience, the hold timer. Nothing: never.
    until: Option<Instant>,
    /// When to say that we are still here.
    keepalive: Option<Instant>,
    /// How long silence is fine, as both agreed.
    hold: Option<Duration>,
    manner: Manner,
    /// What the peer takes.
    families: Vec<Family>,
    /// Whether the peer keeps routes of those who restart.
    keeps: bool,
    offer: Offer,
    /// What the peer has from us.
    sent: BTreeSet<IpAddr>,
    /// What we have from the peer.
    heard: HashSet<IpNet>,
    /// Whether the peer asked to be told again.
    again: bool,
    /// Bytes of a message that is not complete.
    inbox: Vec<u8>,
    /// Whether no session has stood since this program began.
    fresh: bool,
    since: Option<Instant>,
    failures: u32,
    told: Option<Report>,
    /// Which oddities people were told of.
    odd: BTreeSet<&'static str>,
    luck: fastrand::Rng,
}

impl Session {
    /// A session that begins at once. `fresh`: the first with this peer since this program began. `seed` keeps nodes apart that begin
    /// together.
    #[must_use]
    pub fn new(settings: Settings, offer: Offer, fresh: bool, seed: u64, now: Instant) -> Self {
        let terms = Terms { wide: true, internal: settings.my_asn == settings.peer_asn };
        let manner = Manner {
            terms,
            asn: settings.my_asn,
            local_pref: settings.local_pref,
            communities: settings.communities.clone(),
            hops: Hops::default(),
        };
        Self {
            settings,
            state: State::Idle,
            until: Some(now),
            keepalive: None,
            hold: None,
            manner,
            families: Vec::new(),
            keeps: false,
            offer,
            sent: BTreeSet::new(),
            heard: HashSet::new(),
            again: false,
            inbox: Vec::new(),
            fresh,
            since: None,
            failures: 0,
            told: None,
            odd: BTreeSet::new(),
            luck: fastrand::Rng::with_seed(seed),
        }
    }

    /// Where it is.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// How many routes the peer has from us.
    #[must_use]
    pub fn announced(&self) -> usize {
        self.sent.len()
    }

    /// How many networks the peer told us of.
    #[must_use]
    pub fn received(&self) -> usize {
        self.heard.len()
    }

    /// Whether no session with this peer has stood since this program began.
    #[must_use]
    pub const fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// When [`Event::Time`] is due.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        [self.until, self.keepalive].into_iter().flatten().min()
    }

    /// Something happens.
    pub fn on(&mut self, event: Event<'_>, now: Instant) -> Vec<Action> {
        let mut out = Vec::new();
        if self.state == State::Stopped {
            return out;
        }
        match event {
            Event::Time => self.time(now, &mut out),
            Event::Connected(hops) => self.connected(hops, now, &mut out),
            Event::Failed(why) => self.down(why, None, now, &mut out),
            Event::Closed(_) if self.state == State::OpenSent => self.down(Down::Rejected, None, now, &mut out),
            Event::Closed(why) => self.down(Down::Broken(why), None, now, &mut out),
            Event::Heard(bytes) => self.hear(bytes, now, &mut out),
            Event::Offer(offer) => {
                self.offer = offer;
                self.say(&mut out);
            }
            Event::End(farewell) => self.end(&farewell, &mut out),
        }
        out
    }

    fn time(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.until.is_some_and(|until| until <= now) {
            match self.state {
                State::Idle => {
                    self.enter(State::Connect, Some(now + CONNECTING));
                    out.push(Action::Connect);
                }
                State::Connect => self.down(Down::NoAnswer, None, now, out),
                _ => {
                    let patience = self.hold.filter(|_| self.state > State::OpenSent).unwrap_or(INTRODUCING);
                    self.down(Down::Silent(patience.as_secs()), Some(Notification::HOLD_EXPIRED), now, out);
                }
            }
        }
        if let (Some(at), Some(hold)) = (self.keepalive, self.hold)
            && at <= now
        {
            self.keepalive = Some(now + hold / 3);
            out.push(Action::Send(wire::keepalive()));
        }
    }

    fn enter(&mut self, state: State, until: Option<Instant>) {
        (self.state, self.until) = (state, until);
    }

    fn connected(&mut self, hops: Hops, now: Instant, out: &mut Vec<Action>) {
        if self.state != State::Connect {
            return;
        }
        self.manner.hops = hops;
        self.enter(State::OpenSent, Some(now + INTRODUCING));
        out.push(Action::Send(self.open().write()));
    }

    /// Who we are.
    fn open(&self) -> Open {
        let mut capabilities: Vec<Capability> = Family::OURS.map(Capability::Multiprotocol).into();
        capabilities.push(Capability::Refresh);
        capabilities.push(Capability::Wide(self.settings.my_asn));
        if let Some(seconds) = self.settings.restart {
            // Rules stay in the kernel whatever becomes of this program, so packets are always forwarded.
            let families = Family::OURS.map(|family| (family, true)).into();
            capabilities.push(Capability::Restart(Restart { restarted: self.fresh, seconds, families }));
        }
        Open {
            my_as: u16::try_from(self.settings.my_asn).unwrap_or(AS_TRANS),
            hold: self.settings.hold,
            id: self.settings.id,
            capabilities,
        }
    }

    fn hear(&mut self, bytes: &[u8], now: Instant, out: &mut Vec<Action>) {
        self.inbox.extend(bytes);
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut rest = &inbox[..];
        while self.state > State::Connect && self.state < State::Stopped {
            let message = match wire::length(rest) {
                Ok(Some(length)) if length <= rest.len() => {
                    let (message, after) = rest.split_at(length);
                    rest = after;
                    wire::read(message, self.manner.terms)
                }
                Ok(_) => {
                    let read = inbox.len() - rest.len();
                    inbox.drain(..read);
                    self.inbox = inbox;
                    if std::mem::take(&mut self.again) {
                        self.say(out);
                    }
                    return;
                }
                Err(fault) => Err(fault),
            };
            match message {
                Ok(message) => self.take(message, now, out),
                Err(fault) => self.down(Down::Fault(fault.clone()), Some(fault), now, out),
            }
        }
    }

    /// Takes a message.
    fn take(&mut self, message: Message, now: Instant, out: &mut Vec<Action>) {
        if self.state > State::OpenSent {
            self.until = self.hold.map(|hold| now + hold);
        }
        match (self.state, message) {
            (_, Message::Notification(why)) => self.down(Down::Told(why), None, now, out),
            (State::OpenSent, Message::Open(open)) => self.introduced(&open, now, out),
            (State::OpenConfirm, Message::Keepalive) => self.established(now, out),
            (State::Established, Message::Keepalive) => {}
            (State::Established, Message::Update(taken)) => self.count(&taken, now, out),
            // Told again when all that came with it is read: who asks a hundred times at once is answered once.
            (State::Established, Message::Refresh(family)) => {
                self.sent.retain(|address| Family::of(*address) != family);
                self.again = true;
            }
            (state, _) => {
                let place = match state {
                    State::OpenSent => 1,
                    State::OpenConfirm => 2,
                    _ => 3,
                };
                let fault = Notification::unexpected(place);
                self.down(Down::Fault(fault.clone()), Some(fault), now, out);
            }
        }
    }

    /// The peer says who it is.
    fn introduced(&mut self, open: &Open, now: Instant, out: &mut Vec<Action>) {
        let expected = self.settings.peer_asn;
        if open.asn() != expected {
            let why = Down::OtherSystem { expected, is: open.asn() };
            return self.down(why, Some(Notification::BAD_AS), now, out);
        }
        if self.manner.terms.internal && open.id == self.settings.id {
            return self.down(Down::SameIdentifier, Some(Notification::BAD_IDENTIFIER), now, out);
        }
        let hold = open.hold.min(self.settings.hold);
        self.hold = (hold > 0).then(|| Duration::from_secs(hold.into()));
        self.manner.terms.wide = open.is_wide();
        self.families = Family::OURS.into_iter().filter(|family| open.takes(*family)).collect();
        self.keeps = open.restart().is_some();
        self.keepalive = self.hold.map(|hold| now + hold / 3);
        let until = self.hold.map(|hold| now + hold);
        self.enter(State::OpenConfirm, until);
        out.push(Action::Send(wire::keepalive()));
    }

    fn established(&mut self, now: Instant, out: &mut Vec<Action>) {
        let until = self.until;
        self.enter(State::Established, until);
        self.since = Some(now);
        self.fresh = false;
        self.tell(Report::Up, out);
        self.say(out);
        for family in &self.families {
            out.push(Action::Send(Update::end_of_rib(*family).write(self.manner.terms)));
        }
    }

    /// Says what the peer does not know yet of what is offered.
    fn say(&mut self, out: &mut Vec<Action>) {
        if self.state != State::Established {
            return;
        }
        for family in self.families.iter().copied().filter(|family| self.manner.hops.of(*family).is_some()) {
            let of_family = |address: &&IpAddr| Family::of(**address) == family;
            let go: Vec<IpAddr> = self.sent.difference(&self.offer).filter(of_family).copied().collect();
            let come: Vec<IpAddr> = self.offer.difference(&self.sent).filter(of_family).copied().collect();
            let messages = self.manner.withdraw(family, &go).into_iter().chain(self.manner.announce(family, &come));
            out.extend(messages.map(Action::Send));
            for address in go {
                self.sent.remove(&address);
            }
            self.sent.extend(come);
        }
    }

    /// Counts what the peer announces.
    fn count(&mut self, taken: &Taken, now: Instant, out: &mut Vec<Action>) {
        if let Some(fault) = &taken.fault
            && self.odd.insert(fault.what)
        {
            out.push(Action::Tell(Report::Odd(fault.what)));
        }
        for network in taken.withdrawn() {
            self.heard.remove(&network);
        }
        let limit = self.settings.max_prefixes;
        for network in taken.announced() {
            self.heard.insert(network);
            if self.heard.len() > limit {
                return self.down(Down::TooMany(limit), Some(Notification::TOO_MANY_PREFIXES), now, out);
            }
        }
    }

    /// The session is down, or did not come up.
    fn down(&mut self, why: Down, last_words: Option<Notification>, now: Instant, out: &mut Vec<Action>) {
        if self.state == State::Idle {
            return;
        }
        if let Some(words) = last_words.filter(|_| self.state > State::Connect) {
            out.push(Action::Send(words.write()));
        }
        out.push(Action::Close);
        if self.since.take().is_some_and(|since| now.duration_since(since) >= LASTING) {
            self.failures = 0;
        }
        let pause = if matches!(why, Down::TooMany(_)) { LONG_PAUSE } else { self.pause() };
        self.forget();
        self.enter(State::Idle, Some(now + pause));
        self.tell(Report::Down(why), out);
    }

    /// The pause after a failure: longer each time, and never the same for all nodes.
    fn pause(&mut self) -> Duration {
        let whole = PAUSE.saturating_mul(1 << self.failures.min(10)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        whole.mul_f64(0.75 + self.luck.f64() / 4.0)
    }

    /// Forgets what belongs to a connection.
    fn forget(&mut self) {
        self.sent.clear();
        self.heard.clear();
        self.inbox.clear();
        self.families.clear();
        self.manner.terms.wide = true;
        (self.hold, self.keepalive, self.keeps, self.again) = (None, None, false, false);
    }

    /// Tells people what they have not been told last.
    fn tell(&mut self, report: Report, out: &mut Vec<Action>) {
        if self.told.as_ref() != Some(&report) {
            self.told = Some(report.clone());
            out.push(Action::Tell(report));
        }
    }

    /// Ends it for good.
    fn end(&mut self, farewell: &Farewell, out: &mut Vec<Action>) {
        let stays = self.state == State::Established && self.keeps && self.settings.restart.is_some();
        let words = match farewell {
            // Silence is what keeps the routes.
            Farewell::ComeBack if stays => None,
            Farewell::ComeBack => Some(Notification::shutdown("waypost stops on this node")),
            Farewell::Leave(why) => Some(why.clone()),
        };
        if let Some(words) = words.filter(|_| self.state > State::Connect) {
            out.push(Action::Send(words.write()));
        }
        out.push(Action::Close);
        self.forget();
        self.enter(State::Stopped, None);
    }
}
