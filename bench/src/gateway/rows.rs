//! The lines of the reports about Gateways, and the budgets.

use super::load::Load;
use super::{listener_sets, routes, traffic};
use crate::report::{Budget, Figures, Row, less, more};

/// How many times the requests per second of the best peer are required.
const TIMES_BEST: f64 = 1.15;

/// The key of a figure of traffic.
#[must_use]
pub fn traffic_key(load: Load, what: &str, connections: usize) -> String {
    crate::report::key(&format!("{}_{what}", load.name()), connections)
}

/// The lines about traffic.
#[must_use]
pub fn traffic(plan: &traffic::Plan) -> Vec<Row> {
    let of = |(load, connections): (&Load, &usize)| {
        let key = |what: &str| traffic_key(*load, what, *connections);
        let title = match load {
            Load::Http => "HTTP/1.1",
            Load::Tls => "HTTP/1.1 over TLS",
            Load::H2 => "HTTP/2 over TLS",
            Load::H2c => "HTTP/2, prior knowledge",
            Load::Grpc => "gRPC, unary",
        };
        let plural = if *connections == 1 { "" } else { "s" };
        [
            more(&key("rate"), &format!("{title}, {connections} connection{plural}: requests per second")),
            more(&key("wrk"), "  the same by wrk"),
            less(&key("p50_us"), "  p50 (µs)", None),
            less(&key("p99_us"), "  p99 (µs)", None),
            less(&key("cpu_us"), "  processor time per request (µs)", None),
        ]
    };
    let all = plan.loads.iter().flat_map(|load| plan.connections.iter().map(move |count| (load, count)));
    all.flat_map(of).collect()
}

/// The same with the budgets: more requests than the best peer, and no greater p99.
#[must_use]
pub fn traffic_budgets(plan: &traffic::Plan, best: &Figures) -> Vec<Row> {
    let of = |row: Row| {
        let budget = best.get(&row.key).and_then(|value| match row.key.split_once('@')?.0.rsplit_once('_')?.1 {
            "rate" => Some(Budget::TimesPeer(TIMES_BEST, value.round())),
            "us" if row.key.contains("_p99_") => Some(Budget::AtMost(value.round())),
            _ => None,
        });
        Row { budget, ..row }
    };
    traffic(plan).into_iter().map(of).collect()
}

/// The best figure of several peers for each line.
#[must_use]
pub fn best(rows: &[Row], peers: &[&Figures]) -> Figures {
    let mut out = Figures::default();
    for row in rows {
        let values = peers.iter().filter_map(|peer| peer.get(&row.key));
        let best = if row.more_is_better { values.reduce(f64::max) } else { values.reduce(f64::min) };
        if let Some(best) = best {
            out.set(&row.key, best);
        }
    }
    out
}

/// The lines about many routes.
#[must_use]
pub fn routes(plan: &routes::Plan) -> Vec<Row> {
    let (routes, rate) = (plan.routes, plan.changes);
    vec![
        less("effective_p50_ms", &format!("{routes} routes one by one: acknowledged to effective, p50 (ms)"), None),
        less("effective_p99_ms", "  p99 (ms)", Some(10.0)),
        less("effective_max_ms", "  longest (ms)", None),
        less("effective_first_p99_ms", "  the first tenth, p99 (ms)", None),
        less("effective_last_p99_ms", "  the last tenth, p99 (ms)", None),
        less("churn_effective_p50_ms", &format!("{} more during {rate} changes per second, p50 (ms)", plan.more), None),
        less("churn_effective_p99_ms", "  p99 (ms)", Some(10.0)),
        less("churn_effective_max_ms", "  longest (ms)", None),
        less("route_failures", "  responses with another status than 200 and 404", Some(0.0)),
        less("route_lost", "  connections lost", Some(0.0)),
        less("memory_empty_mb", "memory of the data plane, no objects (MB)", None),
        less("memory_services_mb", "  with a Service for each route (MB)", None),
        less("memory_routes_mb", &format!("  with {routes} routes (MB)"), Some(40.0)),
        less("memory_after_churn_mb", "  after the changes (MB)", None),
        less("memory_empty_server_mb", "memory of the API server with controllers, no objects (MB)", None),
        less("memory_services_server_mb", "  with a Service for each route (MB)", None),
        less("memory_routes_server_mb", &format!("  with {routes} routes (MB)"), None),
        less("memory_after_churn_server_mb", "  after the changes (MB)", None),
        less("cpu_idle_percent", "processor time of the data plane, no changes (% of a core)", None),
        less("cpu_churn_percent", &format!("  {rate} changes per second (%)"), Some(1.0)),
        less("cpu_idle_server_percent", "processor time of the API server with controllers, no changes (%)", None),
        less("cpu_churn_server_percent", &format!("  {rate} changes per second (%)"), None),
        more("churn_rate", "  changes per second that were made"),
        less("cpu_creating_percent", "processor time of the data plane while routes are created (%)", None),
        less("cpu_creating_server_percent", "  of the API server (%)", None),
    ]
}

/// The lines about attached routes.
#[must_use]
pub fn attached(routes: usize) -> Vec<Row> {
    vec![
        less("attached_up_load_s", &format!("{routes} routes created by 32 clients (s)"), None),
        less("attached_up_s", "  last acknowledgement to right attachedRoutes (s)", Some(1.0)),
        less("attached_up_writes", "  writes of the Gateway's status", Some(99.0)),
        less("attached_down_load_s", &format!("{routes} routes deleted by 32 clients (s)"), None),
        less("attached_down_s", "  last acknowledgement to right attachedRoutes (s)", Some(1.0)),
        less("attached_down_writes", "  writes of the Gateway's status", Some(99.0)),
    ]
}

/// The lines about ListenerSets.
#[must_use]
pub fn listener_sets(plan: listener_sets::Plan) -> Vec<Row> {
    let (sets, routes) = (plan.sets, plan.sets * plan.routes);
    vec![
        less("sets_created_s", &format!("{sets} ListenerSets created by 32 clients (s)"), None),
        less("sets_programmed_s", "  last acknowledgement to all Programmed (s)", None),
        less("set_routes_created_s", &format!("{routes} routes on them created by 32 clients (s)"), None),
        less("set_routes_served_s", "  last acknowledgement to the last one effective (s)", None),
        less("set_routes_counted_s", "  last acknowledgement to right attachedRoutes of all ListenerSets (s)", None),
        less("sets_memory_mb", "memory of the data plane (MB)", None),
        less("sets_memory_server_mb", "  of the API server with controllers (MB)", None),
        less("sets_memory_peak_mb", "  greatest, of both (MB)", None),
        less("set_route_change_p50_ms", "one more route: acknowledged to effective, p50 (ms)", None),
        less("set_route_change_p99_ms", "  p99 (ms)", None),
        less("set_change_p50_ms", "one more ListenerSet with a route: acknowledged to effective, p50 (ms)", None),
        less("set_change_p99_ms", "  p99 (ms)", None),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_best_peer_is_the_fastest_of_each_line() {
        let plan = traffic::Plan {
            loads: vec![Load::Http],
            connections: vec![8],
            threads: 1,
            streams: 1,
            lasting: Duration::from_secs(1),
            rounds: 1,
            wrk: false,
        };
        let figures = |rate, p99| {
            let mut figures = Figures::default();
            figures.set(&traffic_key(Load::Http, "rate", 8), rate);
            figures.set(&traffic_key(Load::Http, "p99_us", 8), p99);
            figures
        };
        let best = best(&traffic(&plan), &[&figures(10.0, 7.0), &figures(20.0, 9.0)]);
        let budgets = traffic_budgets(&plan, &best);
        let budget = |what: &str| {
            let key = traffic_key(Load::Http, what, 8);
            budgets.iter().find(|row| row.key == key).and_then(|row| row.budget)
        };
        assert_eq!(budget("rate"), Some(Budget::TimesPeer(TIMES_BEST, 20.0)));
        assert_eq!(budget("p99_us"), Some(Budget::AtMost(7.0)));
        assert_eq!(budget("p50_us"), None);
    }
}
