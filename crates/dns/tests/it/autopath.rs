//! Search path expansion (`autopath`): one query instead of five.

use dns::wire::rcode;

use crate::server::{CLIENT, POD, TestServer};

const AUTOPATH: &str = "autopath @kubernetes\ncache";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s34_the_search_path_of_a_pod_is_expanded() {
    let server = TestServer::new(AUTOPATH).await;
    let query = |name: &str| server.query(POD, name, "A");
    let own = query("svc1.testns.svc.cluster.local.");
    assert_eq!(own.answers, ["svc1.testns.svc.cluster.local. A 10.96.0.100"], "the first name needs no CNAME");

    let second = query("svc1.testns.testns.svc.cluster.local.");
    let wanted = [
        "svc1.testns.testns.svc.cluster.local. CNAME svc1.testns.svc.cluster.local.",
        "svc1.testns.svc.cluster.local. A 10.96.0.100",
    ];
    assert_eq!((second.rcode, second.answers), (rcode::NOERROR, wanted.map(str::to_owned).to_vec()));
    assert_eq!(second.ttls, [30, 30], "the CNAME has the TTL of its target");

    for _ in 0..2 {
        let last = query("Example.net.testns.svc.cluster.local.");
        let wanted = ["Example.net.testns.svc.cluster.local. CNAME example.net.", "example.net. A 13.14.15.16"]
            .map(str::to_owned);
        assert_eq!((last.rcode, last.answers), (rcode::NOERROR, wanted.to_vec()), "from upstream, then from the cache");
    }
    assert_eq!(server.resolver.stats().expanded, 3);
    let nodata = server.query(POD, "example.net.testns.svc.cluster.local.", "AAAA");
    let wanted = ["example.net.testns.svc.cluster.local. CNAME example.net.".to_owned()];
    assert_eq!((nodata.rcode, nodata.answers), (rcode::NOERROR, wanted.to_vec()), "there is such a name");

    let nowhere = query("nosuch.invalid.testns.svc.cluster.local.");
    assert_eq!((nowhere.rcode, nowhere.answers.len()), (rcode::NXDOMAIN, 0));
    let alias = query("ext.testns.testns.svc.cluster.local.");
    assert_eq!(alias.answers.len(), 3, "a CNAME is followed: {:?}", alias.answers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s34_search_paths_are_expanded_only_for_known_pods() {
    let server = TestServer::new(AUTOPATH).await;
    let (name, other) = ("example.net.testns.svc.cluster.local.", "example.net.other.svc.cluster.local.");
    assert_eq!(server.query(CLIENT, name, "A").rcode, rcode::NXDOMAIN, "a client that is no Pod");
    assert_eq!(server.query(POD, other, "A").rcode, rcode::NXDOMAIN, "not the first domain of its path");
    assert_eq!(server.query(POD, name, "TXT").rcode, rcode::NXDOMAIN, "not an address query");
    assert_eq!(server.query(POD, "testns.svc.cluster.local.", "A").rcode, rcode::NOERROR);
    assert_eq!(server.query(POD, "example.net.", "A").answers, ["example.net. A 13.14.15.16"]);
    assert_eq!(server.resolver.stats().expanded, 0);

    let gone = dns::snapshot::Update::PodDeleted("testns/client".into());
    server.snapshot.apply(gone, 9);
    assert_eq!(server.query(POD, name, "A").rcode, rcode::NXDOMAIN, "its address may be another Pod's any time");
    let without = TestServer::new("cache").await;
    assert_eq!(without.query(POD, name, "A").rcode, rcode::NXDOMAIN, "autopath is off");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_apply_to_each_name_of_the_search_path() {
    let server = TestServer::new(&format!(
        "{AUTOPATH}\nhosts {{\n203.0.113.7 by.hand\nfallthrough\n}}\nacl {{\nblock type AAAA\n}}"
    ))
    .await;
    let by_hand = server.query(POD, "by.hand.testns.svc.cluster.local.", "A");
    assert_eq!(by_hand.answers, ["by.hand.testns.svc.cluster.local. CNAME by.hand.", "by.hand. A 203.0.113.7"]);
    assert_eq!(server.query(POD, "by.hand.testns.svc.cluster.local.", "AAAA").rcode, rcode::REFUSED);
}
