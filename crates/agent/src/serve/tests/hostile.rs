use std::sync::Arc;

use proptest::prelude::*;

use super::client::{Connection, Frame, Plain, Socket, agent, control, data, masked};

const CAT: &str = "/exec/default/web/main?input=1&output=1&command=cat";
/// Reads nothing, so that the end of its input does not end it.
const DEAF: &str = "/exec/default/web/main?input=1&output=1&command=deaf";

/// Sends bytes over a WebSocket; returns the code of its closure.
async fn closed_with(bytes: &[u8]) -> u16 {
    let (agent, fake) = agent();
    let mut socket = Socket::open(&agent, DEAF, "v5.channel.k8s.io").await;
    socket.0.send(bytes).await;
    let (_, code) = socket.channels().await;
    assert!(socket.0.hung_up().await);
    fake.until_ended_early(1).await;
    code
}

#[tokio::test]
async fn websocket_violations_have_their_close_code() {
    let long = masked(0x89, &[0; 126]);
    for (bytes, code) in [
        (&masked(0xc2, b"\0x")[..], 1002),
        (&masked(0x83, b"\0x"), 1002),
        (b"\x82\x02\0x", 1002),
        (&masked(0x80, b"x"), 1002),
        (&[masked(0x02, b"\0x"), masked(0x82, b"\0x")].concat(), 1002),
        (&long, 1002),
        (&masked(0x09, b"x"), 1002),
        (&masked(0x88, b"x"), 1002),
        (&masked(0x88, &1005u16.to_be_bytes()), 1002),
        (&masked(0x81, b"text"), 1003),
        (&masked(0x82, &[255]), 1007),
        (&masked(0x82, &[255, 9]), 1007),
        (&masked(0x82, &[255, 0, 0]), 1007),
        (&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4], 1002),
    ] {
        assert_eq!(closed_with(bytes).await, code, "{bytes:?}");
    }
}

#[tokio::test]
async fn spdy_violations_close_the_connection() {
    let opened_twice = |plain: &mut Plain| {
        [plain.spdy.open(3, &[("streamtype", "error")]), plain.spdy.open(3, &[("streamtype", "stdin")])].concat()
    };
    let even = |plain: &mut Plain| plain.spdy.open(2, &[("streamtype", "error")]);
    let version = |_: &mut Plain| vec![0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1];
    let long = |_: &mut Plain| vec![0x80, 3, 0, 1, 0, 255, 255, 255];
    let garbage = |_: &mut Plain| control(1, &[1; 50]);
    let short = |_: &mut Plain| control(6, &[1; 3]);
    let zero = |_: &mut Plain| data(0, b"x", false);
    let upper = |plain: &mut Plain| plain.spdy.open(1, &[("StreamType", "error")]);
    let cases: [fn(&mut Plain) -> Vec<u8>; 8] = [opened_twice, even, version, long, garbage, short, zero, upper];
    for (number, case) in cases.iter().enumerate() {
        let (agent, fake) = agent();
        let mut plain = Plain::open(&agent, DEAF, "v4.channel.k8s.io").await;
        let bytes = case(&mut plain);
        plain.connection.send(&bytes).await;
        while let Some(frame) = plain.next().await {
            assert!(matches!(frame, Frame::Goaway | Frame::Reply(_)), "{number}: {frame:?}");
        }
        fake.until_ended_early(1).await;
    }
}

#[tokio::test]
async fn unknown_but_valid_frames_are_ignored() {
    let (agent, _) = agent();
    let mut plain = Plain::open(&agent, CAT, "v4.channel.k8s.io").await;
    plain.connection.send(&control(77, b"what is this")).await;
    plain.connection.send(&control(3, &[0, 0, 0, 9, 0, 0, 0, 5])).await;
    plain.connection.send(&control(4, &[0, 0, 0, 0])).await;
    plain.connection.send(&data(9, b"for nobody", true)).await;
    assert_eq!(plain.next().await, Some(Frame::Reset(9, 2)));
    for (id, kind) in [(1, "error"), (3, "nonsense"), (5, "stdin"), (7, "stdin"), (11, "stdout")] {
        plain.stream(id, &[("streamtype", kind)]).await;
    }
    plain.connection.send(&data(5, b"and on it goes", true)).await;
    assert_eq!(plain.all_of(11).await, b"and on it goes");
}

#[tokio::test]
async fn a_client_that_does_not_read_responses_is_blocked() {
    let (agent, _) = agent();
    let mut plain = Plain::open(&agent, CAT, "v4.channel.k8s.io").await;
    let ping = control(6, &[0, 0, 0, 1]).repeat(1000);
    let sent = tokio::time::timeout(std::time::Duration::from_millis(500), async {
        for _ in 0..10_000 {
            plain.connection.send(&ping).await;
        }
    });
    assert!(sent.await.is_err(), "120 MB of questions were taken in without an answer being read");
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused() {
    let (agent, _) = agent();
    let mut plain = Plain::open(&agent, "/portForward/default/web", "portforward.k8s.io").await;
    let mut refused = 0;
    for number in 0..1100u32 {
        let request = number.to_string();
        plain.stream(2 * number + 1, &[("streamtype", "error"), ("port", "1"), ("requestid", &request)]).await;
        match plain.next().await {
            Some(Frame::Reply(_)) => {}
            Some(Frame::Reset(_, 3)) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, 1100 - 1024);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_no_streams_times_out() {
    let (agent, fake) = agent();
    let mut plain = Plain::open(&agent, DEAF, "v4.channel.k8s.io").await;
    plain.stream(1, &[("streamtype", "error")]).await;
    let begun = tokio::time::Instant::now();
    fake.until_ended_early(1).await;
    assert!(begun.elapsed() < std::time::Duration::from_secs(40));
    assert!(begun.elapsed() >= std::time::Duration::from_secs(29));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_after_four_hours() {
    let (agent, fake) = agent();
    let _socket = Socket::open(&agent, DEAF, "v5.channel.k8s.io").await;
    let begun = tokio::time::Instant::now();
    fake.until_ended_early(1).await;
    assert!(begun.elapsed() < std::time::Duration::from_secs(4 * 3600 + 300));
    assert!(begun.elapsed() >= std::time::Duration::from_secs(4 * 3600 - 60));
}

#[tokio::test]
async fn streams_of_a_node_are_limited() {
    let (agent, _) = agent();
    let places: Vec<_> = std::iter::from_fn(|| agent.session_permit().ok()).collect();
    let (code, _) = Connection::new(&agent).ask("GET /containerLogs/default/web/main", &[]).await;
    assert_eq!((places.len(), code), (super::super::MAX_SESSIONS, 503));
}

/// Bytes of anything, or of something that looks like a protocol.
fn junk() -> impl Strategy<Value = Vec<u8>> {
    let frame = (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..200)).prop_map(|(a, b)| masked(a, &b));
    let spdy = (0u16..12, proptest::collection::vec(any::<u8>(), 0..60)).prop_map(|(kind, body)| control(kind, &body));
    let some = (1u32..9, proptest::collection::vec(any::<u8>(), 0..60), any::<bool>());
    let bytes = some.prop_map(|(id, body, finish)| data(id, &body, finish));
    let piece = prop_oneof![proptest::collection::vec(any::<u8>(), 0..100), frame, spdy, bytes];
    proptest::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_input_ends_connection_and_process(bytes in junk(), spdy: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let (agent, fake) = agent();
            if spdy {
                let mut plain = Plain::open(&agent, CAT, "v4.channel.k8s.io").await;
                for (id, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
                    plain.stream(id, &[("streamtype", kind)]).await;
                }
                plain.connection.send(&bytes).await;
            } else {
                let mut socket = Socket::open(&agent, CAT, "v5.channel.k8s.io").await;
                socket.0.send(&bytes).await;
            }
            // After the client disconnected, no resources may remain.
            let begun = tokio::time::Instant::now();
            while Arc::strong_count(&agent) > 1 || agent.sessions.available_permits() < super::super::MAX_SESSIONS {
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{} {}", fake.ended_early(), agent.sessions.available_permits());
            }
        });
    }
}
