//! Many routes or ListenerSets at once: counts are right soon, and statuses are written rarely.

use std::time::Duration;

use store::Table;

use super::*;
use crate::testing::service as backend;

/// Routes of the storm.
const ROUTES_AT_ONCE: usize = 1000;
/// ListenerSets of the storm.
const SETS_AT_ONCE: usize = 500;
/// The time between two objects.
const PAUSE: Duration = Duration::from_millis(3);

/// Reconciles everything that is due at the simulated time: keys that wait are run when their time has come.
fn settle(cluster: &mut Cluster, next: &mut Duration, elapsed: Duration) {
    cluster.converge();
    if elapsed >= *next {
        *next = elapsed + Duration::from_millis(500);
        cluster.run_later();
        cluster.converge();
    }
}

fn count(cluster: &Cluster) -> i64 {
    status(cluster).items("listeners")[0].int("attachedRoutes")
}

#[test]
fn s52_a_thousand_routes_up_and_down_cost_fewer_than_a_hundred_writes_of_their_gateway() {
    let mut cluster = cluster();
    cluster.put(service::TABLE, backend("web", "web"));
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    converge(&mut cluster);
    cluster.writes_to(GATEWAYS);
    let (mut elapsed, mut next) = (Duration::ZERO, Duration::ZERO);
    let mut step = |cluster: &mut Cluster| {
        cluster.advance(PAUSE);
        elapsed += PAUSE;
        settle(cluster, &mut next, elapsed);
    };
    for number in 0..ROUTES_AT_ONCE {
        put_route(&mut cluster, &format!("r{number}"));
        step(&mut cluster);
    }
    let wait = cluster.cache.gateways.wait(Table::named(GATEWAYS), "default/public", cluster.instant);
    assert!(wait < Duration::from_secs(1));
    cluster.wait();
    cluster.converge();
    assert_eq!(count(&cluster), 1000);
    for number in 0..ROUTES_AT_ONCE {
        cluster.remove(HTTP_ROUTES, &format!("default/r{number}"));
        step(&mut cluster);
    }
    cluster.wait();
    cluster.converge();
    assert_eq!(count(&cluster), 0);
    let writes = cluster.writes_to(GATEWAYS);
    assert!((2..100).contains(&writes), "{writes} writes");
}

#[test]
fn s52_each_of_many_listener_sets_is_written_once_and_their_gateway_rarely() {
    let mut cluster = cluster();
    let allowed = json!({"namespaces": {"from": "Same"}});
    let listeners = [listener("http", 80, "HTTP")];
    let spec = json!({"gatewayClassName": "waypost", "listeners": listeners, "allowedListeners": allowed});
    put(&mut cluster, GATEWAYS, "public", spec);
    converge(&mut cluster);
    cluster.writes_to(GATEWAYS);
    let (mut elapsed, mut next) = (Duration::ZERO, Duration::ZERO);
    for number in 0..SETS_AT_ONCE {
        let listener = json!({"name": "l", "port": 80, "protocol": "HTTP", "hostname": format!("{number}.example")});
        let spec = json!({"parentRef": {"name": "public"}, "listeners": [listener]});
        put(&mut cluster, LISTENER_SETS, &format!("set-{number}"), spec);
        cluster.advance(PAUSE);
        elapsed += PAUSE;
        settle(&mut cluster, &mut next, elapsed);
        let set = cluster.get(LISTENER_SETS, &format!("default/set-{number}")).expect("a ListenerSet");
        assert_condition(set.at("status"), "Programmed=True/Programmed");
    }
    cluster.wait();
    cluster.converge();
    assert_eq!(status(&cluster).int("attachedListenerSets"), i64::try_from(SETS_AT_ONCE).expect("a number"));
    assert_eq!(cluster.writes_to(LISTENER_SETS), SETS_AT_ONCE);
    let writes = cluster.writes_to(GATEWAYS);
    assert!((2..10).contains(&writes), "{writes} writes");
}
