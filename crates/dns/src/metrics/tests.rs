//! Facts in, text out.

use super::*;
use crate::answer::tests::book;
use crate::answer::{Outcome, Scratch};
use crate::wire::from_text;

fn line<'t>(text: &'t str, start: &str) -> Vec<&'t str> {
    text.lines().filter(|line| line.starts_with(start)).collect()
}

#[test]
fn questions_are_counted_under_the_names_people_know() {
    let book = book(|_| {});
    let metrics = Metrics::new(&book.zones, "dns://:53");
    let (tally, mut scratch, mut out) = (metrics.tally(), Scratch::new(1), Vec::new());
    for (name, times) in
        [("web.ns.svc.cluster.local", 3), ("nope.ns.svc.cluster.local", 2), ("db-0.db.ns.svc.cluster.local", 1)]
    {
        let mut message = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend(from_text(name).expect("a name"));
        message.extend([0, 1, 0, 1]);
        for _ in 0..times {
            assert!(matches!(book.answer(&message, Transport::Udp, &mut scratch, &mut out), Outcome::Reply));
            let (seen, rcode) = (scratch.seen, Fact::rcode_of(&out));
            let (asked, answered, took) = (message.len(), Some(out.len()), Duration::from_micros(300));
            tally.count(&Fact { seen, transport: Transport::Udp, v4: true, asked, answered, rcode, took });
        }
    }
    metrics.programmed(true, 0.0015);
    let text = metrics.text(&book);
    let zone = "server=\"dns://:53\",zone=\"cluster.local.\",view=\"\"";
    let wanted = [
        format!("coredns_dns_requests_total{{{zone},proto=\"udp\",family=\"1\",type=\"A\"}} 6"),
        format!("coredns_dns_responses_total{{{zone},rcode=\"NOERROR\",plugin=\"kubernetes\"}} 4"),
        format!("coredns_dns_responses_total{{{zone},rcode=\"NXDOMAIN\",plugin=\"kubernetes\"}} 2"),
        format!("coredns_dns_request_duration_seconds_bucket{{{zone},le=\"0.00025\"}} 0"),
        format!("coredns_dns_request_duration_seconds_bucket{{{zone},le=\"0.0005\"}} 6"),
        format!("coredns_dns_request_duration_seconds_count{{{zone}}} 6"),
        format!("coredns_dns_request_size_bytes_bucket{{{zone},proto=\"udp\",le=\"100\"}} 6"),
        "waypost_dns_service_requests_total{namespace=\"ns\",service=\"web\"} 3".to_owned(),
        "waypost_dns_service_requests_total{namespace=\"ns\",service=\"db\"} 1".to_owned(),
        "coredns_kubernetes_dns_programming_duration_seconds_bucket{service_kind=\"headless_with_selector\",le=\"0.001\"} 0".to_owned(),
        "coredns_kubernetes_dns_programming_duration_seconds_bucket{service_kind=\"headless_with_selector\",le=\"0.002\"} 1".to_owned(),
        "coredns_panics_total 0".to_owned(),
    ];
    for wanted in wanted {
        assert_eq!(line(&text, &wanted), [wanted.as_str()], "{text}");
    }
}

#[test]
fn a_number_that_is_used_again_is_counted_anew() {
    let book = book(|_| {});
    let metrics = Metrics::new(&book.zones, "dns://:53");
    let number = book.service(b"\x03web\x02ns").expect("it is there").key.number;
    let seen = Seen { zone: Some(0), qtype: 1, dnssec: false, service: Some(number) };
    let fact =
        Fact { seen, transport: Transport::Tcp, v4: false, asked: 40, answered: None, rcode: 0, took: Duration::ZERO };
    metrics.count(&fact);
    assert!(metrics.text(&book).contains("service=\"web\"} 1"));
    book.apply(crate::book::Update::ServiceGone("ns/web".into()), 9);
    book.apply(crate::answer::tests::service("next", &serde_json::json!({"clusterIPs": ["10.96.0.9"]})), 9);
    assert_eq!(book.service(b"\x04next\x02ns").expect("it is there").key.number, number);
    assert!(line(&metrics.text(&book), "waypost_dns_service_requests_total{").is_empty());
    metrics.count(&fact);
    assert!(metrics.text(&book).contains("service=\"next\"} 1"));
}

#[test]
fn bounds_are_those_of_the_original() {
    let quarter = Duration::from_micros(250);
    for (micros, bound) in
        [(0, 0), (250, 0), (251, 1), (500, 1), (501, 2), (8_192_000, 15), (8_192_001, 16), (99_000_000, 16)]
    {
        assert_eq!(time_bound(Duration::from_micros(micros), quarter, TIMES), bound, "{micros} microseconds");
    }
    assert_eq!([0, 1, 100, 101, 511, 512, 64000, 65535].map(size_bound), [0, 1, 1, 2, 5, 6, 13, 14]);
}
