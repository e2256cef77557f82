//! Sessions with a scripted peer.

use super::super::wire::{Reach, Segment};
use super::*;

const V4: &str = "203.0.113.7";
const V6: &str = "2001:db8:1::7";

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn offer(addresses: &[&str]) -> Offer {
    Arc::new(addresses.iter().map(|text| address(text)).collect())
}

fn settings() -> Settings {
    Settings {
        my_asn: 64512,
        peer_asn: 64513,
        id: [192, 0, 2, 11].into(),
        hold: 90,
        restart: Some(120),
        max_prefixes: 3,
        communities: vec![0xfc00_0064],
        local_pref: 100,
    }
}

fn hops() -> Hops {
    Hops::new(address("192.0.2.11"), &[address("192.0.2.11"), address("2001:db8::11")])
}

/// The other side, and the time.
struct Table {
    session: Session,
    now: Instant,
    open: Open,
}

impl Table {
    fn with(settings: Settings, addresses: &[&str]) -> Self {
        let now = Instant::now();
        let capabilities = vec![
            Capability::Multiprotocol(Family::V4),
            Capability::Multiprotocol(Family::V6),
            Capability::Refresh,
            Capability::FourOctetAs(settings.peer_asn),
            Capability::Restart(Restart::default()),
        ];
        let my_as = u16::try_from(settings.peer_asn).unwrap_or(AS_TRANS);
        let open = Open { my_as, hold: 30, id: [192, 0, 2, 1].into(), capabilities };
        Self { session: Session::new(settings, offer(addresses), true, 7, now), now, open }
    }

    fn new(addresses: &[&str]) -> Self {
        Self::with(settings(), addresses)
    }

    fn on(&mut self, event: Event<'_>) -> Vec<Action> {
        self.session.on(event, self.now)
    }

    /// Lets time pass until something is due.
    fn wait(&mut self) -> (Duration, Vec<Action>) {
        let due = self.session.due().expect("something is due");
        let passed = due.saturating_duration_since(self.now);
        self.now += passed;
        (passed, self.on(Event::Timer))
    }

    fn receive(&mut self, bytes: &[u8]) -> Vec<Action> {
        self.on(Event::Received(bytes))
    }

    fn connect(&mut self) -> Vec<Action> {
        assert_eq!(self.wait().1, [Action::Connect]);
        self.on(Event::Connected(hops()))
    }

    /// Establishes the session; returns the actions.
    fn establish(&mut self) -> Vec<Action> {
        self.connect();
        let open = self.open.write();
        assert_eq!(self.receive(&open), [Action::Send(wire::keepalive())]);
        let actions = self.receive(&wire::keepalive());
        assert_eq!(self.session.state(), State::Established);
        actions
    }

    /// The networks of IPv4 that the peer announces.
    fn announce(&mut self, networks: &[&str]) -> Vec<Action> {
        let attributes = wire::Attributes {
            origin: Some(0),
            path: Some(vec![Segment { ordered: true, systems: vec![64513] }]),
            next_hop: Some([192, 0, 2, 1].into()),
            ..wire::Attributes::default()
        };
        let announced = networks.iter().map(|text| text.parse().expect("a network")).collect();
        let bytes =
            Update { attributes, announced, ..Update::default() }.write(self.session.route_attributes.negotiated);
        self.receive(&bytes)
    }
}

/// The UPDATEs among actions.
fn updates(actions: &[Action]) -> Vec<Update> {
    let negotiated = Negotiated { four_octet_as: true, internal: false };
    let sent = actions.iter().filter_map(|action| match action {
        Action::Send(bytes) => Some(wire::read(bytes, negotiated).expect("a message")),
        _ => None,
    });
    let taken = sent.filter_map(|message| match message {
        Message::Update(taken) => Some(taken.update),
        _ => None,
    });
    taken.collect()
}

/// The NOTIFICATION among actions.
fn sent_notification(actions: &[Action]) -> Option<Notification> {
    let negotiated = Negotiated { four_octet_as: true, internal: false };
    actions.iter().find_map(|action| match action {
        Action::Send(bytes) => match wire::read(bytes, negotiated).expect("a message") {
            Message::Notification(notification) => Some(notification),
            _ => None,
        },
        _ => None,
    })
}

fn reports(actions: &[Action]) -> Vec<&Report> {
    let reports = actions.iter().filter_map(|action| match action {
        Action::Report(report) => Some(report),
        _ => None,
    });
    reports.collect()
}

#[test]
fn a_session_comes_up_and_tells_all_routes_and_their_end() {
    let mut table = Table::new(&[V4, V6]);
    let actions = table.connect();
    let Action::Send(bytes) = &actions[0] else { panic!("{actions:?}") };
    let Ok(Message::Open(open)) = wire::read(bytes, Negotiated { four_octet_as: true, internal: false }) else {
        panic!("no OPEN")
    };
    let families = vec![(Family::V4, true), (Family::V6, true)];
    assert_eq!(open.restart(), Some(&Restart { restarted: true, seconds: 120, families }));
    assert_eq!((open.asn(), open.hold, open.supports(Family::V6)), (64512, 90, true));

    let open = table.open.write();
    table.receive(&open);
    let actions = table.receive(&wire::keepalive());
    assert_eq!(reports(&actions), [&Report::Up]);
    let updates = updates(&actions);
    let [v4, v6, end4, end6] = &updates[..] else { panic!("{updates:?}") };
    assert_eq!(v4.announced, ["203.0.113.7/32".parse().expect("a network")]);
    assert_eq!(v4.attributes.next_hop, Some([192, 0, 2, 11].into()));
    assert_eq!(v4.attributes.path, Some(vec![Segment { ordered: true, systems: vec![64512] }]));
    assert_eq!((&v4.attributes.communities[..], v4.attributes.local_pref), (&[0xfc00_0064][..], None));
    let reach = Reach {
        family: Family::V6,
        next_hop: address("2001:db8::11"),
        routes: vec!["2001:db8:1::7/128".parse().expect("a network")],
    };
    assert_eq!(v6.attributes.reach, Some(reach));
    assert_eq!((end4, end6), (&Update::end_of_rib(Family::V4), &Update::end_of_rib(Family::V6)));
}

#[test]
fn only_what_changes_is_said() {
    let mut table = Table::new(&[V4]);
    table.establish();
    assert_eq!(table.on(Event::Offer(offer(&[V4]))), []);
    let changed = updates(&table.on(Event::Offer(offer(&["203.0.113.8", V6]))));
    let [gone, come, v6] = &changed[..] else { panic!("{changed:?}") };
    assert_eq!(gone.withdrawn, ["203.0.113.7/32".parse().expect("a network")]);
    assert_eq!(come.announced, ["203.0.113.8/32".parse().expect("a network")]);
    assert!(v6.attributes.reach.is_some());
    let gone = updates(&table.on(Event::Offer(offer(&["203.0.113.8"]))));
    assert!(gone[0].attributes.unreach.is_some());
    assert_eq!(table.session.announced(), 1);
    let again = updates(&table.receive(&wire::refresh(Family::V4).repeat(100)));
    assert_eq!(again, std::slice::from_ref(come), "many requests at once cost one refresh");
}

#[test]
fn a_peer_of_ipv4_alone_hears_of_ipv4_alone() {
    let mut table = Table::new(&[V4, V6]);
    table.open.capabilities.clear();
    let actions = table.establish();
    let sent = actions.iter().filter(|action| matches!(action, Action::Send(_))).count();
    assert_eq!((sent, table.session.announced()), (2, 1), "a route and the end of routes");
}

#[test]
fn inside_of_a_system_routes_are_preferred_and_have_no_path() {
    let mut table = Table::with(Settings { peer_asn: 64512, local_pref: 200, ..settings() }, &[V4]);
    let actions = table.establish();
    let Action::Send(bytes) = &actions[1] else { panic!("{actions:?}") };
    let Ok(Message::Update(taken)) = wire::read(bytes, Negotiated { four_octet_as: true, internal: true }) else {
        panic!("no UPDATE")
    };
    let attributes = taken.update.attributes;
    assert_eq!((attributes.path, attributes.local_pref), (Some(Vec::new()), Some(200)));
}

#[test]
fn the_lower_hold_time_counts_and_silence_ends_it() {
    let mut table = Table::new(&[V4]);
    table.establish();
    for _ in 0..2 {
        let (passed, actions) = table.wait();
        assert_eq!((passed.as_secs(), actions), (10, vec![Action::Send(wire::keepalive())]));
    }
    table.receive(&wire::keepalive());
    let received = table.now;
    let actions = loop {
        let (_, actions) = table.wait();
        if actions != [Action::Send(wire::keepalive())] {
            break actions;
        }
    };
    assert_eq!(table.now.duration_since(received).as_secs(), 30);
    assert_eq!(sent_notification(&actions), Some(Notification::HOLD_EXPIRED));
    assert_eq!(reports(&actions), [&Report::Down(Down::HoldTimerExpired(30))]);
    assert!(Down::HoldTimerExpired(30).to_string().contains("hold timer"));
}

#[test]
fn pauses_grow_and_people_hear_of_each_reason_once() {
    let mut table = Table::new(&[]);
    let mut pauses = Vec::new();
    for attempt in 0..8 {
        let (passed, actions) = table.wait();
        pauses.push(passed.as_secs_f64());
        assert_eq!(actions, [Action::Connect]);
        let actions = table.on(Event::Failed(Down::Refused));
        let reports = reports(&actions).len();
        assert_eq!(reports, usize::from(attempt == 0), "{actions:?}");
    }
    for (pause, most) in pauses.iter().zip([0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]) {
        assert!((most * 0.75..=most).contains(pause), "{pauses:?}");
    }
    table.wait();
    let (passed, actions) = table.wait();
    assert_eq!(
        (passed, reports(&actions)),
        (CONNECT_TIMEOUT, vec![&Report::Down(Down::ConnectTimeout)]),
        "another reason"
    );
    assert!(Down::ConnectTimeout.to_string().contains("both sides must have the same"));
}

#[test]
fn a_session_that_lasted_is_tried_again_at_once_and_is_no_restart() {
    let mut table = Table::new(&[V4]);
    for _ in 0..5 {
        table.wait();
        table.on(Event::Failed(Down::Refused));
    }
    table.establish();
    table.now += STABLE_AFTER;
    let actions = table.on(Event::Closed("reset".to_owned()));
    assert_eq!(actions, [Action::Close, Action::Report(Report::Down(Down::Broken("reset".to_owned())))]);
    assert_eq!(table.session.announced(), 0, "who knows what the peer still has");
    let (passed, _) = table.wait();
    assert!(passed <= INITIAL_BACKOFF, "{passed:?}");
    let actions = table.on(Event::Connected(hops()));
    let Action::Send(bytes) = &actions[0] else { panic!("{actions:?}") };
    let Ok(Message::Open(open)) = wire::read(bytes, Negotiated { four_octet_as: true, internal: false }) else {
        panic!("no OPEN")
    };
    let restart = open.restart().expect("a restart");
    assert!(!restart.restarted && restart.families.iter().all(|(_, forwarded)| *forwarded));
}

#[test]
fn too_many_prefixes_end_it_for_long() {
    let mut table = Table::new(&[V4]);
    table.establish();
    assert_eq!(table.announce(&["10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16"]), []);
    assert_eq!(table.announce(&["10.0.0.0/8"]), [], "the same again is not one more");
    assert_eq!(table.session.received(), 3);
    let actions = table.announce(&["10.3.0.0/16"]);
    assert_eq!(sent_notification(&actions), Some(Notification::TOO_MANY_PREFIXES));
    assert_eq!(reports(&actions), [&Report::Down(Down::PrefixLimit(3))]);
    assert_eq!(table.wait().0, PREFIX_LIMIT_BACKOFF);
}

#[test]
fn the_wrong_peer_is_told_so() {
    let mut table = Table::new(&[]);
    table.connect();
    table.open.capabilities = vec![Capability::FourOctetAs(64999)];
    let open = table.open.write();
    let actions = table.receive(&open);
    assert_eq!(sent_notification(&actions), Some(Notification::BAD_AS));
    assert_eq!(reports(&actions), [&Report::Down(Down::AsMismatch { expected: 64513, is: 64999 })]);

    let mut twin = Table::with(Settings { peer_asn: 64512, ..settings() }, &[]);
    twin.connect();
    twin.open.id = settings().id;
    let open = twin.open.write();
    assert_eq!(sent_notification(&twin.receive(&open)), Some(Notification::BAD_IDENTIFIER));
}

#[test]
fn what_comes_at_the_wrong_time_or_makes_no_sense_ends_it() {
    let mut early = Table::new(&[]);
    early.connect();
    assert_eq!(sent_notification(&early.receive(&wire::keepalive())), Some(Notification::unexpected(1)));
    assert_eq!(early.receive(&wire::keepalive()), [], "nobody listens any more");
    let mut late = Table::new(&[]);
    late.establish();
    let open = late.open.write();
    assert_eq!(sent_notification(&late.receive(&open)), Some(Notification::unexpected(3)));
    let mut noise = Table::new(&[]);
    noise.establish();
    assert_eq!(
        sent_notification(&noise.receive(b"GET / HTTP/1.1\r\nHost: router\r\n")),
        Some(Notification::NOT_SYNCHRONIZED)
    );
    let mut shy = Table::new(&[]);
    shy.connect();
    assert_eq!(reports(&shy.on(Event::Closed(String::new()))), [&Report::Down(Down::Rejected)]);
}

#[test]
fn messages_may_come_in_any_pieces() {
    let mut table = Table::new(&[V4]);
    table.connect();
    let bytes = [
        table.open.write(),
        wire::keepalive(),
        wire::keepalive(),
        Update::end_of_rib(Family::V4).write(Negotiated { four_octet_as: true, internal: false }),
    ]
    .concat();
    let mut actions = Vec::new();
    for byte in bytes {
        actions.extend(table.receive(&[byte]));
    }
    assert_eq!(table.session.state(), State::Established);
    assert_eq!(reports(&actions), [&Report::Up]);
}

#[test]
fn who_comes_back_leaves_without_a_word_and_who_goes_says_so() {
    let ends = |farewell_of_ours: EndMode, change: fn(&mut Table)| {
        let mut table = Table::new(&[V4]);
        change(&mut table);
        table.establish();
        let actions = table.on(Event::End(farewell_of_ours));
        assert_eq!(actions.last(), Some(&Action::Close));
        assert_eq!((table.session.state(), table.session.due()), (State::Stopped, None));
        sent_notification(&actions)
    };
    assert_eq!(ends(EndMode::GracefulRestart, |_| {}), None, "silence keeps the routes");
    let forgets = ends(EndMode::GracefulRestart, |table| {
        table.open.capabilities.pop();
    });
    assert_eq!(forgets, Some(Notification::shutdown("waypost stops on this node")));
    let plain = ends(EndMode::GracefulRestart, |table| table.session.settings.restart = None);
    assert_eq!(plain.map(|notification| notification.is_cease()), Some(true));
    let gone = EndMode::Cease(Notification::DECONFIGURED);
    assert_eq!(ends(gone, |_| {}), Some(Notification::DECONFIGURED));
}

#[test]
fn a_faulty_update_is_told_once_and_counts_as_withdrawn() {
    let mut table = Table::new(&[]);
    table.establish();
    table.announce(&["10.0.0.0/8"]);
    let announced = vec!["10.0.0.0/8".parse().expect("a network")];
    let faulty = Update { announced, ..Update::default() }.write(table.session.route_attributes.negotiated);
    let actions = table.receive(&faulty);
    assert!(matches!(actions[..], [Action::Report(Report::MalformedUpdate(_))]), "{actions:?}");
    assert_eq!((table.session.received(), table.receive(&faulty)), (0, Vec::new()));
}
