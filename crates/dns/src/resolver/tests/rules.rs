//! Who may ask, other names, names by hand, the search path.

use super::*;
use crate::config::Name;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acl_decides_by_source_and_type() {
    let fake = Fake::with_address([192, 0, 2, 1]).await;
    let bench = Bench::new(&format!(
        "acl {{\nallow net 10.244.0.0/16\ndrop net 203.0.113.0/24\nfilter type AAAA\nblock\n}}\nforward . {}\ncache",
        fake.address
    ));
    bench.ask("a.example").await;
    let from = |client: &str, qtype: Rtype| {
        let message = ask("a.example", qtype, Some(1232));
        let client: IpAddr = client.parse().expect("an address");
        let question = Question { ends: client.into(), ..udp(&message) };
        let mut out = Vec::new();
        assert!(bench.resolver.cached(&question, bench.now(), &mut out));
        let cold = futures_now(bench.resolver.clone(), message.clone(), client);
        (out, cold)
    };
    let (hot, cold) = from("10.244.3.4", Rtype::A);
    assert_eq!((said(&hot).answers.len(), said(&cold.await).answers.len()), (1, 1));
    let (hot, cold) = from("192.0.2.99", Rtype::A);
    let refused = Said { extended: Some(18), ..answer(Rcode::REFUSED, &[]) };
    assert_eq!((said(&hot), said(&cold.await)), (Said { extended: Some(18), ..answer(Rcode::REFUSED, &[]) }, refused));
    let (hot, _) = from("192.0.2.99", Rtype::AAAA);
    assert_eq!(said(&hot), Said { extended: Some(17), ..answer(Rcode::NOERROR, &[]) });
    let (hot, cold) = from("203.0.113.5", Rtype::A);
    assert_eq!((hot, cold.await), (vec![], vec![]), "silence");
    let (hot, _) = from("::ffff:10.244.3.4", Rtype::A);
    assert_eq!(said(&hot).answers.len(), 1, "a mapped address is that address");
}

async fn futures_now(resolver: Arc<Resolver>, message: Vec<u8>, client: IpAddr) -> Vec<u8> {
    resolver.resolve(Question { ends: client.into(), ..udp(&message) }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_by_hand_and_by_rule_ask_nobody() {
    let fake = Fake::with_address([192, 0, 2, 1]).await;
    let bench = Bench::new(&format!(
        "hosts {{\n203.0.113.7 hand.example\nfallthrough\n}}\ntemplate IN A gone.example {{\nrcode NXDOMAIN\nederror 15 \"gone for good\"\n}}\n\
         forward . {}",
        fake.address
    ));
    assert_eq!(bench.remembered("Hand.example"), Some(answer(Rcode::NOERROR, &["Hand.example 3600 203.0.113.7"])));
    assert_eq!(bench.ask("x.gone.example").await, Said { extended: Some(15), ..answer(Rcode::NXDOMAIN, &[]) });
    let back = bench.resolver.resolve(udp(&ask("7.113.0.203.in-addr.arpa", Rtype::PTR, None))).await;
    assert_eq!(said(&back).answers, ["7.113.0.203.in-addr.arpa 3600 hand.example."]);
    assert!(fake.asked().is_empty());
    assert_eq!(bench.ask("other.example").await.answers.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hosts_file_may_change() {
    let path = std::env::temp_dir().join(format!("waypost-hosts-{}", std::process::id()));
    std::fs::write(&path, "203.0.113.7 a.example\n").expect("written");
    let bench = Bench::new(&format!("hosts {} {{\nreload 10ms\n}}", path.display()));
    assert_eq!(bench.ask("a.example").await.answers, ["a.example 3600 203.0.113.7"]);
    std::fs::write(&path, "203.0.113.8 a.example\n").expect("written");
    let is_new = || bench.remembered("a.example").is_some_and(|said| said.answers == ["a.example 3600 203.0.113.8"]);
    until("the new file is read", is_new).await;
    std::fs::remove_file(&path).expect("removed");
}

/// A cluster with one Service and one Pod.
struct Cluster;

impl Local for Cluster {
    fn answer(&self, message: &[u8]) -> Known {
        let asked =
            Message::from_octets(message).expect("a question").sole_question().expect("one").qname().to_string();
        let asked = asked.trim_end_matches('.');
        if !asked.ends_with("cluster.local") {
            return Known::Nothing;
        }
        let answer = reply(message);
        Known::All(match asked {
            "web.shop.svc.cluster.local" => answer.a(5, [10, 96, 0, 7]).done(),
            _ => answer.code(Rcode::NXDOMAIN).soa("cluster.local", 5, 5).done(),
        })
    }

    fn followed(&self, _: &[u8], _: &crate::answer::Chase, _: &Lookup) -> Vec<u8> {
        unreachable!("no name of this cluster leads out")
    }

    fn search_path(&self, client: IpAddr) -> Option<Vec<Name>> {
        let names = ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example"];
        (client == CLIENT).then(|| names.iter().map(|text| Name::parse(text).expect("a name")).collect())
    }
}

async fn with_cluster(directives: &str) -> (Bench, Fake) {
    let fake = Fake::new(|_, question| {
        let asked =
            Message::from_octets(question).expect("a question").sole_question().expect("one").qname().to_string();
        let answer = reply(question);
        Reply::Say(vec![match asked.trim_end_matches('.') {
            "example.net" | "db.corp.example" => answer.a(60, [192, 0, 2, 1]).done(),
            _ => answer.code(Rcode::NXDOMAIN).soa(".", 60, 60).done(),
        }])
    })
    .await;
    let text = format!(". {{\nkubernetes cluster.local\nforward . {}\ncache\n{directives}\n}}", fake.address);
    let mut config = config(&text);
    config.local = Some(Arc::new(Cluster));
    (Bench::with(config), fake)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_name_may_be_one_of_the_cluster() {
    let (bench, _fake) = with_cluster(
        "rewrite name shop.example web.shop.svc.cluster.local\nrewrite name suffix .old.example .corp.example\nrewrite ttl exact example.net 7",
    )
    .await;
    assert_eq!(bench.ask("Shop.Example").await, answer(Rcode::NOERROR, &["Shop.Example 5 10.96.0.7"]));
    assert_eq!(bench.ask("db.old.example").await, answer(Rcode::NOERROR, &["db.old.example 60 192.0.2.1"]));
    assert_eq!(bench.ask("example.net").await, answer(Rcode::NOERROR, &["example.net 7 192.0.2.1"]));
    let found = bench.resolver.lookup(&wire("shop.example"), 1, CLIENT.into()).await;
    assert_eq!(
        (found.records.len(), &found.records[0].owner),
        (1, &wire("shop.example")),
        "the same way for who follows an alias"
    );
    assert_eq!(bench.remembered("shop.example"), None, "a name that is changed is not looked up under its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_search_path_is_walked_for_the_client() {
    let (bench, fake) = with_cluster("autopath @kubernetes").await;
    for (asked, want) in [
        ("web.shop.svc.cluster.local", vec!["web.shop.svc.cluster.local 5 10.96.0.7"]),
        (
            "web.shop.shop.svc.cluster.local",
            vec![
                "web.shop.shop.svc.cluster.local 5 web.shop.svc.cluster.local.",
                "web.shop.svc.cluster.local 5 10.96.0.7",
            ],
        ),
        (
            "db.shop.svc.cluster.local",
            vec!["db.shop.svc.cluster.local 60 db.corp.example.", "db.corp.example 60 192.0.2.1"],
        ),
        (
            "example.net.shop.svc.cluster.local",
            vec!["example.net.shop.svc.cluster.local 60 example.net.", "example.net 60 192.0.2.1"],
        ),
    ] {
        assert_eq!(bench.ask(asked).await, answer(Rcode::NOERROR, &want), "{asked}");
    }
    let nowhere = bench.ask("nowhere.invalid.shop.svc.cluster.local").await;
    assert_eq!(nowhere, answer(Rcode::NXDOMAIN, &[]));

    let message = ask("example.net.shop.svc.cluster.local", Rtype::A, None);
    assert!(bench.resolver.has_search_path(&udp(&message)));
    let stranger: IpAddr = "10.244.9.9".parse().expect("an address");
    let stranger = Question { ends: stranger.into(), ..udp(&message) };
    assert!(!bench.resolver.has_search_path(&stranger), "whoever has no Pod here has no path");
    let text = ask("example.net.shop.svc.cluster.local", Rtype::TXT, None);
    assert!(!bench.resolver.has_search_path(&udp(&text)));
    assert!(!fake.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_asks_too_much_gets_less() {
    let fake = Fake::with_address([192, 0, 2, 1]).await;
    let bench = Bench::new(&format!("forward . {}\ncache\nratelimit 1 4", fake.address));
    let message = ask("a.example", Rtype::A, None);
    let (mut full, mut empty, mut silent) = (0, 0, 0);
    for _ in 0..20 {
        let reply = bench.resolver.resolve(udp(&message)).await;
        match reply.len() {
            0 => silent += 1,
            _ if Message::from_octets(reply.as_slice()).expect("a message").header().tc() => empty += 1,
            _ => full += 1,
        }
    }
    assert_eq!((full, empty, silent), (4, 8, 8));
    let by_tcp = Question { transport: Transport::Tcp, ..udp(&message) };
    assert_eq!(said(&bench.resolver.resolve(by_tcp).await).answers.len(), 1, "who shows himself is answered");
    assert_eq!(bench.resolver.stats().limited, 16);
}
