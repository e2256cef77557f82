//! Admission policy with a simulated clock.

use super::*;
use crate::wire::{from_text, rtype};

const SECOND: Duration = Duration::from_secs(1);

struct Scene {
    clients: Clients,
    start: Instant,
}

impl Scene {
    fn new(limits: ClientLimits) -> Self {
        let start = Instant::now();
        Self { clients: Clients::new(limits, start), start }
    }

    fn at(&self, after: Duration) -> Ticks {
        self.clients.ticks(self.start + after)
    }

    /// Number of queries answered, refused and dropped.
    fn flood(&self, client: &str, queries: usize, after: Duration) -> [usize; 3] {
        let (client, now) = (address(client), self.at(after));
        let all: Vec<_> = (0..queries).map(|_| self.clients.admit(client, now)).collect();
        [Admission::Answer, Admission::Refuse, Admission::Drop]
            .map(|wanted| all.iter().filter(|admission| **admission == wanted).count())
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn limits(queries: u32, forwards: u32, in_flight: usize) -> ClientLimits {
    ClientLimits { queries, forwards, in_flight, ..ClientLimits::default() }
}

#[test]
fn a_flood_is_answered_at_the_rate_then_refused_at_the_rate_then_dropped() {
    let scene = Scene::new(limits(100, 0, 0));
    assert_eq!(scene.flood("10.0.0.1", 1000, Duration::ZERO), [100, 100, 800]);
    assert_eq!(scene.flood("10.0.0.2", 100, Duration::ZERO), [100, 0, 0], "another client");
    assert_eq!(scene.flood("10.0.0.1", 1000, SECOND / 2), [50, 50, 900]);
    assert_eq!(scene.flood("10.0.0.1", 50, SECOND), [50, 0, 0], "within its rate again");
}

#[test]
fn loopback_is_exempt_unless_the_setting_says_otherwise() {
    for (exempt_loopback, answered) in [(true, 1000), (false, 10)] {
        let scene = Scene::new(ClientLimits { exempt_loopback, ..limits(10, 10, 1000) });
        for client in ["127.0.0.1", "127.9.9.9", "::1"] {
            assert_eq!(scene.flood(client, 1000, Duration::ZERO)[0], answered, "{client}");
            let now = scene.at(Duration::ZERO);
            let forwarded = (0..1000).filter(|_| scene.clients.forward(address(client), now).is_ok()).count();
            assert_eq!(forwarded, answered, "{client}");
        }
    }
}

#[test]
fn a_rate_of_zero_disables_the_limit() {
    let scene = Scene::new(limits(0, 0, 0));
    assert_eq!(scene.flood("10.0.0.1", 100_000, Duration::ZERO), [100_000, 0, 0]);
    let now = scene.at(Duration::ZERO);
    assert!((0..10_000).all(|_| scene.clients.forward(address("10.0.0.1"), now).is_ok()));
}

#[test]
fn addresses_of_one_network_share_a_larger_limit() {
    let scene = Scene::new(limits(10, 0, 0));
    let answered = |host: u32, network: &str| scene.flood(&format!("{network}::{host:x}"), 10, Duration::ZERO)[0];
    let inside: usize = (1..100).map(|host| answered(host, "2001:db8:1:1")).sum();
    assert_eq!(inside, 10 * NETWORK_SHARE as usize);
    assert_eq!(answered(1, "2001:db8:1:2"), 10, "another network");
    // A flooding address does not use up the limit of its network.
    let scene = Scene::new(limits(10, 0, 0));
    scene.flood("2001:db8::1", 100_000, Duration::ZERO);
    assert_eq!(scene.flood("2001:db8::2", 10, Duration::ZERO), [10, 0, 0]);
}

#[test]
fn forwards_are_limited_by_rate_and_in_flight() {
    let scene = Scene::new(limits(1000, 10, 4));
    let (client, other) = (address("10.0.0.1"), address("10.0.0.2"));
    let forward = |client, after| scene.clients.forward(client, scene.at(after));
    let mut held: Vec<_> = (0..4).map(|_| forward(client, Duration::ZERO).expect("a slot")).collect();
    assert_eq!(forward(client, Duration::ZERO).err(), Some(Limited::InFlight));
    assert!(forward(other, Duration::ZERO).is_ok(), "another client");
    held.clear();
    // Five of ten tokens are left.
    let more = (0..10).map(|_| forward(client, Duration::ZERO)).filter(Result::is_ok).count();
    assert_eq!((more, forward(client, Duration::ZERO).err()), (5, Some(Limited::Forwards)));
    assert!(forward(client, SECOND).is_ok());
}

#[test]
fn a_client_is_logged_once_a_minute_and_a_flood_of_addresses_is_bounded() {
    let scene = Scene::new(ClientLimits::default());
    let client = address("10.0.0.1");
    let lines = |after: Duration| (0..10).filter(|_| scene.clients.may_log(client, scene.at(after))).count();
    assert_eq!([lines(Duration::ZERO), lines(59 * SECOND), lines(61 * SECOND)], [1, 0, 1]);
    let now = scene.at(Duration::from_secs(600));
    let many = (0..100_000_u32).filter(|host| scene.clients.may_log(IpAddr::from(host.to_be_bytes()), now)).count();
    assert!(many <= LOG_SETS * 8, "{many} lines");
}

#[test]
fn a_refused_reply_has_the_question_and_an_extended_error() {
    let name = from_text("web.ns.svc.cluster.local").expect("a name");
    let mut plain = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    plain.extend(name.iter().chain(&[0, 28, 0, 1]));
    let (mut labels, mut out) = (QueryLabels::default(), Vec::new());
    assert!(write_refused(&plain, &mut labels, &mut out));
    assert_eq!((out[..4].to_vec(), &out[12..]), (vec![0x12, 0x34, 0x81, 5], &plain[12..]));
    assert_eq!((labels.qtype, labels.zone), (rtype::AAAA, None));
    let mut with_edns = plain.clone();
    with_edns[11] = 1;
    with_edns.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    assert!(write_refused(&with_edns, &mut labels, &mut out));
    assert_eq!(out[out.len() - 6..], [0, 15, 0, 2, 0, 18], "Prohibited");
    // A response gets no reply; otherwise two servers could refuse each other forever.
    plain[2] |= 0x80;
    assert!(!write_refused(&plain, &mut labels, &mut out));
}
