//! Many routes at once: counts are right soon, and statuses are written rarely.

use std::time::Duration;

use store::Table;

use super::*;
use crate::testing::service as backend;

/// Routes of the storm.
const ROUTES_AT_ONCE: usize = 1000;
/// The time between two routes.
const PAUSE: Duration = Duration::from_millis(3);

/// Reconciles everything that is due at the simulated time: keys that wait are run when their time has come.
fn settle(cluster: &mut Cluster, next: &mut Duration, elapsed: Duration) {
    cluster.converge();
    if elapsed >= *next {
        *next = elapsed + Duration::from_millis(200);
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
