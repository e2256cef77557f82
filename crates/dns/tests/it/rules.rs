//! Rules of a block hold for the cluster's own names, too, in the order in which CoreDNS has its plugins.

use std::net::IpAddr;
use std::time::Instant;

use dns::beyond::{Beyond as _, Ends, Question, Ruling, Transport};
use dns::wire::rcode;

use crate::whole::{ANYBODY, Whole, question, said};

const SERVICE: &str = "svc1.testns.svc.cluster.local.";
const ADDRESS: &str = "svc1.testns.svc.cluster.local. A 10.96.0.100";

fn client(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_rules_nobody_looks_for_them() {
    assert!(!Whole::new("cache\nerrors\nloop\nloadbalance\nautopath @kubernetes").await.resolver.has_rules());
    for rule in [
        "acl {\nallow\n}",
        "ratelimit 5",
        "rewrite name a b",
        "template IN A a {\nrcode NXDOMAIN\n}",
        "hosts {\n192.0.2.1 a\nfallthrough\n}",
    ] {
        assert!(Whole::new(rule).await.resolver.has_rules(), "{rule}");
    }
    let block = |zone: &str| format!("{zone} {{\nforward . UPSTREAM\n}}");
    assert!(!Whole::with("", "", &block("example.org")).await.resolver.has_rules());
    for zone in ["sub.cluster.local", "local", "10.in-addr.arpa"] {
        assert!(Whole::with("", "", &block(zone)).await.resolver.has_rules(), "{zone}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acl_holds_for_names_of_the_cluster() {
    let whole = Whole::new(
        "acl cluster.local {\nallow net 127.0.0.1/32\nblock type AAAA net 127.0.2.1/32\nallow net 127.0.2.1/32\n\
         filter net 127.0.2.2/32\ndrop net 127.0.2.3/32\nblock\n}",
    )
    .await;
    let allowed = whole.ask(ANYBODY, SERVICE, "A");
    assert_eq!((allowed.rcode, allowed.answers), (rcode::NOERROR, vec![ADDRESS.to_owned()]));
    let by_type = whole.ask(client("127.0.2.1"), SERVICE, "AAAA");
    assert_eq!((by_type.rcode, by_type.extended), (rcode::REFUSED, Some(18)));
    assert_eq!(whole.ask(client("127.0.2.1"), SERVICE, "A").answers.len(), 1);
    let filtered = whole.ask(client("127.0.2.2"), SERVICE, "A");
    assert_eq!((filtered.rcode, filtered.answers.len(), filtered.extended), (rcode::NOERROR, 0, Some(17)));
    assert_eq!(whole.at_once(client("127.0.2.3"), SERVICE, "A"), None);
    let stranger = client("127.0.2.4");
    assert_eq!(whole.ask(stranger, SERVICE, "A").rcode, rcode::REFUSED);
    assert_eq!(whole.ask(stranger, "nope.testns.svc.cluster.local.", "A").rcode, rcode::REFUSED);
    assert_eq!(whole.ask(stranger, "ext.testns.svc.cluster.local.", "A").rcode, rcode::REFUSED);
    let elsewhere = whole.ask(stranger, "example.net.", "A");
    assert_eq!(elsewhere.answers, ["example.net. A 13.14.15.16"], "the rule is for the zone of the cluster");
    let by_stream = whole.ask_stream(SERVICE, "A");
    assert_eq!(by_stream.answers, [ADDRESS]);
    assert!(whole.metrics.text(&whole.book).contains("coredns_panics_total 0\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_by_hand_and_by_rule_come_before_those_of_the_cluster() {
    let whole = Whole::new(
        "hosts {\n203.0.113.7 svc1.testns.svc.cluster.local\n10.96.0.1 by.hand\nttl 77\nfallthrough\n}\n\
         template IN A testns.svc.cluster.local {\nmatch ^dual[.]\nrcode NXDOMAIN\nfallthrough\n}",
    )
    .await;
    let by_hand = whole.ask(ANYBODY, SERVICE, "A");
    assert_eq!(by_hand.answers, ["svc1.testns.svc.cluster.local. A 203.0.113.7"]);
    assert_eq!((by_hand.ttls, by_hand.authoritative), (vec![77], true));
    let back = whole.ask(ANYBODY, "1.0.96.10.in-addr.arpa.", "PTR");
    assert_eq!(back.answers, ["1.0.96.10.in-addr.arpa. PTR by.hand."]);
    let by_rule = whole.ask(ANYBODY, "dual.testns.svc.cluster.local.", "A");
    assert_eq!((by_rule.rcode, by_rule.answers.len()), (rcode::NXDOMAIN, 0));
    let other_type = whole.ask(ANYBODY, "dual.testns.svc.cluster.local.", "AAAA");
    assert_eq!((other_type.rcode, other_type.answers.len()), (rcode::NOERROR, 1), "the rule is for A");
    let untouched = whole.ask(ANYBODY, "kubernetes.default.svc.cluster.local.", "A");
    assert_eq!(untouched.answers, ["kubernetes.default.svc.cluster.local. A 10.96.0.1"]);
    let alias = whole.ask(ANYBODY, "ext.testns.svc.cluster.local.", "A");
    assert_eq!(alias.answers.len(), 2, "what rules let pass is followed out: {:?}", alias.answers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_by_hand_without_fallthrough_hide_the_cluster() {
    let whole = Whole::new("hosts {\n203.0.113.7 by.hand\n}").await;
    assert_eq!(whole.ask(ANYBODY, "by.hand.", "A").answers, ["by.hand. A 203.0.113.7"]);
    for name in [SERVICE, "example.net."] {
        let hidden = whole.ask(ANYBODY, name, "A");
        assert_eq!((hidden.rcode, hidden.authoritative, hidden.extended), (rcode::SERVFAIL, false, Some(0)), "{name}");
    }
    let back = whole.ask(ANYBODY, "1.0.96.10.in-addr.arpa.", "PTR");
    assert_eq!(back.answers, ["1.0.96.10.in-addr.arpa. PTR kubernetes.default.svc.cluster.local."], "never hidden");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_the_cluster_may_stand_for_others() {
    let whole = Whole::new(
        "rewrite name old.testns.svc.cluster.local svc1.testns.svc.cluster.local\n\
         rewrite name out.testns.svc.cluster.local example.net\n\
         rewrite name alias.example ext.testns.svc.cluster.local\n\
         rewrite name by.example hand.example\n\
         rewrite ttl exact kubernetes.default.svc.cluster.local 7\n\
         hosts {\n203.0.113.7 hand.example\n203.0.113.8 by.example\nfallthrough\n}",
    )
    .await;
    let ask = |name: &str| whole.ask(ANYBODY, name, "A");
    assert_eq!(ask("Old.testns.svc.cluster.local.").answers, ["Old.testns.svc.cluster.local. A 10.96.0.100"]);
    assert_eq!(ask("out.testns.svc.cluster.local.").answers, ["out.testns.svc.cluster.local. A 13.14.15.16"]);
    let alias = ask("alias.example.");
    assert_eq!(alias.answers, ["alias.example. CNAME example.net.", "example.net. A 13.14.15.16"]);
    assert_eq!(ask("by.example.").answers, ["by.example. A 203.0.113.7"], "a name is changed before it is looked up");
    assert_eq!(ask("kubernetes.default.svc.cluster.local.").ttls, [7]);
    assert_eq!(ask(SERVICE).answers, [ADDRESS]);
    assert_eq!(ask(SERVICE).ttls, [30]);
}

/// An alias of the cluster leads out, and a rewrite leads back to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_of_rewrites_and_aliases_ends() {
    let whole = Whole::new("rewrite name example.net ext.testns.svc.cluster.local").await;
    let said = whole.ask(ANYBODY, "ext.testns.svc.cluster.local.", "A");
    assert!(said.answers.len() < 20, "{said:?}");
    assert!(!said.answers.iter().any(|answer| answer.contains(" A ")), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_holds_for_names_of_the_cluster() {
    let whole = Whole::new("ratelimit 1 3 {\nexcept 127.0.0.1\n}").await;
    let busy = client("127.0.3.1");
    let said: Vec<_> = (0..9).map(|_| whole.at_once(busy, SERVICE, "A").map(|said| said.cut)).collect();
    assert_eq!(said[..3], [Some(false); 3], "the burst");
    // A second may pass meanwhile, and bring one more.
    let count = |wanted| said.iter().filter(|said| **said == wanted).count();
    assert!(count(Some(false)) < 6 && count(Some(true)) > 1 && count(None) > 1, "{said:?}");
    assert_eq!(whole.ask_stream(SERVICE, "A").answers, [ADDRESS], "who shows himself is answered");
    assert_eq!(whole.ask(ANYBODY, SERVICE, "A").answers, [ADDRESS], "and who is exempt");
}

/// In CoreDNS the block with the longest zone has a name, whatever other blocks say of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_inside_of_the_domain_has_its_names() {
    let whole = Whole::with(
        "",
        "",
        "b.svc.cluster.local {\nforward . UPSTREAM\n}\n2.0.192.in-addr.arpa {\nforward . UPSTREAM\n}",
    )
    .await;
    let ask = |name: &str, qtype: &str| whole.ask(ANYBODY, name, qtype);
    assert_eq!(ask("f.b.svc.cluster.local.", "A").answers, ["f.b.svc.cluster.local. A 203.0.113.77"]);
    assert_eq!(ask("foo.cluster.local.", "A").rcode, rcode::NXDOMAIN, "that one is ours");
    assert_eq!(ask(SERVICE, "A").answers, [ADDRESS]);
    assert_eq!(ask("123.2.0.192.in-addr.arpa.", "PTR").answers, ["123.2.0.192.in-addr.arpa. PTR my.test."]);
}

/// Three blocks for all names: at a port, at another, and at an address of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_answers_where_it_is_asked() {
    let by_hand = |last: u8| format!("hosts {{\n203.0.113.{last} by.port\nfallthrough\n}}");
    let others = format!(".:5353 {{\n{}\n}}\n.:54 {{\nbind 192.0.2.1\n{}\n}}", by_hand(2), by_hand(3));
    let whole = Whole::with("", &by_hand(1), &others).await;
    let places = [("0.0.0.0:53", 1, true), ("0.0.0.0:5353", 2, false), ("192.0.2.1:54", 3, false)];
    for (at, last, has_cluster) in places {
        let ends = Ends { at: at.parse().expect("an address"), ..ANYBODY.into() };
        let (named, ours) = (question("by.port.", "A", 7), question(SERVICE, "A", 7));
        let asked = |message| Question { message, ends, transport: Transport::Udp };
        let mut out = Vec::new();
        assert!(whole.resolver.cached(&asked(&named), Instant::now(), &mut out));
        assert_eq!(said(&out).answers, [format!("by.port. A 203.0.113.{last}")], "{at}");
        let ruling = whole.resolver.rule(&asked(&ours), Instant::now(), &mut out);
        assert_eq!(ruling, if has_cluster { Ruling::Pass } else { Ruling::Beyond }, "{at}");
        if !has_cluster {
            let reply = whole.resolver.resolve(asked(&ours)).await;
            assert_eq!(said(&reply).rcode, rcode::REFUSED, "{at} has nobody to ask");
        }
    }
    let one = Whole::new("bind 127.0.0.1 127.0.0.2").await;
    assert!(!one.resolver.has_rules(), "one block at two addresses is one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_datagram_holds_for_names_of_the_cluster() {
    let (name, all) = ("big.testns.svc.cluster.local.", 150);
    let (plain, small) = (Whole::new("").await, Whole::new("bufsize 600").await);
    let (more, fewer) = (plain.ask(ANYBODY, name, "A"), small.ask(ANYBODY, name, "A"));
    assert!(
        more.cut && fewer.cut && fewer.answers.len() < more.answers.len(),
        "{} {}",
        more.answers.len(),
        fewer.answers.len()
    );
    assert!(fewer.answers.len() <= 600 / 16);
    assert_eq!(small.ask_stream(name, "A").answers.len(), all);
}
