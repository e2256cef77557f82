//! Floods by HTTP/2: requests that are taken back at once, heads without end, heads that grow when they are read.
//!
//! An attacker is a socket that writes frames by hand. Each time it is hung up on, pods hear next to nothing of it, others are served, and the
//! program does not grow.

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use testbed::net::{Family, eventually};

use super::clients::{connect, stage};
use super::pods::next_head;
use super::stage::Stage;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Types of frames.
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
/// Flags of heads: nothing follows the head, and the head is complete.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// A request for `/` of `web.example`: three entries of the static table, and one with a value of its own.
const GET: &[u8] = b"\x82\x86\x84\x01\x0bweb.example";
/// The error code CANCEL of `RST_STREAM`.
const CANCEL: u32 = 8;
/// As much as a frame may hold unless more was agreed on.
const LARGEST: usize = 16_384;

/// Time limit for the gateway to close; an idle connection is kept for longer.
const SOON: Duration = Duration::from_secs(30);
/// The limit of the program's growth, in KiB.
const GROWTH: u64 = 32 * 1024;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a length").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// How an attack went.
#[derive(Debug)]
struct End {
    /// How much could be written.
    sent: usize,
    /// Whether the gateway closed the connection, and the error code of its GOAWAY, if it arrived.
    is_over: bool,
    code: Option<u32>,
    /// Everything that it sent.
    answer: Vec<u8>,
}

/// What an attacker does after sending everything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Stays,
    Leaves,
}

/// Writes frames until they end or the gateway does; then waits for what it has to say, for a while.
fn attack(stage: &Stage, frames: impl Iterator<Item = Vec<u8>>, then: Then) -> End {
    let mut stream = connect(stage);
    stream.set_read_timeout(Some(SOON)).expect("a timeout");
    let mut reader = stream.try_clone().expect("a second handle");
    let reading = std::thread::spawn(move || {
        let mut answer = Vec::new();
        // A reset is equivalent to a close here; only a timeout is not.
        let end = reader.read_to_end(&mut answer).map_err(|error| error.kind());
        (answer, !matches!(end, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut)))
    });
    let mut sent = 0;
    for bytes in [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])].into_iter().chain(frames) {
        if stream.write_all(&bytes).is_err() {
            break;
        }
        sent += bytes.len();
    }
    if then == Then::Leaves {
        // The other side may have ended already.
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let (answer, is_over) = reading.join().expect("what it said");
    End { sent, is_over, code: goaway(&answer), answer }
}

/// The error code of the GOAWAY frame.
fn goaway(mut bytes: &[u8]) -> Option<u32> {
    while let Some((head, rest)) = bytes.split_at_checked(9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let (payload, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        if head[3] == GOAWAY {
            return Some(u32::from_be_bytes(payload.get(4..8)?.try_into().ok()?));
        }
        bytes = rest;
    }
    None
}

/// The most memory that the program of the node ever had, in KiB.
fn most(stage: &Stage) -> u64 {
    let pid = stage.served.with_proxy(&stage.node, |proxy| proxy.pid());
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Stops the other clients, however a test ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Does something while another client sends requests all the time, and must be served; then checks the memory.
fn beside_others(stage: &Stage, work: impl FnOnce()) {
    let (is_over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let ask = || {
        let mut stream = connect(stage);
        while !is_over.load(Relaxed) {
            stream.write_all(b"GET /good HTTP/1.1\r\nHost: web.example\r\n\r\n").expect("sent");
            let head = next_head(&mut stream);
            assert!(head.starts_with("http/1.1 200"), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
            let mut body = vec![0; length.trim().parse().expect("a number")];
            stream.read_exact(&mut body).expect("a body");
            served.fetch_add(1, Relaxed);
        }
    };
    let before = most(stage);
    std::thread::scope(|scope| {
        let other = scope.spawn(ask);
        let over = Over(&is_over);
        eventually("the other is served", || served.load(Relaxed) > 0);
        work();
        let during = served.load(Relaxed);
        eventually("the other is still served", || served.load(Relaxed) > during);
        drop(over);
        other.join().expect("every request of the other was answered");
    });
    let after = most(stage);
    eprintln!("{} requests of the other; memory {before} -> {after} KiB", served.load(Relaxed));
    assert!(after < before + GROWTH, "its memory went from {before} to {after} KiB");
    let page = stage.page(Family::V4, &["--http2-prior-knowledge", "http://web.example/"]);
    assert!(page.contains("get / http/1.1"), "newcomers are served: {page}");
}

#[test]
fn who_takes_every_request_back_is_hung_up_on() {
    /// How many requests an attacker would make; the gateway lets 128 at a time in, and 32 be taken back before they are begun.
    const REQUESTS: u32 = 20_000;
    /// Of these few may reach pods: those that were let in before they were taken back.
    const REACH: usize = 1000;
    let (stage, _pod, heard) = stage(&[]);
    beside_others(&stage, || {
        for _ in 0..5 {
            let pair = |stream: u32| {
                let head = frame(HEADERS, END_STREAM | END_HEADERS, stream, GET);
                [head, frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())].concat()
            };
            // Several to a packet, as an attacker would.
            let all: Vec<u8> = (0..REQUESTS).flat_map(|number| pair(2 * number + 1)).collect();
            let end = attack(&stage, all.chunks(LARGEST).map(<[u8]>::to_vec), Then::Stays);
            eprintln!("hung up after at most {} of {} bytes, code {:?}", end.sent, all.len(), end.code);
            assert!(end.is_over, "it may go on: {end:?}");
        }
    });
    let reached = heard.lock().iter().filter(|head| head.starts_with("get / ")).count();
    eprintln!("{reached} of {} requests reached the pod", 5 * REQUESTS);
    assert!(reached < REACH, "{reached}");
}

#[test]
fn heads_without_end_end_the_connection() {
    /// How much an attacker would say.
    const FLOOD: usize = 64 << 20;
    let (stage, _pod, heard) = stage(&[]);
    let begin = || std::iter::once(frame(HEADERS, END_STREAM, 1, GET));
    // A header that is written out, again and again; and pieces with nothing in them.
    let field: &[u8] = b"\x00\x01x\x05aaaaa";
    let (full, empty) = (field.repeat(LARGEST / field.len()), Vec::new());
    beside_others(&stage, || {
        for piece in [full, empty] {
            // Pieces of nothing are put together, so that the attacker is not the slower one.
            let each = frame(CONTINUATION, 0, 1, &piece);
            let together = each.repeat((LARGEST / each.len()).max(1));
            let flood = (0..FLOOD / together.len()).map(|_| together.clone());
            let end = attack(&stage, begin().chain(flood), Then::Stays);
            eprintln!("hung up after at most {} of {FLOOD} bytes, code {:?}", end.sent, end.code);
            assert!(end.is_over, "it may go on: {end:?}");
            assert!(end.sent < FLOOD / 2, "most of it was taken: {} bytes", end.sent);
        }
    });
    let reached = heard.lock().iter().any(|head| head.starts_with("get / ") && head.contains("x: "));
    assert!(!reached, "no pod hears of it: {:?}", heard.lock());
}

#[test]
fn a_head_that_grows_when_it_is_read_is_refused() {
    /// How often the long header is repeated, by a one-byte index.
    const TIMES: usize = 16_000;
    let (stage, _pod, heard) = stage(&[]);
    // A header of 4000 bytes that both sides keep, as entry 62. The length is 127, 33 and 30 times 128.
    let head = [GET, b"\x40\x06x-bomb\x7f\xa1\x1e", &[b'a'; 4000]].concat();
    beside_others(&stage, || {
        for _ in 0..10 {
            let bomb = [frame(HEADERS, END_STREAM, 1, &head), frame(CONTINUATION, END_HEADERS, 1, &[0xbe; TIMES])];
            let end = attack(&stage, bomb.into_iter(), Then::Leaves);
            assert!(end.is_over, "{end:?}");
            assert!(end.answer.len() < LARGEST, "what is wrong is said in short: {} bytes", end.answer.len());
        }
    });
    assert!(heard.lock().iter().all(|head| !head.contains("x-bomb")), "no pod hears of it");
}
