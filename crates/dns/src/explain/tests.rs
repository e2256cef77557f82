use super::*;
use crate::answer::tests::snapshot;

fn explained(snapshot: &ZoneSnapshot, name: &str, qtype: u16) -> (Vec<String>, String) {
    let found = snapshot.explain(name, qtype).expect("a name");
    let line = |one: &Explained| {
        let from: Vec<String> = one.from.iter().map(ToString::to_string).collect();
        format!("{} <- {}", one.record.data_text(), from.join(", "))
    };
    (found.answer.iter().map(line).collect(), found.why)
}

#[test]
fn records_come_from_objects() {
    let snapshot = snapshot(|_| {});
    let lines = |name: &str, qtype| explained(&snapshot, &format!("{name}.cluster.local"), qtype).0;
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
    assert_eq!(lines("1-2-3-4.ns.pod", rtype::A), ["1.2.3.4 <- address in the query name"]);
    let pointer = explained(&snapshot, "1.0.1.10.in-addr.arpa", rtype::PTR).0;
    assert_eq!(pointer, ["db-0.db.ns.svc.cluster.local. <- EndpointSlice ns/db-a (endpoints)"]);
}

#[test]
fn missing_objects_are_named() {
    let snapshot = snapshot(|_| {});
    let why = |name: &str| explained(&snapshot, name, rtype::A).1;
    assert_eq!(why("nope.ns.svc.cluster.local"), "there is no Service ns/nope");
    assert_eq!(why("web.nowhere.svc.cluster.local"), "namespace nowhere does not exist");
    assert_eq!(why("empty.ns.svc.cluster.local"), "Service ns/empty is headless and has no ready endpoint");
    assert_eq!(why("_x._udp.web.ns.svc.cluster.local"), "Service ns/web has no port named x of protocol udp");
    assert_eq!(why("e.web.ns.svc.cluster.local"), "Service ns/web has no ready endpoint named e");
    assert_eq!(why("ns.svc.cluster.local"), "NODATA: the name exists but has no record of this type");
    assert_eq!(why("circle.ns.svc.cluster.local"), "the CNAME chain is a loop or too long");
    assert!(why("out.ns.svc.cluster.local").contains("CNAME to example.net."));
    assert!(why("example.net").contains("outside the cluster zones"));
    assert!(
        why("9.9.9.9.in-addr.arpa").starts_with("invalid name")
            || why("9.9.9.9.in-addr.arpa").contains("the query is forwarded")
    );
}
