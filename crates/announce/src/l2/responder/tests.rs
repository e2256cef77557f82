//! Machines on one simulated link.

use kernel::packets::fake::{Host, INDEX, Segment};
use kernel::packets::{Packets as _, Received};

use super::super::frame::solicited_node;
use super::*;

const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
const B: Mac = Mac([2, 0, 0, 0, 0, 2]);
const CLIENT: Mac = Mac([2, 0, 0, 0, 0, 9]);

fn ip(v6: bool) -> IpAddr {
    if v6 { "2001:db8::7".parse().expect("an address") } else { IpAddr::from([192, 0, 2, 7]) }
}

struct Machine {
    host: Host,
    responder: Responder,
    claims: Claims,
    notices: Vec<Notice>,
}

impl Machine {
    fn new(segment: &Segment, mac: Mac) -> Self {
        let mut host = segment.host(mac);
        let mut responder = Responder::default();
        responder.set_interfaces(host.interfaces().expect("one"), &mut Vec::new());
        Self { host, responder, claims: Claims::default(), notices: Vec::new() }
    }

    fn claim(&mut self, ip: IpAddr, until: Duration) {
        let generation = self.claims.addresses.get(&ip).copied().unwrap_or(0) + 1;
        self.claims.addresses.insert(ip, generation);
        self.claims.until = until;
        if let IpAddr::V6(v6) = ip {
            self.host.join(INDEX, solicited_node(v6)).expect("joined");
        }
    }

    /// Polls, and handles received frames.
    fn run(&mut self) {
        let (now, mut actions) = (self.host.now(), Vec::new());
        self.responder.poll(&self.claims, now, &mut actions);
        while let Received::Frame(interface, bytes) = self.host.receive(Some(Duration::ZERO)).expect("received") {
            self.responder.on_frame(&self.claims, interface, &bytes, now, &mut actions);
        }
        for action in actions {
            match action {
                Action::Send(interface, frame) => self.host.send(interface, &frame).expect("sent"),
                Action::Notify(notice) => self.notices.push(notice),
            }
        }
    }
}

/// Lets time pass for all.
fn pass(segment: &Segment, from: u64, to: u64, machines: &mut [&mut Machine]) {
    for now in from..to {
        segment.set_time(Duration::from_millis(now));
        machines.iter_mut().for_each(|machine| machine.run());
    }
}

/// Machines that reply to a request.
fn who_has(client: &mut Host, ip: IpAddr, machines: &mut [&mut Machine]) -> Vec<Mac> {
    let sender: IpAddr = if ip.is_ipv6() { "2001:db8::9".parse().expect("one") } else { IpAddr::from([192, 0, 2, 9]) };
    let question = match (ip, sender) {
        (IpAddr::V4(ip), IpAddr::V4(sender)) => [
            &[0xff; 6][..],
            &CLIENT.0,
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &CLIENT.0,
            &sender.octets(),
            &[0; 6],
            &ip.octets(),
        ]
        .concat(),
        _ => frame::probe(CLIENT, ip),
    };
    client.send(INDEX, &question).expect("asked");
    machines.iter_mut().for_each(|machine| machine.run());
    let mut found = Vec::new();
    while let Received::Frame(_, bytes) = client.receive(Some(Duration::ZERO)).expect("received") {
        found.extend(frame::read(&bytes).into_iter().flatten().filter_map(|message| match message {
            Message::Announcement { address, mac } if address == ip => Some(mac),
            _ => None,
        }));
    }
    found
}

fn drain(host: &mut Host) {
    while host.receive(Some(Duration::ZERO)).expect("received") != Received::Timeout {}
}

#[test]
fn an_address_is_probed_then_announced_then_answered_for() {
    for (v6, forms) in [(false, 2), (true, 1)] {
        let segment = Segment::default();
        let (mut a, mut client) = (Machine::new(&segment, A), segment.host(CLIENT));
        a.claim(ip(v6), Duration::from_secs(100));
        pass(&segment, 0, 200, &mut [&mut a]);
        assert_eq!((segment.sent().len(), a.responder.announced()), (3, 0), "asked thrice, and silent");
        pass(&segment, 200, 7000, &mut [&mut a]);
        assert_eq!(a.notices, [Notice::Announced(ip(v6))]);
        assert_eq!(segment.sent().len(), 5 * forms, "five rounds");
        drain(&mut client);
        assert_eq!(who_has(&mut client, ip(v6), &mut [&mut a]), [A]);
    }
}

#[test]
fn no_reply_before_the_probes_are_complete() {
    let segment = Segment::default();
    let (mut a, mut client) = (Machine::new(&segment, A), segment.host(CLIENT));
    a.claim(ip(false), Duration::from_secs(100));
    pass(&segment, 0, 200, &mut [&mut a]);
    drain(&mut client);
    assert_eq!(who_has(&mut client, ip(false), &mut [&mut a]), []);
}

#[test]
fn a_duplicate_address_is_not_announced() {
    for v6 in [false, true] {
        let segment = Segment::default();
        let (mut a, mut b) = (Machine::new(&segment, A), Machine::new(&segment, B));
        b.claim(ip(v6), Duration::from_secs(100));
        pass(&segment, 0, 7000, &mut [&mut b]);
        a.claim(ip(v6), Duration::from_secs(100));
        pass(&segment, 7000, 9000, &mut [&mut a, &mut b]);
        assert_eq!(a.notices, [Notice::InUse(ip(v6), B)]);
        assert_eq!(a.responder.announced(), 0);
        // The other is gone; it is tried again after a while.
        b.claims.until = Duration::ZERO;
        pass(&segment, 9000, 18_000, &mut [&mut a, &mut b]);
        assert_eq!(a.notices.last(), Some(&Notice::Announced(ip(v6))));
    }
}

#[test]
fn who_must_fall_silent_is_silent_at_once() {
    let segment = Segment::default();
    let (mut a, mut client) = (Machine::new(&segment, A), segment.host(CLIENT));
    a.claim(ip(false), Duration::from_secs(3));
    pass(&segment, 0, 2999, &mut [&mut a]);
    drain(&mut client);
    assert_eq!(who_has(&mut client, ip(false), &mut [&mut a]), [A]);
    // No turn between: the frame itself meets the end of the claim.
    segment.set_time(Duration::from_secs(3));
    let mut actions = Vec::new();
    let question = frame::probe(CLIENT, ip(false));
    a.responder.on_frame(&a.claims, INDEX, &question, a.host.now(), &mut actions);
    assert_eq!(actions, []);
    drain(&mut client);
    assert_eq!(who_has(&mut client, ip(false), &mut [&mut a]), []);
}

#[test]
fn who_contests_is_told_about_and_answered_once() {
    let segment = Segment::default();
    let (mut a, mut intruder) = (Machine::new(&segment, A), segment.host(B));
    a.claim(ip(false), Duration::from_secs(100));
    pass(&segment, 0, 7000, &mut [&mut a]);
    let _ = segment.sent();
    for now in [7000, 7100, 7200] {
        intruder.send(INDEX, &frame::announce(B, ip(false))[0]).expect("sent");
        pass(&segment, now, now + 50, &mut [&mut a]);
    }
    assert_eq!(a.notices, [Notice::Announced(ip(false)), Notice::Contested(ip(false), B)]);
    let defence = segment.sent().into_iter().filter(|(from, _)| *from == A).count();
    assert_eq!(defence, 2, "both forms, once");
}

#[test]
fn questions_to_others_are_not_ours_to_answer() {
    let segment = Segment::default();
    let mut a = Machine::new(&segment, A);
    a.claim(ip(false), Duration::from_secs(100));
    pass(&segment, 0, 1000, &mut [&mut a]);
    let mut actions = Vec::new();
    let mut question = frame::probe(CLIENT, ip(false));
    question[..6].copy_from_slice(&B.0);
    a.responder.on_frame(&a.claims, INDEX, &question, a.host.now(), &mut actions);
    assert_eq!(actions, [], "a frame to another machine");
    question[..6].copy_from_slice(&A.0);
    a.responder.on_frame(&a.claims, INDEX, &question, a.host.now(), &mut actions);
    assert_eq!(actions.len(), 1, "a frame to us");
    a.responder.on_frame(&a.claims, 99, &question, a.host.now(), &mut actions);
    assert_eq!(actions.len(), 1, "an excluded interface");
}
