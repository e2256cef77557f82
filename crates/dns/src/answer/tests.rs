//! Cases that the corpus does not cover: readiness, rotation of addresses, truncation, arbitrary input.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::snapshot::Update;
use crate::wire::{Message, Record, Section, from_text, to_text};
use crate::zone::Config;

pub(crate) fn service(name: &str, spec: &Value) -> Update {
    let object = json!({"metadata": {"namespace": "ns", "name": name}, "spec": spec});
    Update::Service(Box::new(serde_json::from_value(object).expect("a Service")))
}

pub(crate) fn slice(name: &str, service: &str, endpoints: &Value) -> Update {
    let object = json!({"metadata": {"namespace": "ns", "name": name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]});
    Update::Slice(Box::new(serde_json::from_value(object).expect("a slice")))
}

/// Snapshot with a few Services.
pub(crate) fn snapshot(change: impl FnOnce(&mut Config)) -> Arc<ZoneSnapshot> {
    let mut config = Config::default();
    change(&mut config);
    let snapshot = ZoneSnapshot::new(config).expect("zones");
    let none = json!({"clusterIPs": ["None"], "ports": [{"name": "sql", "port": 5432}]});
    let many: Vec<Value> = (0..200).map(|last| json!({"addresses": [format!("10.2.0.{last}")]})).collect();
    let pair = json!([{"addresses": ["10.1.0.1"], "hostname": "db-0"}, {"addresses": ["10.1.0.2"]}]);
    let alias = |target: &str| json!({"type": "ExternalName", "externalName": target});
    for update in [
        Update::Namespace("ns".into()),
        service("web", &json!({"clusterIPs": ["10.96.0.1"], "ports": [{"name": "http", "port": 80}]})),
        service("db", &none),
        slice("db-a", "db", &pair),
        service("many", &none),
        slice("many-a", "many", &json!(many)),
        service("empty", &none),
        service("alias", &alias("web.ns.svc.cluster.local")),
        service("circle", &alias("circle.ns.svc.cluster.local")),
        service("out", &alias("example.net")),
    ] {
        snapshot.apply(update, 7);
    }
    snapshot.set_ready();
    snapshot
}

fn question(name: &str, qtype: u16, edns: Option<u16>) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())];
    out.extend(from_text(name).expect("a name"));
    out.extend([qtype.to_be_bytes(), IN.to_be_bytes()].concat());
    if let Some(size) = edns {
        out.extend([&[0, 0, 41][..], &size.to_be_bytes(), &[0; 6]].concat());
    }
    out
}

/// RCODE, whether the reply is truncated, and the answer records.
fn ask(snapshot: &ZoneSnapshot, scratch: &mut Scratch, message: &[u8]) -> (u16, bool, Vec<Record>) {
    let mut out = Vec::new();
    assert!(matches!(snapshot.answer(message, Transport::Udp, scratch, &mut out), Outcome::Reply));
    let reply = Message::read(&out).expect("a message");
    let answers = usize::from(reply.count(Section::Answer));
    let records = reply.records().take(answers).map(|record| record.expect("whole")).collect();
    (reply.flags() & 15, reply.flags() & flag::TC != 0, records)
}

#[test]
fn labels_before_a_pod_name_are_rejected_unless_coredns_compatible() {
    let query_with = |quirks, name: &str| {
        let snapshot = snapshot(|config| config.quirks = quirks);
        let (code, _, records) = ask(&snapshot, &mut Scratch::new(1), &question(name, rtype::SRV, None));
        (code, records.first().map(|record| to_text(&record.data[6..])))
    };
    let own = "1-2-3-4.ns.pod.cluster.local.";
    for before in ["", "a.", "a.b."] {
        assert_eq!(query_with(Quirks::CoreDns, &format!("{before}{own}")), (rcode::NOERROR, Some(own.to_owned())));
    }
    assert_eq!(query_with(Quirks::CoreDns, &format!("a.b.c.{own}")), (rcode::NXDOMAIN, None));
    assert_eq!(query_with(Quirks::None, own), (rcode::NOERROR, None));
    assert_eq!(query_with(Quirks::None, &format!("a.{own}")), (rcode::NXDOMAIN, None));
}

#[test]
fn a_reverse_name_has_nodata_for_other_types() {
    let authority = |quirks, name: &str, qtype| {
        let snapshot = snapshot(|config| {
            config.quirks = quirks;
            config.fallthrough = crate::zone::Fallthrough::Never;
        });
        let mut out = Vec::new();
        let outcome = snapshot.answer(&question(name, qtype, None), Transport::Udp, &mut Scratch::new(1), &mut out);
        assert!(matches!(outcome, Outcome::Reply), "{name}: {outcome:?}");
        let reply = Message::read(&out).expect("a message");
        assert_eq!((reply.count(Section::Answer), reply.count(Section::Authority)), (0, 1), "{name} {qtype}");
        let soa = reply.records().next().expect("a record").expect("whole");
        assert_eq!((soa.rtype, to_text(&soa.owner).as_str()), (rtype::SOA, "in-addr.arpa."), "{name} {qtype}");
        reply.flags() & 15
    };
    for qtype in
        [rtype::SOA, rtype::A, rtype::AAAA, rtype::TXT, rtype::NS, rtype::SRV, rtype::CNAME, rtype::MX, rtype::ANY]
    {
        // A cluster IP and an endpoint address.
        for name in ["1.0.96.10.in-addr.arpa", "2.0.1.10.in-addr.arpa"] {
            assert_eq!(authority(Quirks::None, name, qtype), rcode::NOERROR, "{name} {qtype}");
        }
        // NXDOMAIN, and not an address.
        for name in ["9.0.96.10.in-addr.arpa", "0.96.10.in-addr.arpa", "x.1.0.96.10.in-addr.arpa"] {
            assert_eq!(authority(Quirks::None, name, qtype), rcode::NXDOMAIN, "{name} {qtype}");
        }
        let of_coredns = if qtype == rtype::SOA { rcode::NOERROR } else { rcode::NXDOMAIN };
        assert_eq!(authority(Quirks::CoreDns, "1.0.96.10.in-addr.arpa", qtype), of_coredns, "{qtype}");
    }
    let snapshot = snapshot(|_| {});
    let (code, _, records) =
        ask(&snapshot, &mut Scratch::new(1), &question("1.0.96.10.in-addr.arpa", rtype::PTR, None));
    assert_eq!((code, records[0].data_text().as_str()), (rcode::NOERROR, "web.ns.svc.cluster.local."));
}

#[test]
fn before_readiness_queries_get_servfail() {
    let snapshot = ZoneSnapshot::new(Config::default()).expect("zones");
    snapshot.apply(Update::Namespace("ns".into()), 1);
    snapshot.apply(service("web", &json!({"clusterIPs": ["10.96.0.1"], "ports": [{"port": 80}]})), 2);
    let mut out = Vec::new();
    for name in ["web.ns.svc.cluster.local", "nope.ns.svc.cluster.local", "9.9.9.9.in-addr.arpa"] {
        let outcome =
            snapshot.answer(&question(name, rtype::A, Some(1232)), Transport::Udp, &mut Scratch::new(1), &mut out);
        assert!(matches!(outcome, Outcome::NotReady), "not forwarded either");
        let reply = Message::read(&out).expect("a message");
        assert_eq!((reply.flags() & 15, reply.count(Section::Authority)), (rcode::SERVFAIL, 1));
        let opt = reply.records().last().expect("OPT").expect("whole");
        assert_eq!(opt.data, [0, 15, 0, 2, 0, 14], "not ready, says the extended error");
    }
    snapshot.set_ready();
    let (code, _, records) =
        ask(&snapshot, &mut Scratch::new(1), &question("web.ns.svc.cluster.local", rtype::A, None));
    assert_eq!((code, records.len(), snapshot.serial()), (rcode::NOERROR, 1, 2));
}

#[test]
fn rotation_covers_all_endpoints_of_a_truncated_reply() {
    let snapshot = snapshot(|_| {});
    let mut scratch = Scratch::new(3);
    let (mut first, mut labels) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..400 {
        let (_, is_truncated, records) =
            ask(&snapshot, &mut scratch, &question("many.ns.svc.cluster.local", rtype::A, None));
        assert!(is_truncated && records.len() == 29, "{} records", records.len());
        first.insert(records[0].data.clone());
        labels.extend(records.into_iter().map(|record| record.data));
    }
    assert!(labels.len() == 200 && first.len() > 100, "{} and {}", labels.len(), first.len());
    let (_, is_truncated, records) =
        ask(&snapshot, &mut scratch, &question("many.ns.svc.cluster.local", rtype::A, Some(4096)));
    assert!(!is_truncated && records.len() == 200);
    let name = "_sql._tcp.many.ns.svc.cluster.local";
    let (_, is_truncated, records) = ask(&snapshot, &mut scratch, &question(name, rtype::SRV, Some(1232)));
    assert!(is_truncated && !records.is_empty());
}

#[test]
fn ttls_depend_on_the_record_kind() {
    let snapshot = snapshot(|_| {});
    let ttl = |name: &str| ask(&snapshot, &mut Scratch::new(1), &question(name, rtype::A, None)).2[0].ttl;
    assert_eq!((ttl("web.ns.svc.cluster.local"), ttl("db.ns.svc.cluster.local")), (30, 5));
}

#[test]
fn names_of_a_deleted_namespace_do_not_exist() {
    let snapshot = snapshot(|_| {});
    let code = |name: &str| ask(&snapshot, &mut Scratch::new(1), &question(name, rtype::A, None)).0;
    assert_eq!(code("ns.svc.cluster.local"), rcode::NOERROR);
    assert!(snapshot.apply(Update::NamespaceDeleted("ns".into()), 9));
    assert_eq!((code("ns.svc.cluster.local"), code("web.ns.svc.cluster.local")), (rcode::NXDOMAIN, rcode::NXDOMAIN));
    assert!(snapshot.apply(Update::Namespace("ns".into()), 10) && !snapshot.apply(Update::Namespace("ns".into()), 11));
    assert_eq!((code("web.ns.svc.cluster.local"), snapshot.serial()), (rcode::NOERROR, 10));
}

#[test]
fn an_external_cname_target_is_resolved_upstream() {
    let snapshot = snapshot(|_| {});
    let message = question("out.ns.svc.cluster.local", rtype::A, None);
    let mut out = Vec::new();
    let outcome = snapshot.answer(&message, Transport::Udp, &mut Scratch::new(1), &mut out);
    let Outcome::FollowCname(chain) = outcome else { panic!("{outcome:?}") };
    let target = from_text("example.net").expect("a name");
    assert_eq!(chain.target(), target);
    let record = Record { owner: target, rtype: rtype::A, class: 1, ttl: 9, data: vec![1, 2, 3, 4] };
    let found = crate::forward::Lookup { rcode: 0, truncated: true, records: vec![record] };
    snapshot.finish_cname(&message, Transport::Udp, &chain, &found, &mut out);
    let reply = Message::read(&out).expect("a message");
    let lines: Vec<String> = reply.records().map(|record| record.expect("whole").text()).collect();
    assert_eq!(lines, ["out.ns.svc.cluster.local. 30 IN CNAME example.net.", "example.net. 9 IN A 1.2.3.4"]);
    assert_ne!(reply.flags() & flag::TC, 0, "what others left out is left out");
}

/// RDATA of the answer for a name of the namespace, sorted.
fn data(snapshot: &ZoneSnapshot, name: &str, qtype: u16) -> Vec<String> {
    let message = question(&format!("{name}.ns.svc.cluster.local"), qtype, Some(4096));
    let mut data: Vec<String> = ask(snapshot, &mut Scratch::new(1), &message).2.iter().map(Record::data_text).collect();
    data.sort();
    data
}

#[test]
fn s35_named_ports_have_srv_records() {
    let snapshot = snapshot(|_| {});
    assert_eq!(data(&snapshot, "_http._tcp.web", rtype::SRV), ["0 100 80 web.ns.svc.cluster.local."]);
    assert!(
        data(&snapshot, "_https._tcp.web", rtype::SRV).is_empty()
            && data(&snapshot, "_http._udp.web", rtype::SRV).is_empty()
    );
    let endpoints = ["0 50 5432 10-1-0-2.db.ns.svc.cluster.local.", "0 50 5432 db-0.db.ns.svc.cluster.local."];
    assert_eq!(data(&snapshot, "_sql._tcp.db", rtype::SRV), endpoints);
}

#[test]
fn s36_an_external_name_is_a_cname_until_the_service_type_changes() {
    let snapshot = snapshot(|_| {});
    assert_eq!(data(&snapshot, "out", rtype::CNAME), ["example.net."]);
    assert_eq!(data(&snapshot, "alias", rtype::A), ["10.96.0.1", "web.ns.svc.cluster.local."]);
    snapshot.apply(service("out", &json!({"type": "ExternalName", "externalName": "1.2.3.4"})), 8);
    assert!(data(&snapshot, "out", rtype::A).is_empty() && data(&snapshot, "out", rtype::CNAME).is_empty());
    snapshot
        .apply(service("out", &json!({"type": "ClusterIP", "clusterIPs": ["10.96.0.8"], "ports": [{"port": 80}]})), 9);
    assert_eq!(data(&snapshot, "out", rtype::A), ["10.96.0.8"]);
    snapshot.apply(service("out", &json!({"clusterIPs": ["None"]})), 10);
    snapshot.apply(slice("out-a", "out", &json!([{"addresses": ["10.9.0.1"]}])), 11);
    assert_eq!(data(&snapshot, "out", rtype::A), ["10.9.0.1"]);
}

#[test]
fn s37_a_headless_service_has_the_addresses_of_ready_endpoints() {
    let snapshot = snapshot(|_| {});
    assert_eq!(data(&snapshot, "db", rtype::A), ["10.1.0.1", "10.1.0.2"]);
    let ready =
        |ready: bool| json!([{"addresses": ["10.1.0.1"]}, {"addresses": ["10.1.0.2"], "conditions": {"ready": ready}}]);
    snapshot.apply(slice("db-a", "db", &ready(false)), 8);
    assert_eq!(data(&snapshot, "db", rtype::A), ["10.1.0.1"]);
    snapshot.apply(slice("db-b", "db", &json!([{"addresses": ["10.1.0.3", "10.1.0.1"]}])), 9);
    assert_eq!(data(&snapshot, "db", rtype::A), ["10.1.0.1", "10.1.0.3"], "all slices, each address once");
    snapshot.apply(Update::SliceDeleted("ns/db-a".into()), 10);
    snapshot.apply(Update::SliceDeleted("ns/db-b".into()), 11);
    let message = question("db.ns.svc.cluster.local", rtype::A, None);
    assert_eq!(ask(&snapshot, &mut Scratch::new(1), &message).0, rcode::NXDOMAIN, "no ready endpoint");
}

/// While a Service changes, readers see either the old or the new state.
#[test]
fn answers_are_consistent_during_updates() {
    let snapshot = snapshot(|_| {});
    let states: [Vec<Value>; 2] = [0, 100]
        .map(|start| (start..start + 50).map(|last| json!({"addresses": [format!("10.3.0.{last}")]})).collect());
    snapshot.apply(service("flip", &json!({"clusterIPs": ["None"]})), 1);
    snapshot.apply(slice("flip-a", "flip", &json!(states[0])), 1);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = || {
            let (mut scratch, mut labels) = (Scratch::new(5), [0u32; 2]);
            let message = question("flip.ns.svc.cluster.local", rtype::A, Some(4096));
            while !done.load(std::sync::atomic::Ordering::Acquire) || labels[0] + labels[1] < 100 {
                let (code, _, records) = ask(&snapshot, &mut scratch, &message);
                let state = usize::from(records[0].data[3] >= 100);
                let low = u8::try_from(state * 100).expect("small");
                let all: BTreeSet<u8> = records.iter().map(|record| record.data[3]).collect();
                assert_eq!((code, all), (rcode::NOERROR, (low..low + 50).collect()));
                labels[state] += 1;
            }
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        for round in 1..2000 {
            assert!(snapshot.apply(slice("flip-a", "flip", &json!(states[round % 2])), 2));
        }
        done.store(true, std::sync::atomic::Ordering::Release);
        readers.into_iter().for_each(|reader| reader.join().expect("no reader saw anything else"));
    });
}

/// Snapshots for many queries: standard behaviour, and that of CoreDNS.
static SNAPSHOTS: LazyLock<[Arc<ZoneSnapshot>; 2]> =
    LazyLock::new(|| [Quirks::None, Quirks::CoreDns].map(|quirks| snapshot(|config| config.quirks = quirks)));

/// Labels, most of which exist.
fn label() -> impl Strategy<Value = String> {
    let known = [
        "web", "db", "db-0", "many", "empty", "alias", "circle", "out", "ns", "svc", "pod", "dns", "_http", "_tcp",
        "_sql",
    ];
    let more =
        ["cluster", "local", "in-addr", "arpa", "ip6", "10", "1-2-3-4", "10-1-0-2", "_", "x", "dns-version", "WEB"];
    prop_oneof![4 => prop::sample::select([&known[..], &more[..]].concat()).prop_map(str::to_owned), 1 => "[a-zA-Z0-9-]{1,12}"]
}

proptest! {
    /// Every query gets a well-formed reply within the size limit; case is ignored and preserved.
    #[test]
    fn every_query_has_a_valid_reply(
        labels in prop::collection::vec(label(), 0..7),
        zone in prop::sample::select(vec!["cluster.local", "in-addr.arpa", "ip6.arpa", "example.net", "Cluster.LOCAL"]),
        qtype in prop_oneof![prop::sample::select(vec![1u16, 2, 5, 6, 12, 16, 28, 33, 255]), any::<u16>()],
        edns in prop::option::of(any::<u16>()),
        quirks in any::<bool>(),
        upper in any::<u64>(),
    ) {
        let snapshot = &SNAPSHOTS[usize::from(quirks)];
        let name = format!("{}{zone}", labels.iter().map(|label| format!("{label}.")).collect::<String>());
        let message = question(&name, qtype, edns);
        fuzz(snapshot, &message);
        let flip = |(at, byte): (usize, char)| if upper >> (at % 64) & 1 == 1 { byte.to_ascii_uppercase() } else { byte };
        let other: String = name.chars().enumerate().map(flip).collect();
        let folded = |name: &str| {
            let mut out = Vec::new();
            let outcome = snapshot.answer(&question(name, qtype, edns), Transport::Tcp, &mut Scratch::new(1), &mut out);
            let reply = matches!(outcome, Outcome::Reply).then(|| out.to_ascii_lowercase());
            (reply, format!("{:?}", std::mem::discriminant(&outcome)))
        };
        // CoreDNS treats upper case in the zone name differently.
        if !quirks {
            prop_assert_eq!(folded(&name), folded(&other));
        }
        prop_assert!(to_text(&from_text(&name).expect("a name")).len() > 1);
    }

    #[test]
    fn arbitrary_input_gets_a_valid_reply_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz(&SNAPSHOTS[0], &bytes);
    }
}
