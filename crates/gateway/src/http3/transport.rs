//! QUIC connections as the HTTP/3 library uses them.
//!
//! In: a connection of quinn. Out: streams of which the library sees complete frames only ([`super::frames`]), and no more data than the
//! request reads. A response that is not complete ends with a reset, one that the client does not read with a timeout.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use parking_lot::Mutex;
use quinn::{ConnectionError, ReadError, VarInt, WriteError};

use super::frames::{FrameFilter, Violation};
use crate::metrics::{QuicLimit, ServiceMetrics};
use crate::stall::StallTimer;

/// Bytes of a request body that the library may hold.
const MAX_AHEAD: usize = 32 * 1024;
/// Bytes of one read.
const PIECE: usize = 8 * 1024;
/// HEADERS frames of one connection that may be incomplete, in multiples of the longest one.
const MAX_INCOMPLETE: usize = 8;

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, ConnectionError>> + Send>>;
/// Completes when the client has stopped a response (true), or has acknowledged all of it (false).
pub(super) type Stopped = Pin<Box<dyn Future<Output = bool> + Send>>;

/// A connection.
pub(super) struct Transport {
    connection: quinn::Connection,
    shared: Arc<ConnectionState>,
    incoming_bi: Option<Pending<(quinn::SendStream, quinn::RecvStream)>>,
    incoming_uni: Option<Pending<quinn::RecvStream>>,
    outgoing_uni: Option<Pending<quinn::SendStream>>,
}

/// State of a connection and its streams.
pub(super) struct ConnectionState {
    /// Longest HEADERS frame in bytes.
    max_headers: usize,
    /// How long a client may read nothing of a response.
    stall: Duration,
    metrics: Arc<ServiceMetrics>,
    is_draining: AtomicBool,
    /// Bytes of frames that are not complete.
    incomplete: AtomicUsize,
    /// Request streams that the library has accepted, in this order.
    accepted: Mutex<VecDeque<AcceptedStream>>,
}

/// What is known of a request stream beside what the library shows.
pub(super) struct AcceptedStream {
    pub(super) stopped: Stopped,
    pub(super) ahead: Arc<Ahead>,
    /// Whether the response must be complete; false for errors of the library, after which it ends the stream.
    must_finish: Arc<AtomicBool>,
}

/// Bytes of a request body that the library holds.
#[derive(Default)]
pub(super) struct Ahead(AtomicUsize);

impl ConnectionState {
    pub(super) fn new(max_headers: usize, stall: Duration, metrics: Arc<ServiceMetrics>) -> Self {
        Self {
            max_headers,
            stall,
            metrics,
            is_draining: AtomicBool::new(false),
            incomplete: AtomicUsize::new(0),
            accepted: Mutex::default(),
        }
    }

    /// Rejects requests from now on.
    pub(super) fn drain(&self) {
        self.is_draining.store(true, Relaxed);
    }

    /// The stream that the library has accepted.
    pub(super) fn accepted(&self) -> Option<AcceptedStream> {
        self.accepted.lock().pop_front()
    }
}

impl AcceptedStream {
    /// From now on a response that is not complete is reset.
    pub(super) fn must_finish(&self) {
        self.must_finish.store(true, Relaxed);
    }
}

impl Ahead {
    /// The request has read this many bytes.
    pub(super) fn release(&self, count: usize) {
        self.0.fetch_sub(count, Relaxed);
    }
}

impl Transport {
    pub(super) fn new(connection: quinn::Connection, shared: Arc<ConnectionState>) -> Self {
        Self { connection, shared, incoming_bi: None, incoming_uni: None, outgoing_uni: None }
    }
}

/// Polls a future that is made when there is none.
fn poll<T>(
    pending: &mut Option<Pending<T>>,
    cx: &mut Context<'_>,
    new: impl FnOnce() -> Pending<T>,
) -> Poll<Result<T, ConnectionError>> {
    let done = ready!(pending.get_or_insert_with(new).as_mut().poll(cx));
    *pending = None;
    Poll::Ready(done)
}

impl quic::Connection<Bytes> for Transport {
    type RecvStream = RecvStream;
    type OpenStreams = Self;

    fn poll_accept_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        let connection = &self.connection;
        let stream = ready!(poll(&mut self.incoming_uni, cx, || {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_uni().await })
        }))
        .map_err(of_connection)?;
        let filter = FrameFilter::of_stream(self.shared.max_headers);
        Poll::Ready(Ok(RecvStream::new(stream, filter, &self.shared)))
    }

    fn poll_accept_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<BidiStream, ConnectionErrorIncoming>> {
        loop {
            let connection = &self.connection;
            let (mut send, mut recv) = ready!(poll(&mut self.incoming_bi, cx, || {
                let connection = connection.clone();
                Box::pin(async move { connection.accept_bi().await })
            }))
            .map_err(of_connection)?;
            if self.shared.is_draining.load(Relaxed) {
                // The client learns from GOAWAY, too, that it can send the request again.
                let _ = send.reset(code(Code::H3_REQUEST_REJECTED.value()));
                let _ = recv.stop(code(Code::H3_REQUEST_REJECTED.value()));
                continue;
            }
            let stopped = send.stopped();
            let stopped = Box::pin(async move { !matches!(stopped.await, Ok(None)) });
            let must_finish = Arc::<AtomicBool>::default();
            let filter = FrameFilter::of_request(self.shared.max_headers);
            let recv = RecvStream::new(recv, filter, &self.shared);
            let accepted =
                AcceptedStream { stopped, ahead: Arc::clone(&recv.ahead), must_finish: Arc::clone(&must_finish) };
            self.shared.accepted.lock().push_back(accepted);
            let mut send = SendStream::new(send, self.shared.stall);
            send.must_finish = Some(must_finish);
            return Poll::Ready(Ok(BidiStream { send, recv }));
        }
    }

    fn opener(&self) -> Self {
        Self::new(self.connection.clone(), Arc::clone(&self.shared))
    }
}

impl quic::OpenStreams<Bytes> for Transport {
    type BidiStream = BidiStream;
    type SendStream = SendStream;

    /// Servers open no streams of this kind.
    fn poll_open_bidi(&mut self, _: &mut Context<'_>) -> Poll<Result<BidiStream, StreamErrorIncoming>> {
        Poll::Ready(Err(StreamErrorIncoming::Unknown(Box::new(io::Error::from(io::ErrorKind::Unsupported)))))
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<SendStream, StreamErrorIncoming>> {
        let connection = &self.connection;
        let stream = ready!(poll(&mut self.outgoing_uni, cx, || {
            let connection = connection.clone();
            Box::pin(async move { connection.open_uni().await })
        }))
        .map_err(lost)?;
        Poll::Ready(Ok(SendStream::new(stream, self.shared.stall)))
    }

    fn close(&mut self, error: Code, reason: &[u8]) {
        self.connection.close(code(error.value()), reason);
    }
}

/// A request stream.
pub(super) struct BidiStream {
    send: SendStream,
    recv: RecvStream,
}

/// The sending side of a stream.
pub(super) struct SendStream {
    stream: quinn::SendStream,
    writing: Option<WriteBuf<Bytes>>,
    stall: StallTimer,
    /// None for streams that end with the connection.
    must_finish: Option<Arc<AtomicBool>>,
}

/// The receiving side of a stream.
pub(super) struct RecvStream {
    stream: quinn::RecvStream,
    filter: FrameFilter,
    /// What was received and not passed on.
    input: BytesMut,
    ahead: Arc<Ahead>,
    shared: Arc<ConnectionState>,
    /// Counted as incomplete.
    counted: usize,
}

impl SendStream {
    fn new(stream: quinn::SendStream, stall: Duration) -> Self {
        Self { stream, writing: None, stall: StallTimer::new(stall), must_finish: None }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(data) = self.writing.as_mut().filter(|data| data.has_remaining()) {
            match Pin::new(&mut self.stream).poll_write(cx, data.chunk()) {
                Poll::Ready(written) => {
                    data.advance(written.map_err(of_write)?);
                    self.stall.progress();
                }
                Poll::Pending => {
                    ready!(self.stall.poll_stalled(cx));
                    return Poll::Ready(Err(broken(io::Error::from(io::ErrorKind::TimedOut))));
                }
            }
        }
        self.writing = None;
        Poll::Ready(Ok(()))
    }

    fn id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl Drop for SendStream {
    /// quinn would end the stream, so that an incomplete response looked complete. A stream that has been finished is not reset.
    fn drop(&mut self) {
        if self.must_finish.as_ref().is_some_and(|must_finish| must_finish.load(Relaxed)) {
            let _ = self.stream.reset(code(Code::H3_INTERNAL_ERROR.value()));
        }
    }
}

impl quic::SendStream<Bytes> for SendStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.poll_write(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.must_finish = None;
        Poll::Ready(self.stream.finish().map_err(broken))
    }

    fn reset(&mut self, error: u64) {
        let _ = self.stream.reset(code(error));
    }

    fn send_id(&self) -> StreamId {
        self.id()
    }
}

impl RecvStream {
    fn new(stream: quinn::RecvStream, filter: FrameFilter, shared: &Arc<ConnectionState>) -> Self {
        Self { stream, filter, input: BytesMut::new(), ahead: Arc::default(), shared: Arc::clone(shared), counted: 0 }
    }

    /// Counts what is buffered of a frame; an error when it is too much for the connection.
    fn count(&mut self, passed: usize) -> Result<usize, Violation> {
        let (before, now) = (self.counted, self.input.len());
        self.counted = now;
        let others = self.shared.incomplete.fetch_add(now, Relaxed) - before;
        self.shared.incomplete.fetch_sub(before, Relaxed);
        let limit = self.shared.max_headers.saturating_mul(MAX_INCOMPLETE);
        if now > 0 && others + now > limit { Err(Violation::TooLong) } else { Ok(passed) }
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        // The library has a frame to read, whose reader will poll again.
        if self.ahead.0.load(Relaxed) >= MAX_AHEAD {
            return Poll::Pending;
        }
        loop {
            let mut output = BytesMut::new();
            let passed = self.filter.pass(&mut self.input, &mut output).and_then(|passed| self.count(passed));
            let payload = passed.map_err(|violation| {
                self.shared.metrics.quic.limited(QuicLimit::Headers);
                broken(violation)
            })?;
            if !output.is_empty() {
                self.ahead.0.fetch_add(payload, Relaxed);
                return Poll::Ready(Ok(Some(output.freeze())));
            }
            let mut piece = [0; PIECE];
            match ready!(self.stream.poll_read(cx, &mut piece)).map_err(of_read)? {
                0 => return Poll::Ready(self.filter.end(&self.input).map(|()| None).map_err(broken)),
                count => self.input.extend_from_slice(&piece[..count]),
            }
        }
    }
}

impl Drop for RecvStream {
    /// A request that is not read to its end is not an error (RFC 9114, 4.1).
    fn drop(&mut self) {
        self.shared.incomplete.fetch_sub(self.counted, Relaxed);
        let _ = self.stream.stop(code(Code::H3_NO_ERROR.value()));
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.poll_input(cx)
    }

    fn stop_sending(&mut self, error: u64) {
        let _ = self.stream.stop(code(error));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl quic::BidiStream<Bytes> for BidiStream {
    type SendStream = SendStream;
    type RecvStream = RecvStream;

    fn split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }
}

impl quic::SendStream<Bytes> for BidiStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, error: u64) {
        self.send.reset(error);
    }

    fn send_id(&self) -> StreamId {
        self.send.id()
    }
}

impl quic::RecvStream for BidiStream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.recv.poll_input(cx)
    }

    fn stop_sending(&mut self, error: u64) {
        self.recv.stop_sending(error);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}

/// An error code; those of HTTP/3 are small.
pub(super) fn code(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

fn stream_id(id: quinn::StreamId) -> StreamId {
    // The identifiers of QUIC and HTTP/3 have the same range.
    StreamId::try_from(u64::from(VarInt::from(id))).unwrap_or_else(|_| unreachable!("the identifier of a stream"))
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> StreamErrorIncoming {
    StreamErrorIncoming::Unknown(Box::new(error))
}

fn lost(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: of_connection(error) }
}

fn of_connection(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: close.error_code.into() }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        error => ConnectionErrorIncoming::Undefined(Arc::new(error)),
    }
}

fn of_read(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(error) => StreamErrorIncoming::StreamTerminated { error_code: error.into() },
        ReadError::ConnectionLost(error) => lost(error),
        error => broken(error),
    }
}

fn of_write(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(error) => StreamErrorIncoming::StreamTerminated { error_code: error.into() },
        WriteError::ConnectionLost(error) => lost(error),
        error => broken(error),
    }
}
