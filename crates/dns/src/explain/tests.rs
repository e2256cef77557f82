use super::*;
use crate::answer::tests::book;

fn explained(book: &Book, name: &str, qtype: u16) -> (Vec<String>, String) {
    let found = book.explain(name, qtype).expect("a name");
    let line = |one: &Explained| {
        let from: Vec<String> = one.from.iter().map(ToString::to_string).collect();
        format!("{} <- {}", one.record.data_text(), from.join(", "))
    };
    (found.answer.iter().map(line).collect(), found.why)
}

#[test]
fn records_come_from_objects() {
    let book = book(|_| {});
    let lines = |name: &str, qtype| explained(&book, &format!("{name}.cluster.local"), qtype).0;
    assert_eq!(lines("web.ns.svc", rtype::A), ["10.96.0.1 <- Service ns/web (spec.clusterIPs)"]);
    assert_eq!(lines("db-0.db.ns.svc", rtype::A), ["10.1.0.1 <- EndpointSlice ns/db-a (endpoints)"]);
    let srv = lines("_sql._tcp.db.ns.svc", rtype::SRV);
    assert!(
        srv.contains(&"0 50 5432 db-0.db.ns.svc.cluster.local. <- EndpointSlice ns/db-a (endpoints)".to_owned()),
        "{srv:?}"
    );
    assert_eq!(
        lines("_http._tcp.web.ns.svc", rtype::SRV),
        ["0 100 80 web.ns.svc.cluster.local. <- Service ns/web (spec.ports)"]
    );
    assert_eq!(lines("alias.ns.svc", rtype::A)[0], "web.ns.svc.cluster.local. <- Service ns/alias (spec.externalName)");
    assert_eq!(lines("1-2-3-4.ns.pod", rtype::A), ["1.2.3.4 <- the address that the name spells"]);
    let pointer = explained(&book, "1.0.1.10.in-addr.arpa", rtype::PTR).0;
    assert_eq!(pointer, ["db-0.db.ns.svc.cluster.local. <- EndpointSlice ns/db-a (endpoints)"]);
}

#[test]
fn what_is_missing_is_said() {
    let book = book(|_| {});
    let why = |name: &str| explained(&book, name, rtype::A).1;
    assert_eq!(why("nope.ns.svc.cluster.local"), "there is no Service ns/nope");
    assert_eq!(why("web.nowhere.svc.cluster.local"), "namespace nowhere does not exist");
    assert_eq!(why("empty.ns.svc.cluster.local"), "Service ns/empty has no address of its own and no ready endpoint");
    assert_eq!(why("_x._udp.web.ns.svc.cluster.local"), "Service ns/web has no port named x of protocol udp");
    assert_eq!(why("e.web.ns.svc.cluster.local"), "Service ns/web has no ready endpoint named e");
    assert_eq!(why("ns.svc.cluster.local"), "the name exists, and has no record of this type");
    assert_eq!(why("circle.ns.svc.cluster.local"), "it is another name, and following it leads in a circle or too far");
    assert!(why("out.ns.svc.cluster.local").contains("another name for example.net."));
    assert!(why("example.net").contains("none of our zones"));
    assert!(
        why("9.9.9.9.in-addr.arpa").starts_with("no form") || why("9.9.9.9.in-addr.arpa").contains("others are asked")
    );
}
