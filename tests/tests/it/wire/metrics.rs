//! What the server counts: requests by verb, resource and code, their times, open watches, and the store.

use serde_json::json;
use testbed::Server;
use testbed::session::SERVICES;
use testbed::wire::Wire;

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// The sum of the samples of a metric whose labels have all of these.
fn sample(page: &str, name: &str, labels: &[&str]) -> f64 {
    let mine = page.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([' ', '{'])) && labels.iter().all(|label| line.contains(label))
    });
    mine.map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")).sum()
}

#[test]
fn s01_metrics_count_requests_times_watches_and_the_store() {
    let server = Server::start();
    let mut wire = Wire::admin(&server);
    let page = |wire: &mut Wire| {
        let reply = wire.ask("GET", "/metrics", &[], b"");
        assert_eq!(reply.code, 200);
        reply.text()
    };
    let before = page(&mut wire);
    for number in 0..3 {
        let body = json!({"metadata": {"name": format!("web{number}")}, "spec": {"ports": [{"port": 80}]}}).to_string();
        assert_eq!(wire.ask("POST", SERVICES, &[JSON], body.as_bytes()).code, 201);
    }
    assert_eq!(wire.ask("GET", &format!("{SERVICES}/missing"), &[], b"").code, 404);
    let mut watcher = Wire::admin(&server);
    watcher.send(&testbed::wire::request("GET", &format!("{SERVICES}?watch=true"), &[], b"")).expect("sent");
    watcher.head().expect("a watch");
    watcher.chunk().expect("the Services that are there");

    let after = page(&mut wire);
    let grew = |name: &str, labels: &[&str]| sample(&after, name, labels) - sample(&before, name, labels);
    let made = ["verb=\"POST\"", "resource=\"services\"", "version=\"v1\""];
    let total = "apiserver_request_total";
    assert_eq!(grew(total, &[made[0], made[1], made[2], "code=\"201\""]), 3.0, "{after}");
    assert_eq!(grew(total, &["verb=\"GET\"", "resource=\"services\"", "code=\"404\""]), 1.0);
    assert_eq!(grew(total, &["verb=\"WATCH\"", "resource=\"services\"", "code=\"200\""]), 1.0);
    assert_eq!(grew("apiserver_request_duration_seconds_count", &made), 3.0);
    assert_eq!(grew("apiserver_request_duration_seconds_bucket", &[made[0], made[1], "le=\"+Inf\""]), 3.0);
    assert!(grew("apiserver_request_duration_seconds_sum", &made) > 0.0);
    assert_eq!(grew("apiserver_longrunning_requests", &["resource=\"services\""]), 1.0);
    assert!(grew("waypost_store_commits_total", &[]) >= 3.0);
    assert!(grew("waypost_store_fsyncs_total", &[]) >= 1.0);
    assert!(sample(&after, "waypost_store_entries", &[]) > sample(&before, "waypost_store_entries", &[]));
    assert!(sample(&after, "waypost_store_watchers", &[]) > 0.0);
    assert!(after.ends_with("# EOF\n"), "a page that is whole");
}
