//! Finite state machine of a session with one peer (RFC 4271, section 8). Pure: no clock, no socket.
//!
//! In: [`Event`]s, each with its time. Out: [`Action`]s for the connection, and [`Session::due`], the next timer.
//!
//! ```text
//! Idle ──due──▶ Connect ──connected──▶ OpenSent ──OPEN──▶ OpenConfirm ──KEEPALIVE──▶ Established
//!  ▲______________│________________________│__________________│__________________________│   on any error: exponential backoff
//! ```
//! We only open connections, so there are no connection collisions. Routes of the peer are counted and not used. We are
//! the restarting speaker of RFC 4724: rules stay in the kernel while the process is down, so the peer may keep our routes;
//! the first OPEN after a start has the restart bit, and the updates that follow end with End-of-RIB.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::time::Instant;

use super::reasons::Down;
use super::routes::{Hops, RouteAttributes};
use super::wire::open::AS_TRANS;
use super::wire::{self, Capability, Family, Message, Negotiated, Notification, Open, ReceivedUpdate, Restart, Update};

/// Timeout of a TCP connect. A peer with another password does not respond at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the OPEN of the peer.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
/// Backoff after the first failure, doubled after each further one, and its maximum.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Backoff after the prefix limit was exceeded: the configuration of the peer must be changed.
const PREFIX_LIMIT_BACKOFF: Duration = Duration::from_secs(600);
/// A session that was established for this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// Settings of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Our AS number.
    pub my_asn: u32,
    /// AS number of the peer.
    pub peer_asn: u32,
    /// Our router ID.
    pub id: Ipv4Addr,
    /// Proposed hold time in seconds.
    pub hold: u16,
    /// Graceful restart time in seconds; none disables graceful restart.
    pub restart: Option<u16>,
    /// Maximum number of prefixes of the peer.
    pub max_prefixes: usize,
    /// Communities of all routes.
    pub communities: Vec<u32>,
    /// LOCAL_PREF of all routes.
    pub local_pref: u32,
}

/// State of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// Waiting for the backoff.
    Idle,
    /// A connection is being opened.
    Connect,
    /// OPEN was sent.
    OpenSent,
    /// OPEN was sent and received.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
    /// Ended for good.
    Stopped,
}

/// Addresses to announce.
pub type Offer = Arc<BTreeSet<IpAddr>>;

/// How we end a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndMode {
    /// The session will be established again with the same routes: a peer with graceful restart gets no NOTIFICATION and
    /// keeps them.
    GracefulRestart,
    /// With a NOTIFICATION; the peer removes the routes.
    Cease(Notification),
}

/// An event of the state machine.
#[derive(Debug)]
pub enum Event<'a> {
    /// A timer is due.
    Timer,
    /// The connection is open; with the next hops of our routes.
    Connected(Hops),
    /// It could not be opened.
    Failed(Down),
    /// The connection was closed or failed.
    Closed(String),
    /// Bytes were received.
    Received(&'a [u8]),
    /// The addresses to announce changed.
    Offer(Offer),
    /// End the session.
    End(EndMode),
}

/// An action of the state machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Open a connection; respond with [`Event::Connected`] or [`Event::Failed`].
    Connect,
    /// Send a message.
    Send(Vec<u8>),
    /// Close the connection after pending messages were sent; or cancel the connect.
    Close,
    /// Report a change.
    Report(Report),
}

/// A change of the session, reported once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// Established.
    Up,
    /// Not established.
    Down(Down),
    /// An UPDATE with an error that does not end the session (RFC 7606).
    MalformedUpdate(&'static str),
}

/// A session.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    state: State,
    /// Deadline of the state: backoff, timeout or hold timer.
    until: Option<Instant>,
    /// When the next KEEPALIVE is due.
    keepalive: Option<Instant>,
    /// Negotiated hold time.
    hold: Option<Duration>,
    route_attributes: RouteAttributes,
    /// Address families of the peer.
    families: Vec<Family>,
    /// Whether the peer supports graceful restart.
    peer_keeps_routes: bool,
    offer: Offer,
    /// Announced addresses.
    sent: BTreeSet<IpAddr>,
    /// Prefixes of the peer.
    received: HashSet<IpNet>,
    /// Whether the peer requested a route refresh.
    refresh: bool,
    /// Bytes of an incomplete message.
    read_buffer: Vec<u8>,
    /// Whether no session was established since the process started.
    fresh: bool,
    since: Option<Instant>,
    failures: u32,
    reported: Option<Report>,
    /// Errors of UPDATEs that were reported.
    malformed: BTreeSet<&'static str>,
    rng: fastrand::Rng,
}

impl Session {
    /// A session that connects at once. `fresh`: no session with this peer was established since the process started. `seed`
    /// spreads the backoff of nodes.
    #[must_use]
    pub fn new(settings: Settings, offer: Offer, fresh: bool, seed: u64, now: Instant) -> Self {
        let negotiated = Negotiated { four_octet_as: true, internal: settings.my_asn == settings.peer_asn };
        let route_attributes = RouteAttributes {
            negotiated,
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
            route_attributes,
            families: Vec::new(),
            peer_keeps_routes: false,
            offer,
            sent: BTreeSet::new(),
            received: HashSet::new(),
            refresh: false,
            read_buffer: Vec::new(),
            fresh,
            since: None,
            failures: 0,
            reported: None,
            malformed: BTreeSet::new(),
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// Current state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Number of announced routes.
    #[must_use]
    pub fn announced(&self) -> usize {
        self.sent.len()
    }

    /// Number of prefixes of the peer.
    #[must_use]
    pub fn received(&self) -> usize {
        self.received.len()
    }

    /// Whether no session with this peer was established since the process started.
    #[must_use]
    pub const fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// When [`Event::Timer`] is due.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        [self.until, self.keepalive].into_iter().flatten().min()
    }

    /// Handles an event.
    pub fn on(&mut self, event: Event<'_>, now: Instant) -> Vec<Action> {
        let mut out = Vec::new();
        if self.state == State::Stopped {
            return out;
        }
        match event {
            Event::Timer => self.on_timer(now, &mut out),
            Event::Connected(hops) => self.connected(hops, now, &mut out),
            Event::Failed(why) => self.down(why, None, now, &mut out),
            Event::Closed(_) if self.state == State::OpenSent => self.down(Down::Rejected, None, now, &mut out),
            Event::Closed(why) => self.down(Down::Broken(why), None, now, &mut out),
            Event::Received(bytes) => self.receive(bytes, now, &mut out),
            Event::Offer(offer) => {
                self.offer = offer;
                self.send_updates(&mut out);
            }
            Event::End(mode) => self.end(&mode, &mut out),
        }
        out
    }

    fn on_timer(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.until.is_some_and(|until| until <= now) {
            match self.state {
                State::Idle => {
                    self.enter(State::Connect, Some(now + CONNECT_TIMEOUT));
                    out.push(Action::Connect);
                }
                State::Connect => self.down(Down::ConnectTimeout, None, now, out),
                _ => {
                    let timeout = self.hold.filter(|_| self.state > State::OpenSent).unwrap_or(OPEN_TIMEOUT);
                    self.down(Down::HoldTimerExpired(timeout.as_secs()), Some(Notification::HOLD_EXPIRED), now, out);
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
        self.route_attributes.hops = hops;
        self.enter(State::OpenSent, Some(now + OPEN_TIMEOUT));
        out.push(Action::Send(self.open().write()));
    }

    /// Our OPEN.
    fn open(&self) -> Open {
        let mut capabilities: Vec<Capability> = Family::OURS.map(Capability::Multiprotocol).into();
        capabilities.push(Capability::Refresh);
        capabilities.push(Capability::FourOctetAs(self.settings.my_asn));
        if let Some(seconds) = self.settings.restart {
            // Rules stay in the kernel, so packets are forwarded while the process is down.
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

    fn receive(&mut self, bytes: &[u8], now: Instant, out: &mut Vec<Action>) {
        self.read_buffer.extend(bytes);
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let mut rest = &buffer[..];
        while self.state > State::Connect && self.state < State::Stopped {
            let message = match wire::length(rest) {
                Ok(Some(length)) if length <= rest.len() => {
                    let (message, after) = rest.split_at(length);
                    rest = after;
                    wire::read(message, self.route_attributes.negotiated)
                }
                Ok(_) => {
                    let read = buffer.len() - rest.len();
                    buffer.drain(..read);
                    self.read_buffer = buffer;
                    if std::mem::take(&mut self.refresh) {
                        self.send_updates(out);
                    }
                    return;
                }
                Err(error) => Err(error),
            };
            match message {
                Ok(message) => self.handle(message, now, out),
                Err(error) => self.down(Down::ProtocolError(error.clone()), Some(error), now, out),
            }
        }
    }

    /// Handles a message.
    fn handle(&mut self, message: Message, now: Instant, out: &mut Vec<Action>) {
        if self.state > State::OpenSent {
            self.until = self.hold.map(|hold| now + hold);
        }
        match (self.state, message) {
            (_, Message::Notification(why)) => self.down(Down::Notified(why), None, now, out),
            (State::OpenSent, Message::Open(open)) => self.on_open(&open, now, out),
            (State::OpenConfirm, Message::Keepalive) => self.established(now, out),
            (State::Established, Message::Keepalive) => {}
            (State::Established, Message::Update(update)) => self.count(&update, now, out),
            // Sent after all buffered messages are handled, so that many requests cost one refresh.
            (State::Established, Message::Refresh(family)) => {
                self.sent.retain(|address| Family::of(*address) != family);
                self.refresh = true;
            }
            (state, _) => {
                let place = match state {
                    State::OpenSent => 1,
                    State::OpenConfirm => 2,
                    _ => 3,
                };
                let error = Notification::unexpected(place);
                self.down(Down::ProtocolError(error.clone()), Some(error), now, out);
            }
        }
    }

    /// Handles the OPEN of the peer.
    fn on_open(&mut self, open: &Open, now: Instant, out: &mut Vec<Action>) {
        let expected = self.settings.peer_asn;
        if open.asn() != expected {
            let why = Down::AsMismatch { expected, is: open.asn() };
            return self.down(why, Some(Notification::BAD_AS), now, out);
        }
        if self.route_attributes.negotiated.internal && open.id == self.settings.id {
            return self.down(Down::RouterIdConflict, Some(Notification::BAD_IDENTIFIER), now, out);
        }
        let hold = open.hold.min(self.settings.hold);
        self.hold = (hold > 0).then(|| Duration::from_secs(hold.into()));
        self.route_attributes.negotiated.four_octet_as = open.has_four_octet_as();
        self.families = Family::OURS.into_iter().filter(|family| open.supports(*family)).collect();
        self.peer_keeps_routes = open.restart().is_some();
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
        self.report(Report::Up, out);
        self.send_updates(out);
        for family in &self.families {
            out.push(Action::Send(Update::end_of_rib(*family).write(self.route_attributes.negotiated)));
        }
    }

    /// Sends the difference between announced and current addresses.
    fn send_updates(&mut self, out: &mut Vec<Action>) {
        if self.state != State::Established {
            return;
        }
        for family in self.families.iter().copied().filter(|family| self.route_attributes.hops.of(*family).is_some()) {
            let of_family = |address: &&IpAddr| Family::of(**address) == family;
            let withdrawn: Vec<IpAddr> = self.sent.difference(&self.offer).filter(of_family).copied().collect();
            let announced: Vec<IpAddr> = self.offer.difference(&self.sent).filter(of_family).copied().collect();
            let messages = self
                .route_attributes
                .withdraw(family, &withdrawn)
                .into_iter()
                .chain(self.route_attributes.announce(family, &announced));
            out.extend(messages.map(Action::Send));
            for address in withdrawn {
                self.sent.remove(&address);
            }
            self.sent.extend(announced);
        }
    }

    /// Counts the prefixes of the peer.
    fn count(&mut self, update: &ReceivedUpdate, now: Instant, out: &mut Vec<Action>) {
        if let Some(error) = &update.error
            && self.malformed.insert(error.what)
        {
            out.push(Action::Report(Report::MalformedUpdate(error.what)));
        }
        for network in update.withdrawn() {
            self.received.remove(&network);
        }
        let limit = self.settings.max_prefixes;
        for network in update.announced() {
            self.received.insert(network);
            if self.received.len() > limit {
                return self.down(Down::PrefixLimit(limit), Some(Notification::TOO_MANY_PREFIXES), now, out);
            }
        }
    }

    /// Closes the connection and backs off.
    fn down(&mut self, why: Down, notification: Option<Notification>, now: Instant, out: &mut Vec<Action>) {
        if self.state == State::Idle {
            return;
        }
        if let Some(notification) = notification.filter(|_| self.state > State::Connect) {
            out.push(Action::Send(notification.write()));
        }
        out.push(Action::Close);
        if self.since.take().is_some_and(|since| now.duration_since(since) >= STABLE_AFTER) {
            self.failures = 0;
        }
        let backoff = if matches!(why, Down::PrefixLimit(_)) { PREFIX_LIMIT_BACKOFF } else { self.backoff() };
        self.reset();
        self.enter(State::Idle, Some(now + backoff));
        self.report(Report::Down(why), out);
    }

    /// Exponential backoff with jitter.
    fn backoff(&mut self) -> Duration {
        let whole = INITIAL_BACKOFF.saturating_mul(1 << self.failures.min(10)).min(MAX_BACKOFF);
        self.failures = self.failures.saturating_add(1);
        whole.mul_f64(0.75 + self.rng.f64() / 4.0)
    }

    /// Resets the state of a connection.
    fn reset(&mut self) {
        self.sent.clear();
        self.received.clear();
        self.read_buffer.clear();
        self.families.clear();
        self.route_attributes.negotiated.four_octet_as = true;
        (self.hold, self.keepalive, self.peer_keeps_routes, self.refresh) = (None, None, false, false);
    }

    /// Reports a change, once.
    fn report(&mut self, report: Report, out: &mut Vec<Action>) {
        if self.reported.as_ref() != Some(&report) {
            self.reported = Some(report.clone());
            out.push(Action::Report(report));
        }
    }

    /// Ends the session for good.
    fn end(&mut self, mode: &EndMode, out: &mut Vec<Action>) {
        let keeps_routes =
            self.state == State::Established && self.peer_keeps_routes && self.settings.restart.is_some();
        let notification = match mode {
            // Without a NOTIFICATION the peer keeps the routes.
            EndMode::GracefulRestart if keeps_routes => None,
            EndMode::GracefulRestart => Some(Notification::shutdown("waypost stops on this node")),
            EndMode::Cease(why) => Some(why.clone()),
        };
        if let Some(notification) = notification.filter(|_| self.state > State::Connect) {
            out.push(Action::Send(notification.write()));
        }
        out.push(Action::Close);
        self.reset();
        self.enter(State::Stopped, None);
    }
}
