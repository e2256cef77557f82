//! The search path of a Pod, walked by the server: one question instead of five.

use dns::wire::rcode;

use crate::whole::{ANYBODY, POD, Whole};

const AUTOPATH: &str = "autopath @kubernetes\ncache";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s34_the_search_path_of_a_pod_is_walked() {
    let whole = Whole::new(AUTOPATH).await;
    let ask = |name: &str| whole.ask(POD, name, "A");
    let own = ask("svc1.testns.svc.cluster.local.");
    assert_eq!(own.answers, ["svc1.testns.svc.cluster.local. A 10.96.0.100"], "the first step needs no alias");

    let second = ask("svc1.testns.testns.svc.cluster.local.");
    let wanted = [
        "svc1.testns.testns.svc.cluster.local. CNAME svc1.testns.svc.cluster.local.",
        "svc1.testns.svc.cluster.local. A 10.96.0.100",
    ];
    assert_eq!((second.rcode, second.answers), (rcode::NOERROR, wanted.map(str::to_owned).to_vec()));
    assert_eq!(second.ttls, [30, 30], "the alias holds as long as what it leads to");

    for _ in 0..2 {
        let last = ask("Example.net.testns.svc.cluster.local.");
        let wanted = ["Example.net.testns.svc.cluster.local. CNAME example.net.", "example.net. A 13.14.15.16"]
            .map(str::to_owned);
        assert_eq!((last.rcode, last.answers), (rcode::NOERROR, wanted.to_vec()), "asked of others, and remembered");
    }
    assert_eq!(whole.resolver.stats().walked, 3);
    let nodata = whole.ask(POD, "example.net.testns.svc.cluster.local.", "AAAA");
    let wanted = ["example.net.testns.svc.cluster.local. CNAME example.net.".to_owned()];
    assert_eq!((nodata.rcode, nodata.answers), (rcode::NOERROR, wanted.to_vec()), "there is such a name");

    let nowhere = ask("nosuch.invalid.testns.svc.cluster.local.");
    assert_eq!((nowhere.rcode, nowhere.answers.len()), (rcode::NXDOMAIN, 0));
    let alias = ask("ext.testns.testns.svc.cluster.local.");
    assert_eq!(alias.answers.len(), 3, "an alias on the way is followed: {:?}", alias.answers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s34_nothing_is_walked_for_others() {
    let whole = Whole::new(AUTOPATH).await;
    let (name, other) = ("example.net.testns.svc.cluster.local.", "example.net.other.svc.cluster.local.");
    assert_eq!(whole.ask(ANYBODY, name, "A").rcode, rcode::NXDOMAIN, "a client that is no Pod");
    assert_eq!(whole.ask(POD, other, "A").rcode, rcode::NXDOMAIN, "not the first domain of its path");
    assert_eq!(whole.ask(POD, name, "TXT").rcode, rcode::NXDOMAIN, "no address is asked for");
    assert_eq!(whole.ask(POD, "testns.svc.cluster.local.", "A").rcode, rcode::NOERROR);
    assert_eq!(whole.ask(POD, "example.net.", "A").answers, ["example.net. A 13.14.15.16"]);
    assert_eq!(whole.resolver.stats().walked, 0);

    let gone = dns::book::Update::PodGone("testns/client".into());
    whole.book.apply(gone, 9);
    assert_eq!(whole.ask(POD, name, "A").rcode, rcode::NXDOMAIN, "its address may be another Pod's any time");
    let without = Whole::new("cache").await;
    assert_eq!(without.ask(POD, name, "A").rcode, rcode::NXDOMAIN, "nobody wished for it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_hold_on_the_way() {
    let whole =
        Whole::new(&format!("{AUTOPATH}\nhosts {{\n203.0.113.7 by.hand\nfallthrough\n}}\nacl {{\nblock type AAAA\n}}"))
            .await;
    let by_hand = whole.ask(POD, "by.hand.testns.svc.cluster.local.", "A");
    assert_eq!(by_hand.answers, ["by.hand.testns.svc.cluster.local. CNAME by.hand.", "by.hand. A 203.0.113.7"]);
    assert_eq!(whole.ask(POD, "by.hand.testns.svc.cluster.local.", "AAAA").rcode, rcode::REFUSED);
}
