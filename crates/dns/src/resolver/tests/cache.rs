//! Caching: TTLs, negative answers, stale answers, prefetching.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_cached_for_its_ttl() {
    let fake = Fake::with_address([192, 0, 2, 1]).await;
    let bench = Bench::new(&format!("forward . {}\ncache {{\nserve_stale 0s\n}}", fake.address));
    assert_eq!(bench.cached_answer("a.example"), None);
    bench.ask("a.example").await;
    bench.later(100);
    assert_eq!(bench.cached_answer("A.Example"), Some(answer(Rcode::NOERROR, &["A.Example 200 192.0.2.1"])));
    assert_eq!(bench.cached_answer("b.example"), None);
    let signed = {
        let mut message = ask("a.example", Rtype::A, Some(1232));
        let at = message.len() - 4;
        message[at] |= 0x80;
        message
    };
    assert!(
        !bench.resolver.cached(&udp(&signed), bench.now(), &mut Vec::new()),
        "with signatures it is another question"
    );
    bench.later(200);
    assert_eq!(bench.cached_answer("a.example"), None);
    bench.ask("a.example").await;
    assert_eq!(fake.queries().len(), 2);
    let stats = bench.resolver.stats();
    assert_eq!((stats.success_hits, stats.misses, stats.success_cache.0), (1, 2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn negative_answers_are_cached_for_the_soa_minimum() {
    let fake = Fake::new(|_, question| {
        let answer = reply(question);
        let first = question[13];
        Reply::Say(vec![match first {
            b'x' => answer.code(Rcode::NXDOMAIN).soa("example", 3600, 60).done(),
            b'n' => answer.soa("example", 20, 60).done(),
            b'z' => answer.a(0, [192, 0, 2, 1]).done(),
            b'a' => answer.cname(60, "b.example").done(),
            _ => answer.code(Rcode::NXDOMAIN).done(),
        }])
    })
    .await;
    let bench = Bench::new(&format!("forward . {}\ncache {{\nserve_stale 0s\n}}", fake.address));
    for (asked, rcode, ttl) in [
        ("x.example", Rcode::NXDOMAIN, 60),
        ("n.example", Rcode::NOERROR, 20),
        ("z.example", Rcode::NOERROR, 0),
        ("a.example", Rcode::NOERROR, 0),
        ("o.example", Rcode::NXDOMAIN, 0),
    ] {
        assert_eq!(bench.ask(asked).await.rcode, rcode, "{asked}");
        if ttl > 0 {
            bench.later(ttl - 1);
            assert_eq!(bench.cached_answer(asked).map(|summary| summary.rcode), Some(rcode), "{asked}");
            bench.later(1);
        }
        assert_eq!(bench.cached_answer(asked), None, "{asked}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ttl_bounds_and_disabled_zones_are_applied() {
    let fake = Fake::with_address([192, 0, 2, 1]).await;
    let bench = Bench::new(&format!(
        "forward . {}\ncache 30 {{\nserve_stale 0s\ndisable success off.example\n}}",
        fake.address
    ));
    bench.ask("a.example").await;
    assert_eq!(bench.cached_answer("a.example").expect("kept").answers, ["a.example 30 192.0.2.1"]);
    bench.later(30);
    assert_eq!(bench.cached_answer("a.example"), None);
    assert_eq!(bench.ask("x.off.example").await.answers, ["x.off.example 300 192.0.2.1"]);
    assert_eq!(bench.cached_answer("x.off.example"), None);

    let off = Bench::new(&format!("forward . {}", fake.address));
    off.ask("a.example").await;
    assert_eq!(off.cached_answer("a.example"), None, "without `cache` nothing is");
}

/// Upstream that can be switched off.
async fn moody() -> (Fake, Arc<AtomicUsize>) {
    let mode = Arc::new(AtomicUsize::new(0));
    let shared = mode.clone();
    let fake = Fake::new(move |_, question| match shared.load(Ordering::SeqCst) {
        0 => Reply::Say(vec![reply(question).a(60, [192, 0, 2, 1]).done()]),
        1 => Reply::Nothing,
        2 => Reply::Say(vec![reply(question).code(Rcode::SERVFAIL).done()]),
        _ => Reply::Say(vec![reply(question).a(60, [192, 0, 2, 9]).done()]),
    })
    .await;
    (fake, mode)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_answer_is_served_when_upstreams_fail() {
    let (fake, mode) = moody().await;
    let mut config = config(&format!(". {{\nforward . {}\ncache\n}}", fake.address));
    config.query_timeout = Duration::from_millis(200);
    config.stale_timeout = Duration::from_millis(100);
    let bench = Bench::with(config);
    bench.ask("a.example").await;
    bench.later(61);
    let stale = ReplySummary { extended: Some(3), ..answer(Rcode::NOERROR, &["a.example 30 192.0.2.1"]) };
    for bad in [1, 2] {
        mode.store(bad, Ordering::SeqCst);
        assert_eq!(bench.ask("a.example").await, stale, "{bad}");
        let asked = fake.queries().len();
        assert_eq!(bench.ask("a.example").await, stale);
        assert_eq!(fake.queries().len(), asked, "no new attempt for a while");
        bench.later(6);
    }
    mode.store(3, Ordering::SeqCst);
    until("the last query is cancelled", || bench.resolver.inflight.lock().is_empty()).await;
    assert_eq!(bench.ask("a.example").await.answers, ["a.example 60 192.0.2.9"]);
    assert_eq!(bench.resolver.stats().stale, 4);

    mode.store(1, Ordering::SeqCst);
    bench.later(3661);
    assert_eq!(bench.ask("a.example").await.rcode, Rcode::SERVFAIL, "an hour is enough");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_stale_immediate_does_not_wait() {
    let (fake, mode) = moody().await;
    let bench = Bench::new(&format!("forward . {}\ncache {{\nserve_stale 1h immediate\n}}", fake.address));
    bench.ask("a.example").await;
    bench.later(61);
    mode.store(3, Ordering::SeqCst);
    assert_eq!(bench.ask("a.example").await.extended, Some(3));
    until("the new answer is there", || bench.cached_answer("a.example").is_some()).await;
    assert_eq!(bench.cached_answer("a.example").expect("kept").answers, ["a.example 60 192.0.2.9"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servfail_is_cached_only_if_configured() {
    let (fake, mode) = moody().await;
    mode.store(2, Ordering::SeqCst);
    let usual = Bench::new(&format!("forward . {}\ncache", fake.address));
    let wanted = Bench::new(&format!("forward . {}\ncache {{\nservfail 10s\n}}", fake.address));
    for bench in [&usual, &wanted] {
        assert_eq!(bench.ask("a.example").await.rcode, Rcode::SERVFAIL);
    }
    assert_eq!(usual.cached_answer("a.example"), None);
    assert_eq!(wanted.cached_answer("a.example").map(|summary| summary.rcode), Some(Rcode::SERVFAIL));
    wanted.later(11);
    assert_eq!(wanted.cached_answer("a.example"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn popular_answers_are_prefetched() {
    let fake = Fake::with_address([192, 0, 2, 1]).await;
    let bench = Bench::new(&format!("forward . {}\ncache {{\nprefetch 2 5m 10%\n}}", fake.address));
    bench.ask("a.example").await;
    bench.later(100);
    assert!(bench.cached_answer("a.example").is_some() && bench.cached_answer("a.example").is_some());
    assert_eq!(fake.queries().len(), 1, "its end is far");
    bench.later(180);
    assert!(bench.cached_answer("a.example").is_some());
    until("it is asked for anew", || fake.queries().len() == 2).await;
    until("it is new", || bench.cached_answer("a.example").is_some_and(|summary| summary.answers[0].contains(" 300 ")))
        .await;
    assert_eq!(bench.resolver.stats().prefetched, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_queries_are_coalesced() {
    let gate = Arc::new(Semaphore::new(0));
    let closed = gate.clone();
    let fake =
        Fake::new(move |_, question| Reply::Gated(closed.clone(), reply(question).a(60, [192, 0, 2, 1]).done())).await;
    let bench = Bench::new(&format!("forward . {} {{\nread_timeout 20s\n}}", fake.address));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..100 {
        let resolver = bench.resolver.clone();
        let asked = if number % 2 == 0 { "a.example" } else { "A.EXAMPLE" };
        tasks.spawn(async move { summary(&resolver.resolve(udp(&ask(asked, Rtype::A, None))).await) });
    }
    until("all wait for one", || bench.resolver.stats().coalesced == 99).await;
    gate.add_permits(1000);
    while let Some(summary) = tasks.join_next().await {
        assert_eq!(summary.expect("no panic").answers[0].to_lowercase(), "a.example 60 192.0.2.1");
    }
    let stats = bench.resolver.stats();
    assert_eq!(
        fake.queries().len() as u64,
        1 + stats.hedged,
        "one question, and what was asked beside it for slowness"
    );
    assert_eq!(stats.misses, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_keeps_the_cache_of_unchanged_blocks() {
    let (fake, other) = (Fake::with_address([192, 0, 2, 1]).await, Fake::with_address([192, 0, 2, 2]).await);
    let text = |stub: SocketAddr, more: &str| {
        format!(". {{\nforward . {}\ncache\n{more}\n}}\nacme.local {{\nforward . {stub}\ncache\n}}", fake.address)
    };
    let bench = Bench::with(config(&text(fake.address, "")));
    bench.ask("a.example").await;
    bench.ask("a.acme.local").await;
    let mut changed = config(&text(other.address, "errors"));
    let now = bench.now();
    changed.clock = Arc::new(move || now);
    let resolver = Resolver::replacing(&bench.resolver, changed);
    let bench = Bench { resolver, ..bench };
    assert_eq!(bench.cached_answer("a.example").expect("kept").answers, ["a.example 300 192.0.2.1"]);
    assert_eq!(bench.cached_answer("a.acme.local"), None);
    assert_eq!(bench.ask("a.acme.local").await.answers, ["a.acme.local 300 192.0.2.2"]);
}
