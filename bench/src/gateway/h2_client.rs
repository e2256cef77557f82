//! The client of one HTTP/2 connection: the same request again and again, on one stream or several at once.
//!
//! In: a stream, a prepared request. Out: how long each response took. Each response is checked: status 200, the length of the body, and for
//! gRPC trailers behind it. Header blocks are not decoded.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::frames::{Frame, PREFACE, Windows, block, flag, is_ok, kind, put, put_start};
use super::grpc_pod::{MESSAGE, message};
use super::load::Gate;
use crate::lb::pod::BODY;

/// A prepared request.
#[derive(Clone, Debug)]
pub struct Request {
    head: Vec<u8>,
    body: Vec<u8>,
    /// The length of the body of the response.
    expected: usize,
    /// Whether the response ends with trailers.
    has_trailers: bool,
}

/// A stream whose response is not complete.
struct Open {
    stream: u32,
    begun: Instant,
    is_measured: bool,
    has_head: bool,
    length: usize,
}

impl Request {
    /// A request without a body.
    #[must_use]
    pub fn get(scheme: &str, host: &str) -> Self {
        let head = block(&[
            (":method", "GET"),
            (":scheme", scheme),
            (":path", "/index.html"),
            (":authority", host),
            ("user-agent", "bench/1"),
            ("accept", "*/*"),
        ]);
        Self { head, body: Vec::new(), expected: BODY, has_trailers: false }
    }

    /// A unary call.
    #[must_use]
    pub fn grpc(host: &str) -> Self {
        let head = block(&[
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/bench.Echo/Call"),
            (":authority", host),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("user-agent", "bench/1"),
        ]);
        Self { head, body: message(), expected: MESSAGE, has_trailers: true }
    }

    fn put(&self, out: &mut Vec<u8>, stream: u32) {
        let end = if self.body.is_empty() { flag::END_STREAM } else { 0 };
        put(out, kind::HEADERS, flag::END_HEADERS | end, stream, &self.head);
        if !self.body.is_empty() {
            put(out, kind::DATA, flag::END_STREAM, stream, &self.body);
        }
    }
}

/// Sends requests until the gate closes, this many at once. Returns early, without an error, when the server wants a new connection.
///
/// # Errors
/// When a response is not the expected one, or the connection ends.
pub async fn converse(
    mut wire: impl AsyncRead + AsyncWrite + Unpin,
    request: &Request,
    streams: usize,
    gate: &Gate<'_>,
    times: &mut Vec<Duration>,
) -> anyhow::Result<()> {
    let cost = i64::try_from(request.body.len())?;
    let (mut buffer, mut out, mut windows) = (BytesMut::with_capacity(1 << 14), PREFACE.to_vec(), Windows::default());
    let (mut open, mut next, mut is_leaving) = (Vec::<Open>::new(), 1, false);
    put_start(&mut out);
    loop {
        let is_over = gate.is_over() || is_leaving;
        if is_over && open.is_empty() {
            return Ok(());
        }
        while !is_over && open.len() < streams && windows.sendable >= cost {
            windows.sendable -= cost;
            request.put(&mut out, next);
            let is_measured = gate.is_measuring();
            open.push(Open { stream: next, begun: Instant::now(), is_measured, has_head: false, length: 0 });
            next += 2;
        }
        if !out.is_empty() {
            wire.write_all(&out).await?;
            out.clear();
        }
        ensure!(wire.read_buf(&mut buffer).await? > 0, "the connection ended within a response");
        while let Some(frame) = Frame::take(&mut buffer)? {
            windows.see(&frame, &mut out);
            match frame.kind {
                kind::HEADERS | kind::DATA => {
                    if let Some(done) = receive(&mut open, &frame, request)? {
                        gate.take(done.is_measured, done.begun, times);
                    }
                }
                kind::RST_STREAM => bail!("stream {} was reset with error {}", frame.stream, frame.number()),
                kind::GOAWAY => {
                    let error = frame.payload.get(4..8).context("a GOAWAY that is too short")?;
                    ensure!(error == [0; 4], "GOAWAY with error {error:?}");
                    is_leaving = true;
                }
                _ => {}
            }
        }
    }
}

/// Takes in a frame of a response; returns the stream when it is complete.
fn receive(open: &mut Vec<Open>, frame: &Frame, request: &Request) -> anyhow::Result<Option<Open>> {
    let place =
        open.iter().position(|one| one.stream == frame.stream).context("a frame of a stream that is not open")?;
    let one = &mut open[place];
    match frame.kind {
        kind::HEADERS if !one.has_head => {
            one.has_head = true;
            ensure!(is_ok(frame.content()?), "the status is not 200: header block {:?}", frame.content()?);
        }
        kind::DATA => one.length += frame.content()?.len(),
        _ => {}
    }
    if !frame.has(flag::END_STREAM) {
        return Ok(None);
    }
    let is_complete = one.length == request.expected && (frame.kind == kind::HEADERS || !request.has_trailers);
    ensure!(is_complete, "a response with {} bytes, ended by a frame of type {}", one.length, frame.kind);
    Ok(Some(open.swap_remove(place)))
}
