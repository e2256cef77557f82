//! Upstream selection and failures.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_restored_to_the_query_name() {
    let fake = Fake::with_address([192, 0, 2, 1]).await;
    let bench = Bench::new(&format!("forward . {}", fake.address));
    let message = ask("WWW.Example.ORG", Rtype::A, Some(1400));
    let reply = bench.resolver.resolve(udp(&message)).await;
    assert_eq!(reply[..2], message[..2], "the id");
    assert_eq!(reply[12..33], message[12..33], "the question, byte for byte");
    let header = Message::from_octets(reply.as_slice()).expect("a message").header();
    assert!(header.qr() && header.rd() && header.ra() && !header.tc());
    assert_eq!(summary(&reply), answer(Rcode::NOERROR, &["WWW.Example.ORG 300 192.0.2.1"]));
    assert_eq!(fake.queries(), [Via::Udp]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mismatched_replies_are_ignored() {
    let fake = Fake::new(|_, question| {
        let right = reply(question).a(300, [192, 0, 2, 1]).done();
        let wrong = reply(question).a(300, [6, 6, 6, 6]).done();
        let mut other_id = wrong.clone();
        other_id[0] ^= 0xff;
        let mut other_name = wrong.clone();
        other_name[13] ^= 1;
        let mut other_type = wrong.clone();
        other_type[12 + 11 + 1] ^= 1;
        let mut no_answer = wrong;
        no_answer[2] &= 0x7f;
        Reply::Say(vec![other_id, other_name, other_type, no_answer, vec![1, 2, 3], right])
    })
    .await;
    let bench = Bench::new(&format!("forward . {}", fake.address));
    assert_eq!(bench.ask("a.example").await, answer(Rcode::NOERROR, &["a.example 300 192.0.2.1"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_from_another_socket_is_ignored() {
    let fake = Fake::new(|_, question| {
        let wrong = reply(question).a(300, [6, 6, 6, 6]).done();
        Reply::FromElsewhere(wrong, reply(question).a(300, [192, 0, 2, 1]).done())
    })
    .await;
    let bench = Bench::new(&format!("forward . {}", fake.address));
    assert_eq!(bench.ask("a.example").await.answers, ["a.example 300 192.0.2.1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_upstream_does_not_delay_queries() {
    let (silent, good) = (Fake::silent().await, Fake::with_address([192, 0, 2, 1]).await);
    let bench = Bench::new(&format!("forward . {} {} {{\npolicy sequential\n}}", silent.address, good.address));
    let began = Instant::now();
    assert_eq!(bench.ask("a.example").await.answers, ["a.example 300 192.0.2.1"]);
    assert!(began.elapsed() < Duration::from_millis(1900), "the time for one try was not waited for");
    let stats = bench.resolver.stats();
    assert_eq!((stats.hedged, silent.queries().len(), good.queries().len()), (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_upstream_is_not_used_until_a_probe_succeeds() {
    let alive = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_alive = alive.clone();
    let flaky = Fake::new(move |_, question| match is_alive.load(Ordering::SeqCst) {
        true => Reply::Say(vec![reply(question).a(300, [192, 0, 2, 1]).done()]),
        false => Reply::Nothing,
    })
    .await;
    let good = Fake::with_address([192, 0, 2, 2]).await;
    let bench = Bench::new(&format!(
        "forward . {} {} {{\npolicy sequential\nread_timeout 60ms\nmax_fails 1\nhealth_check 20ms\n}}",
        flaky.address, good.address
    ));
    let is_down = || bench.resolver.stats().upstreams[0].down;
    let mut asked = 0;
    while !is_down() {
        assert_eq!(bench.ask("a.example").await.answers, ["a.example 300 192.0.2.2"]);
        asked += 1;
        assert!(asked < 500, "it never counts as failing");
    }
    alive.store(true, Ordering::SeqCst);
    until("the probe gets an answer", || !is_down()).await;
    assert_eq!(bench.ask("a.example").await.answers, ["a.example 300 192.0.2.1"], "the first of the order again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_upstreams_give_servfail_in_time_with_a_reason() {
    let (one, two) = (Fake::silent().await, Fake::silent().await);
    let mut config = config(&format!(". {{\nforward . {} {}\n}}", one.address, two.address));
    config.query_timeout = Duration::from_millis(300);
    let bench = Bench::with(config);
    let began = Instant::now();
    let got = bench.ask("a.example").await;
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(got, ReplySummary { extended: Some(22), ..answer(Rcode::SERVFAIL, &[]) });

    let failing = Bench::new(&format!("forward . {}", refusing().await));
    let began = Instant::now();
    assert_eq!(failing.ask("a.example").await, ReplySummary { extended: Some(23), ..answer(Rcode::SERVFAIL, &[]) });
    assert!(began.elapsed() < Duration::from_secs(1), "a refusal needs no waiting");
    let plain = failing.resolver.resolve(udp(&ask("a.example", Rtype::A, None))).await;
    assert_eq!(summary(&plain), answer(Rcode::SERVFAIL, &[]), "no reason for who does not know EDNS");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_upstream_is_tried_after_servfail() {
    let failing = Fake::new(|_, question| Reply::Say(vec![reply(question).code(Rcode::SERVFAIL).done()])).await;
    let good = Fake::with_address([192, 0, 2, 2]).await;
    let both = Bench::new(&format!("forward . {} {} {{\npolicy sequential\n}}", failing.address, good.address));
    assert_eq!(both.ask("a.example").await.answers, ["a.example 300 192.0.2.2"]);
    let alone = Bench::new(&format!("forward . {}", failing.address));
    assert_eq!(alone.ask("a.example").await, answer(Rcode::SERVFAIL, &[]));
    assert_eq!(failing.queries().len(), 2, "it is not asked twice for one question");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_without_edns_is_queried_without_it() {
    let fake = Fake::new(|_, question| {
        let edns = Message::from_octets(question).expect("a question").opt().is_some();
        let answer = reply(question);
        Reply::Say(vec![if edns { answer.code(Rcode::FORMERR).done() } else { answer.a(60, [192, 0, 2, 1]).done() }])
    })
    .await;
    let bench = Bench::new(&format!("forward . {}", fake.address));
    assert_eq!(bench.ask("a.example").await.answers, ["a.example 60 192.0.2.1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_zone_answers() {
    let (all, stub) = (Fake::with_address([192, 0, 2, 1]).await, Fake::with_address([192, 0, 2, 2]).await);
    let (deep, inner) = (Fake::with_address([192, 0, 2, 3]).await, Fake::with_address([192, 0, 2, 4]).await);
    let bench = Bench::with(config(&format!(
        ". {{\nforward corp.example {} {{\nexcept public.corp.example\n}}\nforward . {}\n}}\n\
         acme.local {{\nforward . {}\n}}\ndeep.acme.local {{\nforward . {}\n}}\nempty.local {{\nerrors\n}}",
        inner.address, all.address, stub.address, deep.address
    )));
    for (asked, last) in [
        ("a.example", 1),
        ("x.corp.example", 4),
        ("x.public.corp.example", 1),
        ("x.acme.local", 2),
        ("acme.local", 2),
        ("x.deep.acme.local", 3),
        ("xacme.local", 1),
    ] {
        assert_eq!(bench.ask(asked).await.answers, [format!("{asked} 300 192.0.2.{last}")], "{asked}");
    }
    assert_eq!(bench.ask("x.empty.local").await, ReplySummary { extended: Some(20), ..answer(Rcode::REFUSED, &[]) });
    let only = Bench::with(config(&format!("acme.local {{\nforward . {}\n}}", stub.address)));
    assert_eq!(only.ask("a.example").await, ReplySummary { extended: Some(20), ..answer(Rcode::REFUSED, &[]) });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_loop_is_detected_and_reported() {
    let resolver: Arc<std::sync::OnceLock<Arc<Resolver>>> = Arc::default();
    let ourselves = resolver.clone();
    let looping = Fake::new(move |_, question| {
        let mut out = Vec::new();
        let resolver = ourselves.wait();
        match resolver.cached(&udp(question), Instant::now(), &mut out) {
            true => Reply::Say(vec![out]),
            false => Reply::Nothing,
        }
    })
    .await;
    let good = Fake::with_address([192, 0, 2, 1]).await;
    let bench = Bench::new(&format!("loop\nforward . {} {}", looping.address, good.address));
    assert!(resolver.set(bench.resolver.clone()).is_ok());
    until("the loop is detected", || !bench.resolver.not_ready().is_empty()).await;
    let why = format!("forward: {}: it forwards back to this server; configure another upstream", looping.address);
    assert_eq!(bench.resolver.not_ready(), [why]);
    for number in 0..10 {
        let asked = format!("a{number}.example");
        assert_eq!(bench.ask(&asked).await.answers, [format!("{asked} 300 192.0.2.1")]);
    }

    let mut config = config(&format!(". {{\nforward . {}\n}}", good.address));
    config.listen_addresses = vec![good.address];
    let bench = Bench::with(config);
    assert_eq!(bench.ask("a.example").await, ReplySummary { extended: Some(22), ..answer(Rcode::SERVFAIL, &[]) });
    assert_eq!(bench.resolver.not_ready().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cname_targets_are_resolved_with_their_records() {
    let fake = Fake::new(|_, question| {
        Reply::Say(vec![reply(question).cname(60, "b.example").cname(50, "c.example").a(40, [192, 0, 2, 1]).done()])
    })
    .await;
    let bench = Bench::new(&format!("forward . {}\ncache", fake.address));
    for _ in 0..2 {
        let found = bench.resolver.lookup(&wire("a.example"), 1, CLIENT.into()).await;
        assert_eq!((found.rcode, found.truncated, found.records.len()), (0, false, 3));
        assert_eq!((&found.records[0].owner, &found.records[0].data), (&wire("a.example"), &wire("b.example")));
        assert_eq!(
            (&found.records[2].owner, found.records[2].data.as_slice()),
            (&wire("c.example"), &[192, 0, 2, 1][..])
        );
    }
    assert_eq!(fake.queries().len(), 1);
    assert_eq!(bench.resolver.lookup(b"\x05wrong", 1, CLIENT.into()).await.rcode, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_upstream_queries_are_bounded() {
    let gate = Arc::new(Semaphore::new(0));
    let closed = gate.clone();
    let fake =
        Fake::new(move |_, question| Reply::Gated(closed.clone(), reply(question).a(60, [192, 0, 2, 1]).done())).await;
    let bench = Bench::new(&format!("forward . {} {{\nmax_concurrent 1\n}}", fake.address));
    let resolver = bench.resolver.clone();
    let first = tokio::spawn(async move { summary(&resolver.resolve(udp(&ask("a.example", Rtype::A, None))).await) });
    until("the first is under way", || !fake.queries().is_empty()).await;
    assert_eq!(bench.ask("b.example").await, ReplySummary { extended: Some(22), ..answer(Rcode::SERVFAIL, &[]) });
    assert_eq!(bench.resolver.stats().rejected, 1);
    gate.add_permits(100);
    assert_eq!(first.await.expect("no panic").answers, ["a.example 60 192.0.2.1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_robin_rotates_upstreams() {
    let (one, two) = (Fake::with_address([192, 0, 2, 1]).await, Fake::with_address([192, 0, 2, 2]).await);
    let bench = Bench::new(&format!("forward . {} {} {{\npolicy round_robin\n}}", one.address, two.address));
    let mut last = Vec::new();
    for number in 0..6 {
        let summary = bench.ask(&format!("a{number}.example")).await;
        last.push(summary.answers[0].bytes().last().expect("text"));
    }
    assert_eq!(last, b"121212");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ad_flag_is_returned_on_request() {
    let fake = Fake::new(|_, question| {
        let mut message = reply(question).a(300, [192, 0, 2, 1]).done();
        message[3] |= 0x20;
        Reply::Say(vec![message])
    })
    .await;
    let bench = Bench::new(&format!("forward . {}\ncache", fake.address));
    for (bits, want) in [(0, false), (0x20, true)] {
        let mut message = ask("a.example", Rtype::A, None);
        message[3] |= bits;
        for _ in 0..2 {
            let reply = bench.resolver.resolve(udp(&message)).await;
            assert_eq!(reply[3] & 0x20 != 0, want, "{bits}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_are_read_from_resolv_conf() {
    let path = std::env::temp_dir().join(format!("waypost-resolv-{}", std::process::id()));
    std::fs::write(&path, "search x\nnameserver 192.0.2.1\nnameserver 2001:db8::1\n").expect("written");
    let text = format!(". {{\nforward . {}\n}}", path.display());
    let bench = Bench::with(config(&text));
    let addresses: Vec<_> =
        bench.resolver.stats().upstreams.iter().map(|upstream| upstream.address.to_string()).collect();
    assert_eq!(addresses, ["192.0.2.1:53", "[2001:db8::1]:53"]);
    std::fs::write(&path, "nameserver\n").expect("written");
    let server = || corefile::parse("Corefile", &text, &corefile::EmptyEnvironment).expect("understood");
    let refused = Config::load(server()).err().expect("refused").to_string();
    assert!(refused.contains("line 1: `nameserver` without an address"), "{refused}");
    std::fs::write(&path, "").expect("written");
    let failing = Bench::with(Config::load(server()).unwrap_or_else(|error| panic!("{error}")));
    assert_eq!(failing.resolver.not_ready(), ["forward: . has no upstream; configure one"]);
    std::fs::remove_file(&path).expect("removed");
    assert!(Config::load(server()).is_err(), "a file that is not there");
}
