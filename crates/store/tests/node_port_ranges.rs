//! Node ports of namespaces: who gets which, and that the decision holds when others write at the same time.

mod common;

use std::sync::Arc;

use api::claims::{ClaimError, Claims as _};
use api::facts::Facts;
use api::node_port_range::NodePortRange;
use store::allocation::{DryRunClaims, Ranges, TxnClaims, port_map_key};
use store::{CommitError, Embedded, Op, Store as _, Txn};

fn ranges() -> Ranges {
    Ranges { addresses: vec!["10.96.0.0/24".parse().expect("a range")], ports: 30000..=30399 }
}

async fn store(dir: &tempfile::TempDir) -> Embedded {
    let store = common::open(dir.path());
    let map = Op::Put { key: port_map_key(), value: "{}".into(), facts: Arc::new(Facts::default()), ttl: None };
    store.commit(Txn { compares: Vec::new(), ops: vec![map] }).await.expect("written");
    store
}

fn range(text: &str) -> Option<NodePortRange> {
    Some(NodePortRange::parse(text).expect("a range"))
}

/// What one write claims, for an object of this namespace.
fn claim<T>(store: &Embedded, namespace: &str, work: impl FnOnce(&mut TxnClaims<'_>) -> T) -> (T, Txn) {
    let (ranges, uid) = (ranges(), || "uid".to_owned());
    let mut claims = TxnClaims::new(store, &ranges, (namespace, "web"), "now", &uid);
    let out = work(&mut claims);
    (out, claims.into_txn())
}

/// Claims and commits.
async fn write<T>(store: &Embedded, namespace: &str, work: impl FnOnce(&mut TxnClaims<'_>) -> T) -> T {
    let (out, txn) = claim(store, namespace, work);
    store.commit(txn).await.expect("nobody else writes");
    out
}

#[tokio::test]
async fn s55_services_get_the_node_ports_of_their_namespace_and_others_get_none_of_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = store(&dir).await;
    write(&store, "old", |claims| claims.claim_port(Some(30005))).await.expect("free");
    write(&store, "", |claims| claims.reserve_ports("team", range("30000-30009"))).await.expect("nobody has it");
    let taken = ClaimError::PortReserved(range("30000-30009").expect("a range"));
    assert_eq!(claim(&store, "old", |claims| claims.claim_port(Some(30006))).0, Err(taken.clone()));
    let own = ClaimError::PortNotOfNamespace(range("30000-30009").expect("a range"));
    assert_eq!(claim(&store, "team", |claims| claims.claim_port(Some(30010))).0, Err(own));
    let mut dry = DryRunClaims::new(&store, &ranges(), "old");
    assert_eq!(dry.claim_port(Some(30006)), Err(taken), "a dry run says the same");
    // One port is held by an older Service of another namespace, which keeps it.
    let mut ports = Vec::new();
    for _ in 0..9 {
        ports.push(write(&store, "team", |claims| claims.claim_port(None)).await.expect("a port of the namespace"));
    }
    ports.sort_unstable();
    assert_eq!(ports, [30000, 30001, 30002, 30003, 30004, 30006, 30007, 30008, 30009]);
    assert_eq!(claim(&store, "team", |claims| claims.claim_port(None)).0, Err(ClaimError::Full));
    for _ in 0..390 {
        let port = write(&store, "old", |claims| claims.claim_port(None)).await.expect("one of the rest");
        assert!(port > 30009, "{port}");
    }
    assert_eq!(claim(&store, "old", |claims| claims.claim_port(None)).0, Err(ClaimError::Full));
    // The reservation ends with the Namespace; its Services keep their ports.
    write(&store, "", |claims| claims.reserve_ports("team", None)).await.expect("always");
    write(&store, "team", |claims| claims.release_port(30003)).await;
    assert_eq!(write(&store, "old", |claims| claims.claim_port(None)).await, Ok(30003));
}

#[tokio::test]
async fn s55_the_first_namespace_has_a_range_and_half_of_all_ports_stays_free() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = store(&dir).await;
    let reserve = |name: &'static str, text: &str| {
        let range = range(text);
        move |claims: &mut TxnClaims<'_>| claims.reserve_ports(name, range)
    };
    let outside = ClaimError::PortOutOfRange("30000-30399".to_owned());
    assert_eq!(claim(&store, "", reserve("a", "30390-30400")).0, Err(outside));
    write(&store, "", reserve("a", "30000-30099")).await.expect("nobody has it");
    let first = ClaimError::RangeReserved(range("30000-30099").expect("a range"));
    assert_eq!(claim(&store, "", reserve("b", "30099-30100")).0, Err(first));
    assert_eq!(claim(&store, "", reserve("b", "30100-30200")).0, Err(ClaimError::TooManyReserved));
    write(&store, "", reserve("b", "30100-30199")).await.expect("half of all");
    assert_eq!(claim(&store, "", reserve("c", "30200-30200")).0, Err(ClaimError::TooManyReserved));
    write(&store, "", reserve("a", "30050-30060")).await.expect("its own may change");
    write(&store, "", reserve("c", "30000-30049")).await.expect("what was given back");
}

#[tokio::test]
async fn s55_of_two_writes_at_the_same_time_one_decides() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = store(&dir).await;
    let (port, service) = claim(&store, "other", |claims| claims.claim_port(Some(30001)));
    let (reserved, namespace) = claim(&store, "", |claims| claims.reserve_ports("team", range("30000-30009")));
    let (second, too) = claim(&store, "", |claims| claims.reserve_ports("rival", range("30005-30006")));
    assert!(port.is_ok() && reserved.is_ok() && second.is_ok(), "each alone could have it");
    store.commit(namespace).await.expect("the first");
    for late in [service, too] {
        assert!(matches!(store.commit(late).await, Err(CommitError::Conflict { .. })), "decided on what was before");
    }
}
