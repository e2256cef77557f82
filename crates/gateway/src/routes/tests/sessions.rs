//! Sessions of the Gateway API and of Ingresses, and consistent hashing.

use std::collections::BTreeSet;

use api::view::Service;
use routing::policy::{Balancing, BalancingMethod, CookieAffinity, HashKey, Policy};

use super::super::session::{Session, Visit};
use super::*;
use crate::clock::Clock;

const PODS: [&str; 4] = ["p0", "p1", "p2", "p3"];

/// A Gateway whose clock stands still, with the Services `one` and `two` of four pods each.
struct Sessions {
    gateway: TestGateway,
    clock: Clock,
    pods: Vec<SocketAddr>,
}

/// What a pod said, and the session that came with it.
struct Answer {
    pod: String,
    cookie: Option<String>,
    text: String,
}

fn identity(name: &str, uid: &str) -> Service {
    serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": name, "uid": uid}})).expect("a Service")
}

impl Sessions {
    fn new() -> Self {
        let (mut gateway, clock) =
            (TestGateway::new(&[listener("http", ListenerProtocol::Http, None)]), Clock::stopped());
        gateway.pools.set_clock(clock.clone());
        for name in ["one", "two"] {
            gateway.pools.apply_service(&format!("shop/{name}"), Some(&identity(name, "6f1c")));
        }
        let pods: Vec<SocketAddr> = PODS.iter().map(|name| named(name)).collect();
        gateway.service("one", &pods);
        gateway.service("two", &[named("q0"), named("q1")]);
        Self { gateway, clock, pods }
    }

    /// A rule with this session persistence.
    fn persistent(spec: &Value, backends: &Value) -> Self {
        let mut sessions = Self::new();
        let persistent = persistent(spec, backends);
        sessions.gateway.route("http", "web", &[], vec![persistent]);
        sessions
    }

    fn affinity(cookie: CookieAffinity) -> Self {
        let mut sessions = Self::new();
        let policy = Policy { session: Some(cookie), ..Policy::default() };
        let rule = Rule { policy: Some(Arc::new(policy)), ..rule(&json!({"backends": [{"name": "one"}]})) };
        sessions.gateway.route("http", "web", &[], vec![rule]);
        sessions
    }

    fn get(&self, header: Option<(&str, &str)>) -> Answer {
        self.get_at("/", header)
    }

    fn get_at(&self, path: &str, header: Option<(&str, &str)>) -> Answer {
        let header = header.map(|(name, value)| format!("{name}: {value}\r\n")).unwrap_or_default();
        let text = self.gateway.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n{header}Connection: close\r\n\r\n"));
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let lower = "set-cookie: ";
        let cookie =
            head.lines().find(|line| line.to_lowercase().starts_with(lower)).map(|line| line[lower.len()..].into());
        Answer { pod: body.split(' ').next().unwrap_or_default().to_owned(), cookie, text }
    }

    /// The pods of so many requests with this cookie.
    fn pods_of(&self, cookie: &str) -> BTreeSet<String> {
        (0..8).map(|_| self.get(Some(("Cookie", cookie))).pod).collect()
    }

    /// Begins a session; its pod, and the pair for the header `Cookie`.
    fn begin(&self) -> (String, String) {
        let answer = self.get(None);
        (answer.pod, pair(&answer.cookie.expect("a cookie")).to_owned())
    }
}

fn persistent(spec: &Value, backends: &Value) -> Rule {
    let session = Some(serde_json::from_value(spec.clone()).expect("a specification"));
    Rule { session, ..rule(&json!({"backends": backends})) }
}

fn one() -> Value {
    json!([{"name": "one"}])
}

fn pair(cookie: &str) -> &str {
    cookie.split(';').next().unwrap_or_default()
}

#[test]
fn a_session_keeps_its_endpoint_and_the_cookie_is_set_once() {
    let sessions = Sessions::persistent(&json!({"type": "Cookie", "cookie": {"name": "route"}}), &one());
    let mut seen = BTreeSet::new();
    for _ in 0..8 {
        let first = sessions.get(None);
        let cookie = first.cookie.expect("a cookie");
        assert!(cookie.starts_with("route=") && cookie.ends_with("; Path=/; SameSite=Lax; HttpOnly"), "{cookie}");
        for _ in 0..4 {
            let next = sessions.get(Some(("Cookie", &format!("a=b; {}", pair(&cookie)))));
            assert_eq!((&next.pod, next.cookie), (&first.pod, None));
        }
        seen.insert(first.pod);
    }
    assert_eq!(seen.len(), 4, "new sessions are spread: {seen:?}");
}

#[test]
fn tokens_say_nothing_about_addresses_and_cannot_be_made_up() {
    let sessions = Sessions::persistent(&json!({"cookie": {"name": "route"}}), &one());
    let (pod, cookie) = sessions.begin();
    for address in &sessions.pods {
        assert!(!cookie.contains(&address.port().to_string()) && !cookie.contains("127.0.0.1"));
    }
    let mut forged = cookie.clone();
    let last = if forged.ends_with('A') { 'B' } else { 'A' };
    forged.pop();
    forged.push(last);
    for bad in [&*forged, "route=", "route=127.0.0.1:80", "route=\"\"", &format!("{cookie}x")] {
        let answer = sessions.get(Some(("Cookie", bad)));
        assert!(answer.cookie.is_some(), "{bad} is no session: {}", answer.text);
    }
    // Of several cookies, the valid one counts.
    let both = sessions.get(Some(("Cookie", &format!("{forged}; {cookie}"))));
    assert_eq!((both.pod, both.cookie), (pod, None));
}

#[test]
fn a_session_moves_when_its_endpoint_goes() {
    let mut sessions = Sessions::persistent(&json!({"cookie": {"name": "route"}}), &one());
    let (pod, cookie) = sessions.begin();
    let rest: Vec<SocketAddr> =
        PODS.iter().zip(&sessions.pods).filter(|(name, _)| **name != pod).map(|(_, pod)| *pod).collect();
    sessions.gateway.service("one", &rest);
    let moved = sessions.get(Some(("Cookie", &cookie)));
    let new = moved.cookie.expect("a new cookie");
    assert_ne!(moved.pod, pod);
    assert_eq!(sessions.pods_of(pair(&new)), [moved.pod].into());
}

#[test]
fn a_session_moves_when_its_endpoint_refuses_connections() {
    let mut sessions = Sessions::persistent(&json!({"cookie": {"name": "route"}}), &one());
    let (good, gone) = (named("good"), TcpListener::bind("127.0.0.1:0").expect("a port"));
    let address = gone.local_addr().expect("an address");
    sessions.gateway.service("one", &[address]);
    // A session at the endpoint that is going to refuse, without waiting for an answer of it.
    let server = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = gone.accept().expect("a connection");
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nbad x");
    });
    let (pod, cookie) = sessions.begin();
    server.join().expect("a pod");
    assert_eq!(pod, "bad");
    sessions.gateway.service("one", &[address, good]);
    let moved = sessions.get(Some(("Cookie", &cookie)));
    assert_eq!(moved.pod, "good");
    assert_eq!(sessions.pods_of(pair(&moved.cookie.expect("a new cookie"))), ["good".to_owned()].into());
}

#[test]
fn sessions_keep_their_backend_whatever_the_weights_are() {
    let spec = json!({"cookie": {"name": "route"}});
    let mut sessions = Sessions::persistent(&spec, &json!([{"name": "one"}, {"name": "two"}]));
    let all: Vec<(String, String)> = (0..24).map(|_| sessions.begin()).collect();
    let of_two = all.iter().filter(|(pod, _)| pod.starts_with('q')).count();
    assert_eq!(of_two, 12, "new sessions are spread by weight");
    sessions.gateway.route(
        "http",
        "web",
        &[],
        vec![persistent(&spec, &json!([{"name": "one", "weight": 0}, {"name": "two"}]))],
    );
    for (pod, cookie) in &all {
        assert_eq!(sessions.pods_of(cookie), [pod.clone()].into());
    }
    assert!(sessions.begin().0.starts_with('q'));
}

#[test]
fn rules_do_not_share_sessions() {
    let mut sessions = Sessions::new();
    let at = |path: &str, name: Option<&str>, index: usize| {
        let matches = json!([{"path": {"type": "PathPrefix", "value": path}}]);
        let spec = json!({"cookie": {"name": name}});
        let session = Some(serde_json::from_value(spec).expect("a specification"));
        Rule { session, index, ..rule(&json!({"matches": matches, "backends": [{"name": "one"}]})) }
    };
    sessions.gateway.route(
        "http",
        "web",
        &[],
        vec![at("/a", Some("route"), 0), at("/b", Some("route"), 1), at("/c", None, 2)],
    );
    let first = sessions.get_at("/a", None).cookie.expect("a cookie");
    assert!(sessions.get_at("/a", Some(("Cookie", pair(&first)))).cookie.is_none());
    assert!(sessions.get_at("/b", Some(("Cookie", pair(&first)))).cookie.is_some());
    let own = sessions.get_at("/c", None).cookie.expect("a cookie");
    assert!(own.starts_with("waypost-"), "{own}");
}

#[test]
fn sessions_end_by_their_timeouts() {
    let spec = json!({"sessionName": "route", "absoluteTimeout": "1h", "idleTimeout": "10m"});
    let mut sessions = Sessions::persistent(&spec, &one());
    let (pod, mut cookie) = sessions.begin();
    for minute in (5..60).step_by(5) {
        sessions.clock.advance(Duration::from_secs(300));
        let answer = sessions.get(Some(("Cookie", &cookie)));
        assert_eq!(answer.pod, pod, "minute {minute}");
        // Each use renews the token, but not the session.
        cookie = pair(&answer.cookie.expect("a new token")).to_owned();
        assert!(sessions.get(Some(("Cookie", &cookie))).cookie.is_none());
    }
    let spec = persistent(&spec, &one());
    let session = Session::of_rule(&spec).expect("sessions");
    let upstream = sessions.gateway.pools.upstream(&target("one"), None, &Trust::default());
    let visit = |cookie: &str| {
        let headers = [(::http::header::COOKIE, HeaderValue::from_str(cookie).expect("a value"))].into_iter().collect();
        session.visit(&headers, [Some(&*upstream)])
    };
    sessions.clock.advance(Duration::from_secs(299));
    assert_ne!(visit(&cookie), Visit::New);
    sessions.clock.advance(Duration::from_secs(1));
    assert_eq!(visit(&cookie), Visit::New, "after an hour");
    let other = sessions.begin().1;
    sessions.clock.advance(Duration::from_secs(599));
    assert_ne!(visit(&other), Visit::New);
    sessions.clock.advance(Duration::from_secs(1));
    assert_eq!(visit(&other), Visit::New, "after ten minutes without requests");
}

#[test]
fn permanent_cookies_say_how_long_they_last() {
    let spec =
        json!({"absoluteTimeout": "5m", "cookie": {"name": "route", "path": "/shop", "lifetimeType": "Permanent"}});
    let cookie = Sessions::persistent(&spec, &one()).get(None).cookie.expect("a cookie");
    assert!(cookie.ends_with("; Max-Age=300; Path=/shop; SameSite=Lax; HttpOnly"), "{cookie}");
    let bad = json!({"cookie": {"name": "a b", "path": "/; Domain=example.com"}});
    let cookie = Sessions::persistent(&bad, &one()).get(None).cookie.expect("a cookie");
    assert!(cookie.starts_with("waypost-") && cookie.contains("; Path=/; ") && !cookie.contains("Domain"), "{cookie}");
}

#[test]
fn a_header_carries_sessions_as_well() {
    let sessions = Sessions::persistent(&json!({"type": "Header", "header": {"name": "X-Session"}}), &one());
    let first = sessions.get(None);
    let find = |answer: &Answer| {
        let line = answer.text.lines().find(|line| line.to_lowercase().starts_with("x-session: "))?;
        line.split(' ').nth(1).map(str::to_owned)
    };
    let token = find(&first).expect("a token");
    for _ in 0..6 {
        let next = sessions.get(Some(("x-session", &token)));
        // The pod repeats the request head in its body.
        let head = next.text.split("\r\n\r\n").next().unwrap_or_default();
        assert!(next.pod == first.pod && !head.to_lowercase().contains("x-session"), "{}", next.text);
    }
}

#[test]
fn sessions_of_an_ingress_keep_their_endpoint() {
    for is_persistent in [true, false] {
        let sessions = Sessions::affinity(CookieAffinity { is_persistent, ..CookieAffinity::new("route") });
        let mut seen = BTreeSet::new();
        for _ in 0..24 {
            let (pod, cookie) = sessions.begin();
            assert_eq!(sessions.pods_of(&cookie), [pod.clone()].into());
            assert!(sessions.get(Some(("Cookie", &cookie))).cookie.is_none());
            seen.insert(pod);
        }
        assert!(seen.len() > 1, "{is_persistent}: {seen:?}");
    }
}

#[test]
fn sessions_of_an_ingress_return_to_an_endpoint_that_failed_unless_told_to_change() {
    for (is_persistent, change_on_failure) in [(true, false), (true, true), (false, false), (false, true)] {
        let cookie = CookieAffinity { is_persistent, change_on_failure, ..CookieAffinity::new("route") };
        let mut sessions = Sessions::affinity(cookie);
        let (pod, cookie) = sessions.begin();
        // The same address, which refuses connections for a while: it is ejected by hand.
        let bad = sessions.pods[PODS.iter().position(|name| *name == pod).expect("a pod")];
        sessions.eject(bad);
        let other = sessions.get(Some(("Cookie", &cookie)));
        assert_ne!(other.pod, pod);
        assert_eq!(other.cookie.is_some(), change_on_failure, "{is_persistent}");
        sessions.clock.advance(Duration::from_secs(60));
        let later = other.cookie.map_or(cookie, |new| pair(&new).to_owned());
        // One request is let through first.
        sessions.get(Some(("Cookie", &later)));
        let expected = sessions.pods_of(&later);
        assert_eq!(expected.contains(&pod), !change_on_failure, "{is_persistent} {expected:?}");
        assert_eq!(expected.len(), 1, "{is_persistent} {expected:?}");
    }
}

impl Sessions {
    /// Ejects an endpoint of the Service `one`.
    fn eject(&mut self, address: SocketAddr) {
        use crate::ejection::{Outcome, Passes};
        let upstream = self.gateway.pools.upstream(&target("one"), None, &Trust::default());
        let backends = upstream.backends.load();
        let endpoint = backends.all().iter().find(|one| one.address == address).expect("an endpoint");
        endpoint.enter(Passes::USABLE).report(Outcome::Refused, None);
    }
}

#[test]
fn another_node_knows_the_sessions() {
    let spec = json!({"cookie": {"name": "route"}});
    let one_node = Sessions::persistent(&spec, &one());
    let mut other = Sessions::persistent(&spec, &one());
    let reversed: Vec<SocketAddr> = one_node.pods.iter().rev().copied().collect();
    other.gateway.service("one", &reversed);
    for _ in 0..4 {
        let (pod, cookie) = one_node.begin();
        assert_eq!(other.pods_of(&cookie), [pod].into());
    }
    // The Service was replaced by another of its name.
    other.gateway.pools.apply_service("shop/one", Some(&identity("one", "7e2d")));
    other.gateway.pools.update();
    assert!(other.get(Some(("Cookie", &one_node.begin().1))).cookie.is_some());
}

#[test]
fn equal_values_reach_one_endpoint() {
    let mut sessions = Sessions::new();
    let method = BalancingMethod::ConsistentHash(HashKey::Header(::http::HeaderName::from_static("x-user")));
    let policy = Policy { balancing: Some(Balancing { method, ..Balancing::default() }), ..Policy::default() };
    let hashed = Rule { policy: Some(Arc::new(policy)), ..rule(&json!({"backends": [{"name": "one"}]})) };
    sessions.gateway.route("http", "web", &[], vec![hashed]);
    let pods = |user: &str| -> BTreeSet<String> { (0..4).map(|_| sessions.get(Some(("X-User", user))).pod).collect() };
    let all: Vec<BTreeSet<String>> = (0..16).map(|user| pods(&format!("user-{user}"))).collect();
    assert!(all.iter().all(|pods| pods.len() == 1), "{all:?}");
    assert!(all.iter().flatten().collect::<BTreeSet<_>>().len() > 1, "{all:?}");
    let without: BTreeSet<String> = (0..8).map(|_| sessions.get(None).pod).collect();
    assert_eq!(without.len(), 4);
}
