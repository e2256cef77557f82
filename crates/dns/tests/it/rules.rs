//! Rules of a block apply to names in the cluster zones, in the plugin order of CoreDNS.

use std::net::IpAddr;
use std::time::Instant;

use dns::forward::{ClientAddr, Forwarder as _, Request, RuleDecision, Transport};
use dns::wire::rcode;

use crate::server::{CLIENT, TestServer, question, summary};

const SERVICE: &str = "svc1.testns.svc.cluster.local.";
const ADDRESS: &str = "svc1.testns.svc.cluster.local. A 10.96.0.100";

fn client(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_rules_none_are_applied() {
    assert!(!TestServer::new("cache\nerrors\nloop\nloadbalance\nautopath @kubernetes").await.resolver.has_rules());
    for rule in [
        "acl {\nallow\n}",
        "ratelimit 5",
        "rewrite name a b",
        "template IN A a {\nrcode NXDOMAIN\n}",
        "hosts {\n192.0.2.1 a\nfallthrough\n}",
    ] {
        assert!(TestServer::new(rule).await.resolver.has_rules(), "{rule}");
    }
    let block = |zone: &str| format!("{zone} {{\nforward . UPSTREAM\n}}");
    assert!(!TestServer::with("", "", &block("example.org")).await.resolver.has_rules());
    for zone in ["sub.cluster.local", "local", "10.in-addr.arpa"] {
        assert!(TestServer::with("", "", &block(zone)).await.resolver.has_rules(), "{zone}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_applies_to_cluster_names() {
    let server = TestServer::new(
        "acl cluster.local {\nallow net 127.0.0.1/32\nblock type AAAA net 127.0.2.1/32\nallow net 127.0.2.1/32\n\
         filter net 127.0.2.2/32\ndrop net 127.0.2.3/32\nblock\n}",
    )
    .await;
    let allowed = server.query(CLIENT, SERVICE, "A");
    assert_eq!((allowed.rcode, allowed.answers), (rcode::NOERROR, vec![ADDRESS.to_owned()]));
    let by_type = server.query(client("127.0.2.1"), SERVICE, "AAAA");
    assert_eq!((by_type.rcode, by_type.extended), (rcode::REFUSED, Some(18)));
    assert_eq!(server.query(client("127.0.2.1"), SERVICE, "A").answers.len(), 1);
    let filtered = server.query(client("127.0.2.2"), SERVICE, "A");
    assert_eq!((filtered.rcode, filtered.answers.len(), filtered.extended), (rcode::NOERROR, 0, Some(17)));
    assert_eq!(server.query_now(client("127.0.2.3"), SERVICE, "A"), None);
    let stranger = client("127.0.2.4");
    assert_eq!(server.query(stranger, SERVICE, "A").rcode, rcode::REFUSED);
    assert_eq!(server.query(stranger, "nope.testns.svc.cluster.local.", "A").rcode, rcode::REFUSED);
    assert_eq!(server.query(stranger, "ext.testns.svc.cluster.local.", "A").rcode, rcode::REFUSED);
    let elsewhere = server.query(stranger, "example.net.", "A");
    assert_eq!(elsewhere.answers, ["example.net. A 13.14.15.16"], "the rule is for the zone of the cluster");
    let by_stream = server.query_tcp(SERVICE, "A");
    assert_eq!(by_stream.answers, [ADDRESS]);
    assert!(server.metrics.text(&server.snapshot).contains("coredns_panics_total 0\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_and_template_precede_cluster_names() {
    let server = TestServer::new(
        "hosts {\n203.0.113.7 svc1.testns.svc.cluster.local\n10.96.0.1 by.hand\nttl 77\nfallthrough\n}\n\
         template IN A testns.svc.cluster.local {\nmatch ^dual[.]\nrcode NXDOMAIN\nfallthrough\n}",
    )
    .await;
    let by_hand = server.query(CLIENT, SERVICE, "A");
    assert_eq!(by_hand.answers, ["svc1.testns.svc.cluster.local. A 203.0.113.7"]);
    assert_eq!((by_hand.ttls, by_hand.authoritative), (vec![77], true));
    let back = server.query(CLIENT, "1.0.96.10.in-addr.arpa.", "PTR");
    assert_eq!(back.answers, ["1.0.96.10.in-addr.arpa. PTR by.hand."]);
    let by_rule = server.query(CLIENT, "dual.testns.svc.cluster.local.", "A");
    assert_eq!((by_rule.rcode, by_rule.answers.len()), (rcode::NXDOMAIN, 0));
    let other_type = server.query(CLIENT, "dual.testns.svc.cluster.local.", "AAAA");
    assert_eq!((other_type.rcode, other_type.answers.len()), (rcode::NOERROR, 1), "the rule is for A");
    let untouched = server.query(CLIENT, "kubernetes.default.svc.cluster.local.", "A");
    assert_eq!(untouched.answers, ["kubernetes.default.svc.cluster.local. A 10.96.0.1"]);
    let alias = server.query(CLIENT, "ext.testns.svc.cluster.local.", "A");
    assert_eq!(alias.answers.len(), 2, "what rules let pass is followed out: {:?}", alias.answers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_without_fallthrough_hides_cluster_names() {
    let server = TestServer::new("hosts {\n203.0.113.7 by.hand\n}").await;
    assert_eq!(server.query(CLIENT, "by.hand.", "A").answers, ["by.hand. A 203.0.113.7"]);
    for name in [SERVICE, "example.net."] {
        let hidden = server.query(CLIENT, name, "A");
        assert_eq!((hidden.rcode, hidden.authoritative, hidden.extended), (rcode::SERVFAIL, false, Some(0)), "{name}");
    }
    let back = server.query(CLIENT, "1.0.96.10.in-addr.arpa.", "PTR");
    assert_eq!(back.answers, ["1.0.96.10.in-addr.arpa. PTR kubernetes.default.svc.cluster.local."], "never hidden");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_names_can_be_rewritten() {
    let server = TestServer::new(
        "rewrite name old.testns.svc.cluster.local svc1.testns.svc.cluster.local\n\
         rewrite name out.testns.svc.cluster.local example.net\n\
         rewrite name alias.example ext.testns.svc.cluster.local\n\
         rewrite name by.example hand.example\n\
         rewrite ttl exact kubernetes.default.svc.cluster.local 7\n\
         hosts {\n203.0.113.7 hand.example\n203.0.113.8 by.example\nfallthrough\n}",
    )
    .await;
    let query = |name: &str| server.query(CLIENT, name, "A");
    assert_eq!(query("Old.testns.svc.cluster.local.").answers, ["Old.testns.svc.cluster.local. A 10.96.0.100"]);
    assert_eq!(query("out.testns.svc.cluster.local.").answers, ["out.testns.svc.cluster.local. A 13.14.15.16"]);
    let alias = query("alias.example.");
    assert_eq!(alias.answers, ["alias.example. CNAME example.net.", "example.net. A 13.14.15.16"]);
    assert_eq!(query("by.example.").answers, ["by.example. A 203.0.113.7"], "a name is changed before it is looked up");
    assert_eq!(query("kubernetes.default.svc.cluster.local.").ttls, [7]);
    assert_eq!(query(SERVICE).answers, [ADDRESS]);
    assert_eq!(query(SERVICE).ttls, [30]);
}

/// A CNAME leads out of the cluster zones, and a rewrite leads back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_of_rewrites_and_cnames_is_bounded() {
    let server = TestServer::new("rewrite name example.net ext.testns.svc.cluster.local").await;
    let reply = server.query(CLIENT, "ext.testns.svc.cluster.local.", "A");
    assert!(reply.answers.len() < 20, "{reply:?}");
    assert!(!reply.answers.iter().any(|answer| answer.contains(" A ")), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ratelimit_applies_to_cluster_names() {
    let server = TestServer::new("ratelimit 1 3 {\nexcept 127.0.0.1\n}").await;
    let busy = client("127.0.3.1");
    let reply: Vec<_> = (0..9).map(|_| server.query_now(busy, SERVICE, "A").map(|reply| reply.truncated)).collect();
    assert_eq!(reply[..3], [Some(false); 3], "the burst");
    // A second may pass meanwhile and allow one more.
    let count = |wanted| reply.iter().filter(|reply| **reply == wanted).count();
    assert!(count(Some(false)) < 6 && count(Some(true)) > 1 && count(None) > 1, "{reply:?}");
    assert_eq!(server.query_tcp(SERVICE, "A").answers, [ADDRESS], "who shows himself is answered");
    assert_eq!(server.query(CLIENT, SERVICE, "A").answers, [ADDRESS], "and who is exempt");
}

/// As in CoreDNS, the block with the longest zone answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_for_a_subdomain_of_the_cluster_answers_for_it() {
    let server = TestServer::with(
        "",
        "",
        "b.svc.cluster.local {\nforward . UPSTREAM\n}\n2.0.192.in-addr.arpa {\nforward . UPSTREAM\n}",
    )
    .await;
    let query = |name: &str, qtype: &str| server.query(CLIENT, name, qtype);
    assert_eq!(query("f.b.svc.cluster.local.", "A").answers, ["f.b.svc.cluster.local. A 203.0.113.77"]);
    assert_eq!(query("foo.cluster.local.", "A").rcode, rcode::NXDOMAIN, "that one is ours");
    assert_eq!(query(SERVICE, "A").answers, [ADDRESS]);
    assert_eq!(query("123.2.0.192.in-addr.arpa.", "PTR").answers, ["123.2.0.192.in-addr.arpa. PTR my.test."]);
}

/// Three blocks for all names: two ports, and one address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_answers_only_on_its_own_listeners() {
    let by_hand = |last: u8| format!("hosts {{\n203.0.113.{last} by.port\nfallthrough\n}}");
    let others = format!(".:5353 {{\n{}\n}}\n.:54 {{\nbind 192.0.2.1\n{}\n}}", by_hand(2), by_hand(3));
    let server = TestServer::with("", &by_hand(1), &others).await;
    let listeners = [("0.0.0.0:53", 1, true), ("0.0.0.0:5353", 2, false), ("192.0.2.1:54", 3, false)];
    for (at, last, has_cluster) in listeners {
        let from = ClientAddr { listener: at.parse().expect("an address"), ..CLIENT.into() };
        let (named, ours) = (question("by.port.", "A", 7), question(SERVICE, "A", 7));
        let queries = |message| Request { message, from, transport: Transport::Udp };
        let mut out = Vec::new();
        assert!(server.resolver.cached(&queries(&named), Instant::now(), &mut out));
        assert_eq!(summary(&out).answers, [format!("by.port. A 203.0.113.{last}")], "{at}");
        let ruling = server.resolver.apply_rules(&queries(&ours), Instant::now(), &mut out);
        assert_eq!(ruling, if has_cluster { RuleDecision::Pass } else { RuleDecision::Forward }, "{at}");
        if !has_cluster {
            let reply = server.resolver.resolve(queries(&ours)).await;
            assert_eq!(summary(&reply).rcode, rcode::REFUSED, "{at} has nobody to ask");
        }
    }
    let one = TestServer::new("bind 127.0.0.1 127.0.0.2").await;
    assert!(!one.resolver.has_rules(), "one block at two addresses is one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bufsize_applies_to_cluster_names() {
    let (name, all) = ("big.testns.svc.cluster.local.", 150);
    let (plain, small) = (TestServer::new("").await, TestServer::new("bufsize 600").await);
    let (more, fewer) = (plain.query(CLIENT, name, "A"), small.query(CLIENT, name, "A"));
    assert!(
        more.truncated && fewer.truncated && fewer.answers.len() < more.answers.len(),
        "{} {}",
        more.answers.len(),
        fewer.answers.len()
    );
    assert!(fewer.answers.len() <= 600 / 16);
    assert_eq!(small.query_tcp(name, "A").answers.len(), all);
}
