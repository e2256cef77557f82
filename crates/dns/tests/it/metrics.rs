//! Metrics with the names of CoreDNS.

use dns::wire::rcode;

use crate::server::{CLIENT, POD, TestServer};

const DIRECTIVES: &str = "cache\nautopath @kubernetes\nhosts {\n203.0.113.7 by.hand also.by.hand\nfallthrough\n}\n\
                          template IN A gone.example {\nrcode NXDOMAIN\n}\nacl {\nblock net 127.0.2.4/32\n}";

/// Asserts that every line is present.
fn check(text: &str, wanted: &[String]) {
    for line in wanted {
        assert!(text.lines().any(|own| own == line), "{line} is not among:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resolver_metrics_are_exported() {
    let server = TestServer::new(DIRECTIVES).await;
    for _ in 0..3 {
        assert_eq!(server.query(CLIENT, "example.net.", "A").rcode, rcode::NOERROR);
        assert_eq!(server.query(CLIENT, "nosuch.example.net.", "A").rcode, rcode::NXDOMAIN);
    }
    assert_eq!(server.query(CLIENT, "servfail.example.net.", "A").rcode, rcode::SERVFAIL);
    assert_eq!(server.query(CLIENT, "x.gone.example.", "A").rcode, rcode::NXDOMAIN);
    assert_eq!(server.query(POD, "svc1.testns.testns.svc.cluster.local.", "A").rcode, rcode::NOERROR);
    let stranger = "127.0.2.4".parse().expect("an address");
    assert_eq!(server.query(stranger, "kubernetes.default.svc.cluster.local.", "A").rcode, rcode::REFUSED);

    let upstream = server.upstream();
    let of = |code: &str| format!("proxy_name=\"forward\",to=\"{upstream}\",rcode=\"{code}\"");
    let (cache, label) = ("server=\"dns://:53\",zones=\".\",view=\"\"", "server=\"dns://:53\"");
    let duration = "coredns_proxy_request_duration_seconds";
    let wanted = vec![
        format!("# TYPE {duration} histogram"),
        format!("{duration}_count{{{}}} 1", of("NOERROR")),
        format!("{duration}_bucket{{le=\"+Inf\",{}}} 1", of("NXDOMAIN")),
        format!("{duration}_bucket{{le=\"8.192\",{}}} 1", of("SERVFAIL")),
        format!("coredns_proxy_healthcheck_failures_total{{proxy_name=\"forward\",to=\"{upstream}\"}} 0"),
        format!("coredns_proxy_conn_cache_hits_total{{proxy_name=\"forward\",to=\"{upstream}\",proto=\"tcp\"}} 0"),
        format!("coredns_cache_entries{{{cache},type=\"success\"}} 1"),
        format!("coredns_cache_entries{{{cache},type=\"denial\"}} 1"),
        format!("coredns_cache_hits_total{{{cache},type=\"success\"}} 2"),
        format!("coredns_cache_hits_total{{{cache},type=\"denial\"}} 2"),
        format!("coredns_cache_misses_total{{{cache}}} 3"),
        format!("coredns_cache_requests_total{{{cache}}} 7"),
        format!("coredns_cache_evictions_total{{{cache},type=\"success\"}} 0"),
        format!("coredns_cache_prefetch_total{{{cache}}} 0"),
        format!("coredns_cache_served_stale_total{{{cache}}} 0"),
        format!("coredns_cache_drops_total{{{cache}}} 0"),
        "coredns_forward_healthcheck_broken_total 0".to_owned(),
        "coredns_forward_max_concurrent_rejects_total 0".to_owned(),
        format!("coredns_autopath_success_total{{{label}}} 1"),
        format!("coredns_template_matches_total{{{label},zone=\"gone.example.\",view=\"\",class=\"IN\",type=\"A\"}} 1"),
        "coredns_hosts_entries 2".to_owned(),
        format!("coredns_plugin_enabled{{{label},zone=\".\",view=\"\",name=\"kubernetes\"}} 1"),
        format!("coredns_plugin_enabled{{{label},zone=\".\",view=\"\",name=\"template\"}} 1"),
        "waypost_dns_denied_total 1".to_owned(),
    ];
    let text = server.resolver.text("dns://:53");
    check(&text, &wanted);
    assert!(!text.contains("name=\"rewrite\""));

    // Counters and cache survive a reload.
    let config = server.parsed(DIRECTIVES);
    let next = server.replaced(&config).text("dns://:53");
    check(&next, &wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_limit_counters_survive_a_reload() {
    let server = TestServer::new("ratelimit 1 1 {\nexcept 127.0.0.1/32\n}").await;
    let eager = "127.0.2.9".parse().expect("an address");
    for _ in 0..20 {
        server.query_now(eager, "svc1.testns.svc.cluster.local.", "A");
    }
    let counted = |text: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix("waypost_dns_limited_total "));
        value.and_then(|value| value.parse::<u64>().ok()).expect("a figure")
    };
    let before = counted(&server.resolver.text("dns://:53"));
    assert!(before > 0);
    for next in ["ratelimit 2 2", "errors"] {
        assert_eq!(counted(&server.replaced(&server.parsed(next)).text("dns://:53")), before, "{next}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_are_counted_per_service() {
    let server = TestServer::new("").await;
    for (name, times) in [("svc1.testns", 3), ("kubernetes.default", 2), ("nope.testns", 4)] {
        for _ in 0..times {
            server.query(CLIENT, &format!("{name}.svc.cluster.local."), "A");
        }
    }
    server.query_tcp("_http._tcp.svc1.testns.svc.cluster.local.", "SRV");
    // A batch is counted after it is sent: the next query shows that it was.
    server.query(CLIENT, "cluster.local.", "SOA");
    let text = server.metrics.text(&server.snapshot);
    let of = |namespace: &str, name: &str, count: u32| {
        format!("waypost_dns_service_requests_total{{namespace=\"{namespace}\",service=\"{name}\"}} {count}")
    };
    check(&text, &[of("testns", "svc1", 4), of("default", "kubernetes", 2)]);
    assert!(!text.contains("service=\"nope\""));
}
