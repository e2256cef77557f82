//! `kubectl get --watch`: changes as they happen, filtered by the server.

use super::{Bed, Stream};

const PORTS: &str = "{ports: [{port: 80}]}";

/// The next event: its type and the name.
#[track_caller]
fn event(stream: &mut Stream) -> (String, String) {
    let mut words = stream.next().into_iter();
    (words.next().expect("an event"), words.next().expect("a name"))
}

#[track_caller]
fn expect(stream: &mut Stream, kind: &str, name: &str) {
    assert_eq!(event(stream), (kind.to_owned(), name.to_owned()));
}

#[test]
fn s01_a_watch_shows_what_is_there_and_then_every_change() {
    let bed = Bed::start();
    bed.service("first", PORTS);
    let mut stream = bed.stream("get services --watch --output-watch-events --no-headers");
    expect(&mut stream, "ADDED", "first");
    expect(&mut stream, "ADDED", "kubernetes");
    bed.service("second", PORTS);
    expect(&mut stream, "ADDED", "second");
    bed.ok("label service second a=b");
    expect(&mut stream, "MODIFIED", "second");
    bed.service("second", PORTS);
    bed.ok("delete service first");
    // The apply changed nothing, so nothing was sent for it.
    expect(&mut stream, "DELETED", "first");
}

#[test]
fn s01_a_watch_of_one_object_shows_its_new_columns() {
    let bed = Bed::start();
    bed.service("web", PORTS);
    let mut stream = bed.stream("get service web --watch");
    assert_eq!(stream.next(), ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]);
    assert_eq!(stream.next()[..2], ["web", "ClusterIP"]);
    bed.service("other", PORTS);
    bed.ok(r#"patch service web -p '{"spec":{"type":"NodePort"}}'"#);
    let row = stream.next();
    assert_eq!(row[..2], ["web", "NodePort"]);
    assert_eq!(row[4], format!("80:{}/TCP", bed.field("service/web", ".spec.ports[0].nodePort")));
}

#[test]
fn s01_entering_and_leaving_a_selector_is_an_addition_and_a_deletion() {
    let bed = Bed::start();
    bed.service("web", PORTS);
    bed.ok("label service kubernetes colour=blue");
    let mut blue = bed.stream("get services -w --output-watch-events --no-headers -l colour=blue");
    expect(&mut blue, "ADDED", "kubernetes");
    let mut node =
        bed.stream("get services -w --output-watch-events --no-headers --field-selector spec.type=ClusterIP");
    expect(&mut node, "ADDED", "kubernetes");
    expect(&mut node, "ADDED", "web");
    bed.ok("label service web colour=blue");
    expect(&mut blue, "ADDED", "web");
    bed.ok("label service web colour=red --overwrite");
    expect(&mut blue, "DELETED", "web");
    expect(&mut node, "MODIFIED", "web");
    expect(&mut node, "MODIFIED", "web");
    bed.ok(r#"patch service web -p '{"spec":{"type":"NodePort"}}'"#);
    expect(&mut node, "DELETED", "web");
}

#[test]
fn s38_clients_watch_the_endpoints_of_a_service() {
    let bed = Bed::start();
    bed.service("web", PORTS);
    let slice = |name: &str, address: &str| {
        let metadata = format!("metadata: {{name: {name}, labels: {{kubernetes.io/service-name: web}}}}");
        let rest = format!("addressType: IPv4\nports: [{{port: 8080}}]\nendpoints: [{{addresses: [{address}]}}]");
        format!("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n{metadata}\n{rest}\n")
    };
    let columns = "custom-columns=N:.metadata.name,A:.endpoints[*].addresses[0]";
    bed.ok_with("apply -f -", &slice("web-1", "10.0.0.1"));
    let mut stream =
        bed.stream(&format!("get endpointslices -l kubernetes.io/service-name=web -w --no-headers -o {columns}"));
    assert_eq!(stream.next(), ["web-1", "10.0.0.1"]);
    bed.ok_with("apply -f -", &slice("web-2", "10.0.0.2"));
    assert_eq!(stream.next(), ["web-2", "10.0.0.2"]);
    bed.ok_with("apply -f -", &slice("web-1", "10.0.0.3"));
    assert_eq!(stream.next(), ["web-1", "10.0.0.3"]);

    let mut legacy = bed.stream("get endpoints kubernetes -w --no-headers");
    assert_eq!(legacy.next()[..2], ["kubernetes", bed.server.address.as_str()]);
}

#[test]
fn s38_an_event_begins_with_its_type() {
    let bed = Bed::start();
    let query =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=3";
    let events = bed.ok(&format!("get --raw '/api/v1/namespaces/default/services?{query}'"));
    let types: Vec<&str> =
        events.lines().filter_map(|line| line.strip_prefix("{\"type\":\"")?.split('"').next()).collect();
    assert_eq!(types[..2], ["ADDED", "BOOKMARK"], "{events}");
    assert_eq!(types.len(), events.lines().count(), "{events}");
}
