//! `acl`, `rewrite`, `hosts`, `template`, `autopath`.

use super::*;
use crate::config::Name;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_rules_match_source_and_type() {
    let fake = Fake::with_address([192, 0, 2, 1]).await;
    let bench = Bench::new(&format!(
        "acl {{\nallow net 10.244.0.0/16\ndrop net 203.0.113.0/24\nfilter type AAAA\nblock\n}}\nforward . {}\ncache",
        fake.address
    ));
    bench.ask("a.example").await;
    let from = |client: &str, qtype: Rtype| {
        let message = ask("a.example", qtype, Some(1232));
        let client: IpAddr = client.parse().expect("an address");
        let question = Request { from: client.into(), ..udp(&message) };
        let mut out = Vec::new();
        assert!(bench.resolver.cached(&question, bench.now(), &mut out));
        let cold = futures_now(bench.resolver.clone(), message.clone(), client);
        (out, cold)
    };
    let (hot, cold) = from("10.244.3.4", Rtype::A);
    assert_eq!((summary(&hot).answers.len(), summary(&cold.await).answers.len()), (1, 1));
    let (hot, cold) = from("192.0.2.99", Rtype::A);
    let refused = ReplySummary { extended: Some(18), ..answer(Rcode::REFUSED, &[]) };
    assert_eq!(
        (summary(&hot), summary(&cold.await)),
        (ReplySummary { extended: Some(18), ..answer(Rcode::REFUSED, &[]) }, refused)
    );
    let (hot, _) = from("192.0.2.99", Rtype::AAAA);
    assert_eq!(summary(&hot), ReplySummary { extended: Some(17), ..answer(Rcode::NOERROR, &[]) });
    let (hot, cold) = from("203.0.113.5", Rtype::A);
    assert_eq!((hot, cold.await), (vec![], vec![]), "silence");
    let (hot, _) = from("::ffff:10.244.3.4", Rtype::A);
    assert_eq!(summary(&hot).answers.len(), 1, "a mapped address is that address");
}

async fn futures_now(resolver: Arc<Resolver>, message: Vec<u8>, client: IpAddr) -> Vec<u8> {
    resolver.resolve(Request { from: client.into(), ..udp(&message) }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_and_template_do_not_query_upstreams() {
    let fake = Fake::with_address([192, 0, 2, 1]).await;
    let bench = Bench::new(&format!(
        "hosts {{\n203.0.113.7 hand.example\nfallthrough\n}}\ntemplate IN A gone.example {{\nrcode NXDOMAIN\nederror 15 \"gone for good\"\n}}\n\
         forward . {}",
        fake.address
    ));
    assert_eq!(bench.cached_answer("Hand.example"), Some(answer(Rcode::NOERROR, &["Hand.example 3600 203.0.113.7"])));
    assert_eq!(bench.ask("x.gone.example").await, ReplySummary { extended: Some(15), ..answer(Rcode::NXDOMAIN, &[]) });
    let back = bench.resolver.resolve(udp(&ask("7.113.0.203.in-addr.arpa", Rtype::PTR, None))).await;
    assert_eq!(summary(&back).answers, ["7.113.0.203.in-addr.arpa 3600 hand.example."]);
    assert!(fake.queries().is_empty());
    assert_eq!(bench.ask("other.example").await.answers.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hosts_file_may_change() {
    let path = std::env::temp_dir().join(format!("waypost-hosts-{}", std::process::id()));
    std::fs::write(&path, "203.0.113.7 a.example\n").expect("written");
    let bench = Bench::new(&format!("hosts {} {{\nreload 10ms\n}}", path.display()));
    assert_eq!(bench.ask("a.example").await.answers, ["a.example 3600 203.0.113.7"]);
    std::fs::write(&path, "203.0.113.8 a.example\n").expect("written");
    let is_new =
        || bench.cached_answer("a.example").is_some_and(|summary| summary.answers == ["a.example 3600 203.0.113.8"]);
    until("the new file is read", is_new).await;
    std::fs::remove_file(&path).expect("removed");
}

/// Cluster zones with one Service and one Pod.
struct Cluster;

impl LocalZones for Cluster {
    fn answer(&self, message: &[u8]) -> LocalAnswer {
        let query_name =
            Message::from_octets(message).expect("a question").sole_question().expect("one").qname().to_string();
        let query_name = query_name.trim_end_matches('.');
        if !query_name.ends_with("cluster.local") {
            return LocalAnswer::NotLocal;
        }
        let answer = reply(message);
        LocalAnswer::Reply(match query_name {
            "web.shop.svc.cluster.local" => answer.a(5, [10, 96, 0, 7]).done(),
            _ => answer.code(Rcode::NXDOMAIN).soa("cluster.local", 5, 5).done(),
        })
    }

    fn finish_cname(&self, _: &[u8], _: &crate::answer::CnameChain, _: &Lookup) -> Vec<u8> {
        unreachable!("no name of this cluster leads out")
    }

    fn search_path(&self, client: IpAddr) -> Option<Vec<Name>> {
        let names = ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example"];
        (client == CLIENT).then(|| names.iter().map(|text| Name::parse(text).expect("a name")).collect())
    }
}

async fn with_cluster(directives: &str) -> (Bench, Fake) {
    let fake = Fake::new(|_, question| {
        let query_name =
            Message::from_octets(question).expect("a question").sole_question().expect("one").qname().to_string();
        let answer = reply(question);
        Reply::Say(vec![match query_name.trim_end_matches('.') {
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
async fn a_rewrite_target_may_be_a_cluster_name() {
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
    assert_eq!(bench.cached_answer("shop.example"), None, "a name that is changed is not looked up under its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_search_path_of_the_client_is_expanded() {
    let (bench, fake) = with_cluster("autopath @kubernetes").await;
    for (query_name, want) in [
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
        assert_eq!(bench.ask(query_name).await, answer(Rcode::NOERROR, &want), "{query_name}");
    }
    let nowhere = bench.ask("nowhere.invalid.shop.svc.cluster.local").await;
    assert_eq!(nowhere, answer(Rcode::NXDOMAIN, &[]));

    let message = ask("example.net.shop.svc.cluster.local", Rtype::A, None);
    assert!(bench.resolver.has_search_path(&udp(&message)));
    let stranger: IpAddr = "10.244.9.9".parse().expect("an address");
    let stranger = Request { from: stranger.into(), ..udp(&message) };
    assert!(!bench.resolver.has_search_path(&stranger), "whoever has no Pod here has no path");
    let text = ask("example.net.shop.svc.cluster.local", Rtype::TXT, None);
    assert!(!bench.resolver.has_search_path(&udp(&text)));
    assert!(!fake.queries().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_over_its_rate_limit_gets_fewer_replies() {
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
    let by_tcp = Request { transport: Transport::Tcp, ..udp(&message) };
    assert_eq!(summary(&bench.resolver.resolve(by_tcp).await).answers.len(), 1, "who shows himself is answered");
    assert_eq!(bench.resolver.stats().limited, 16);
}
