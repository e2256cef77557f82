//! Observations in, text out.

use super::*;
use crate::answer::tests::snapshot;
use crate::answer::{Outcome, Scratch};
use crate::wire::from_text;

fn line<'t>(text: &'t str, start: &str) -> Vec<&'t str> {
    text.lines().filter(|line| line.starts_with(start)).collect()
}

#[test]
fn queries_are_counted_with_the_names_of_coredns() {
    let snapshot = snapshot(|_| {});
    let metrics = Metrics::new(&snapshot.zones, "dns://:53");
    let (thread_counters, mut scratch, mut out) = (metrics.thread(), Scratch::new(1), Vec::new());
    for (name, times) in
        [("web.ns.svc.cluster.local", 3), ("nope.ns.svc.cluster.local", 2), ("db-0.db.ns.svc.cluster.local", 1)]
    {
        let mut message = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend(from_text(name).expect("a name"));
        message.extend([0, 1, 0, 1]);
        for _ in 0..times {
            assert!(matches!(snapshot.answer(&message, Transport::Udp, &mut scratch, &mut out), Outcome::Reply));
            let (labels, rcode) = (scratch.labels, Observation::rcode_of(&out));
            let (request_size, response_size, duration) = (message.len(), Some(out.len()), Duration::from_micros(300));
            thread_counters.count(&Observation {
                labels,
                transport: Transport::Udp,
                v4: true,
                request_size,
                response_size,
                rcode,
                duration,
            });
        }
    }
    metrics.programmed(true, 0.0015);
    let text = metrics.text(&snapshot);
    let zone = "server=\"dns://:53\",zone=\"cluster.local.\",view=\"\"";
    let wanted = [
        format!("coredns_dns_requests_total{{{zone},proto=\"udp\",family=\"1\",type=\"A\"}} 6"),
        format!("coredns_dns_responses_total{{{zone},rcode=\"NOERROR\",plugin=\"kubernetes\"}} 4"),
        format!("coredns_dns_responses_total{{{zone},rcode=\"NXDOMAIN\",plugin=\"kubernetes\"}} 2"),
        format!("coredns_dns_request_duration_seconds_bucket{{le=\"0.00025\",{zone}}} 0"),
        format!("coredns_dns_request_duration_seconds_bucket{{le=\"0.0005\",{zone}}} 6"),
        format!("coredns_dns_request_duration_seconds_count{{{zone}}} 6"),
        format!("coredns_dns_request_size_bytes_bucket{{le=\"100.0\",{zone},proto=\"udp\"}} 6"),
        "waypost_dns_service_requests_total{namespace=\"ns\",service=\"web\"} 3".to_owned(),
        "waypost_dns_service_requests_total{namespace=\"ns\",service=\"db\"} 1".to_owned(),
        "coredns_kubernetes_dns_programming_duration_seconds_bucket{le=\"0.001\",service_kind=\"headless_with_selector\"} 0".to_owned(),
        "coredns_kubernetes_dns_programming_duration_seconds_bucket{le=\"0.002\",service_kind=\"headless_with_selector\"} 1".to_owned(),
        "coredns_panics_total 0".to_owned(),
    ];
    for wanted in wanted {
        assert_eq!(line(&text, &wanted), [wanted.as_str()], "{text}");
    }
}

#[test]
fn a_reused_service_id_starts_at_zero() {
    let snapshot = snapshot(|_| {});
    let metrics = Metrics::new(&snapshot.zones, "dns://:53");
    let number = snapshot.service(b"\x03web\x02ns").expect("it is there").key.id;
    let labels = QueryLabels { zone: Some(0), qtype: 1, dnssec: false, service: Some(number) };
    let observation = Observation {
        labels,
        transport: Transport::Tcp,
        v4: false,
        request_size: 40,
        response_size: None,
        rcode: 0,
        duration: Duration::ZERO,
    };
    metrics.count(&observation);
    assert!(metrics.text(&snapshot).contains("service=\"web\"} 1"));
    snapshot.apply(crate::snapshot::Update::ServiceDeleted("ns/web".into()), 9);
    snapshot.apply(crate::answer::tests::service("next", &serde_json::json!({"clusterIPs": ["10.96.0.9"]})), 9);
    assert_eq!(snapshot.service(b"\x04next\x02ns").expect("it is there").key.id, number);
    assert!(line(&metrics.text(&snapshot), "waypost_dns_service_requests_total{").is_empty());
    metrics.count(&observation);
    assert!(metrics.text(&snapshot).contains("service=\"next\"} 1"));
}

#[test]
fn buckets_are_those_of_coredns() {
    let quarter = Duration::from_micros(250);
    for (micros, bound) in
        [(0, 0), (250, 0), (251, 1), (500, 1), (501, 2), (8_192_000, 15), (8_192_001, 16), (99_000_000, 16)]
    {
        assert_eq!(
            duration_bucket(Duration::from_micros(micros), quarter, DURATION_BUCKETS),
            bound,
            "{micros} microseconds"
        );
    }
    assert_eq!([0, 1, 100, 101, 511, 512, 64000, 65535].map(size_bucket), [0, 1, 1, 2, 5, 6, 13, 14]);
}
