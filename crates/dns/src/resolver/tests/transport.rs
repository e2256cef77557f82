//! UDP, TCP, message sizes.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_reply_is_retried_over_tcp() {
    let fake = Fake::new(|via, question| {
        let answer = reply(question).a(300, [192, 0, 2, 1]);
        Reply::Say(vec![if via == Via::Udp { answer.truncated().done() } else { answer.a(300, [192, 0, 2, 2]).done() }])
    })
    .await;
    let bench = Bench::new(&format!("forward . {}", fake.address));
    assert_eq!(bench.ask("a.example").await.answers.len(), 2);
    assert_eq!(fake.queries(), [Via::Udp, Via::Tcp]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_with_many_mismatched_replies_is_retried_over_tcp() {
    let fake = Fake::new(|via, question| {
        let right = reply(question).a(300, [192, 0, 2, 1]).done();
        let mut wrong = reply(question).a(300, [6, 6, 6, 6]).done();
        wrong[0] ^= 0xff;
        Reply::Say(if via == Via::Udp { vec![wrong; 40] } else { vec![right] })
    })
    .await;
    let bench = Bench::new(&format!("forward . {}", fake.address));
    assert_eq!(bench.ask("a.example").await.answers, ["a.example 300 192.0.2.1"]);
    assert!(fake.queries().contains(&Via::Tcp));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_connections_are_pipelined_and_out_of_order() {
    let gate = Arc::new(Semaphore::new(0));
    let closed = gate.clone();
    let fake = Fake::new(move |_, question| {
        let number = (question[14] - b'0') * 10 + question[15] - b'0';
        let answer = reply(question).a(300, [192, 0, 2, number]).done();
        // Every second one is delayed, so that replies arrive out of order.
        if number.is_multiple_of(2) { Reply::Gated(closed.clone(), answer) } else { Reply::Say(vec![answer]) }
    })
    .await;
    let bench = Bench::new(&format!("forward . {} {{\nforce_tcp\nread_timeout 20s\n}}", fake.address));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..50 {
        let resolver = bench.resolver.clone();
        tasks.spawn(async move {
            let query_name = format!("n{number:02}.example");
            let got = summary(&resolver.resolve(udp(&ask(&query_name, Rtype::A, None))).await);
            assert_eq!(got.answers, [format!("{query_name} 300 192.0.2.{number}")]);
            number
        });
    }
    let mut overtaking = Vec::new();
    while overtaking.len() < 25 {
        overtaking.push(tasks.join_next().await.expect("more").expect("no panic"));
    }
    assert!(overtaking.iter().all(|number| number % 2 == 1), "{overtaking:?}");
    gate.add_permits(1000);
    while let Some(done) = tasks.join_next().await {
        assert_eq!(done.expect("no panic") % 2, 0);
    }
    assert!(fake.connections.load(Ordering::SeqCst) <= 4, "{:?}", fake.connections);
    assert!(fake.queries().iter().all(|via| *via == Via::Tcp));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_upstream_connection_is_reopened() {
    let fake = Fake::new(|_, question| Reply::SayAndClose(reply(question).a(300, [192, 0, 2, 1]).done())).await;
    let bench = Bench::new(&format!("forward . {} {{\nforce_tcp\n}}", fake.address));
    for number in 0..5 {
        let query_name = format!("a{number}.example");
        assert_eq!(bench.ask(&query_name).await.answers, [format!("{query_name} 300 192.0.2.1")]);
    }
    assert_eq!(bench.resolver.stats().upstreams[0].failed, 0, "closing an idle connection is no failure");
}

/// Upstream with `count` addresses per name.
async fn many(count: u8) -> Fake {
    Fake::new(move |via, question| {
        if via == Via::Udp && count > 60 {
            return Reply::Say(vec![reply(question).truncated().done()]);
        }
        let full = (0..count).fold(reply(question), |answer, last| answer.a(300, [192, 0, 2, last]));
        Reply::Say(vec![full.done()])
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_fit_the_size_limit_of_the_client() {
    let fake = many(100).await;
    let bench = Bench::new(&format!("forward . {}\ncache\nloadbalance", fake.address));
    let capped = Bench::new(&format!("forward . {}\ncache\nbufsize 700", fake.address));
    for (bench, edns, transport, limit, whole) in [
        (&bench, None, Transport::Udp, 512, false),
        (&bench, Some(100), Transport::Udp, 512, false),
        (&bench, Some(1232), Transport::Udp, 1232, false),
        (&bench, Some(4096), Transport::Udp, 4096, true),
        (&bench, Some(65535), Transport::Udp, 4096, true),
        (&bench, None, Transport::Tcp, 65535, true),
        (&capped, Some(4096), Transport::Udp, 700, false),
    ] {
        let message = ask("many.example", Rtype::A, edns);
        let question = Request { transport, ..udp(&message) };
        for _ in 0..2 {
            let reply = bench.resolver.resolve(question).await;
            let parsed = Message::from_octets(reply.as_slice()).expect("a message");
            assert!(reply.len() <= limit && (whole || reply.len() + 28 > limit), "{} of {limit}", reply.len());
            assert_eq!(parsed.header().tc(), !whole, "{edns:?} {transport:?}");
            let mut answers = summary(&reply).answers;
            assert_eq!(answers.len() == 100, whole);
            answers.sort();
            answers.dedup();
            assert_eq!(answers.len(), usize::from(parsed.header_counts().ancount()), "no address twice");
            assert_eq!(parsed.opt().is_some(), edns.is_some());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_are_rotated() {
    let fake = many(8).await;
    let bench = Bench::new(&format!("forward . {}\ncache\nloadbalance", fake.address));
    let mut first = std::collections::HashSet::new();
    for _ in 0..200 {
        first.insert(bench.ask("many.example").await.answers[0].clone());
    }
    assert_eq!(first.len(), 8, "{first:?}");
}
