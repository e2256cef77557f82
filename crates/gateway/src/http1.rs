//! HTTP/1.1 client connection to a pod, driven by the task of the request.
//!
//! In: a stream to a pod, and requests. Out: response heads and body frames. hyper's client runs a task per connection,
//! which accounted for two fifths of the instructions per request; here the client's own task reads and writes.
//! [`head`] and [`chunked`] implement the wire format.

pub mod chunked;
pub mod head;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE, HOST, TE,
    TRAILER,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body::{Body as _, Frame};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

pub use crate::body::RequestBody;
use crate::headers::{self, Client};
use chunked::{BodyDecoder, Decoded};
use head::{BodyLength, Head, ProtocolError, field};

/// Minimum free buffer space for a read.
const MIN_READ: usize = 2 * 1024;
/// Read buffer size in bytes.
const READ_BUFFER: usize = 8 * 1024;
/// Read buffer size in bytes for large bodies.
const LARGE_READ_BUFFER: usize = 64 * 1024;

/// Fields that affect message framing, routing, authentication or content handling and must not be trailers (RFC 9110,
/// 6.5.1).
const FORBIDDEN_TRAILERS: [HeaderName; 9] =
    [AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE, HOST, TE];

/// Stream to a pod.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<I: AsyncRead + AsyncWrite + Send + Unpin> Stream for I {}

/// Connection to a pod.
pub struct Connection {
    stream: Box<dyn Stream>,
    read: BytesMut,
    room: usize,
    /// Bytes to write, and how many of them are written.
    write_buffer: Vec<u8>,
    written: usize,
    pending_body: Option<PendingBody>,
    must_flush: bool,
    /// Whether bytes of the request were written.
    request_started: bool,
    /// Whether writing failed.
    write_failed: bool,
}

/// Request body that is still to be sent.
#[derive(Debug)]
struct PendingBody {
    body_length: BodyLength,
    /// Trailer names announced by the request.
    trailers: Option<HeaderValue>,
}

/// Why there is no response, or no more of it.
#[derive(Debug)]
pub enum RequestError {
    /// The client did not send the complete request.
    Client,
    /// The connection was closed before a response.
    ConnectionClosed(String),
    /// Malformed response.
    Protocol(ProtocolError),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("the client did not send the complete request"),
            Self::ConnectionClosed(why) => f.write_str(why),
            Self::Protocol(bad) => f.write_str(bad),
        }
    }
}

impl std::error::Error for RequestError {}

impl Connection {
    /// Connection over an established stream.
    #[must_use]
    pub fn new(stream: impl Stream + 'static) -> Box<Self> {
        Box::new(Self {
            stream: Box::new(stream),
            read: BytesMut::new(),
            room: READ_BUFFER,
            write_buffer: Vec::new(),
            written: 0,
            pending_body: None,
            must_flush: false,
            request_started: false,
            write_failed: false,
        })
    }

    /// Whether no data of an earlier request or response is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending_body.is_none() && self.write_buffer.is_empty() && self.read.is_empty() && !self.write_failed
    }

    /// Whether it can be used for another request: not closed by the pod, and no unsolicited data.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.is_idle() && self.read_more(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Frees large buffers before it becomes idle.
    pub(crate) fn shrink(&mut self) {
        if self.room > READ_BUFFER {
            (self.read, self.room) = (BytesMut::new(), READ_BUFFER);
        }
        self.write_buffer.shrink_to(READ_BUFFER);
    }

    /// Whether bytes of the request were written.
    pub(crate) const fn request_started(&self) -> bool {
        self.request_started
    }

    /// Underlying stream, and the bytes read ahead.
    pub(crate) fn into_stream(self) -> (Box<dyn Stream>, BytesMut) {
        (self.stream, self.read)
    }

    /// Sends a request and waits for the response head. If the pod responds early, the rest of the request body is sent
    /// while the response is read.
    ///
    /// # Errors
    /// When there is no valid response head, or the client does not send the request body.
    pub async fn send_request(
        &mut self,
        request: &mut Request<RequestBody>,
        client: &Client,
    ) -> Result<Head, RequestError> {
        let body_length = body_length(request.body());
        let trailers = body_length.and_then(|_| request.headers().get(TRAILER).cloned());
        self.pending_body = body_length.map(|body_length| PendingBody { body_length, trailers });
        self.request_started = false;
        head::write(request, body_length, client, &mut self.write_buffer);
        let (method, mut seen) = (request.method().clone(), 0);
        poll_fn(|cx| self.poll_head(cx, request.body_mut(), &method, &mut seen)).await
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut RequestBody,
        method: &Method,
        seen: &mut usize,
    ) -> Poll<Result<Head, RequestError>> {
        self.write_pending(cx, body)?;
        loop {
            if !self.read.is_empty() && head::may_be_complete(&self.read, *seen) {
                *seen = self.read.len();
                if let Some(head) = head::read(&mut self.read, method).map_err(RequestError::Protocol)? {
                    if !is_interim(&head) {
                        return Poll::Ready(Ok(head));
                    }
                    *seen = 0;
                    continue;
                }
            }
            let is_empty = self.read.is_empty();
            let why = match ready!(self.read_more(cx)) {
                Ok(true) => continue,
                Ok(false) => "connection closed".to_owned(),
                Err(error) => error.to_string(),
            };
            return Poll::Ready(Err(match is_empty {
                true => RequestError::ConnectionClosed(why),
                false => RequestError::Protocol("connection closed within the response head"),
            }));
        }
    }

    /// Next frame of the response body.
    pub fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut RequestBody,
        decoder: &mut BodyDecoder,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestError>>> {
        if let Err(fault) = self.write_pending(cx, body) {
            return Poll::Ready(Some(Err(fault)));
        }
        loop {
            match decoder.next(&mut self.read) {
                Ok(Decoded::Data(piece)) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                Ok(Decoded::Trailers(mut fields)) => {
                    headers::strip_hop_by_hop(&mut fields);
                    fields.remove(CONTENT_LENGTH);
                    return Poll::Ready(Some(Ok(Frame::trailers(fields))));
                }
                Ok(Decoded::Done) => return Poll::Ready(None),
                Ok(Decoded::Incomplete) => {}
                Err(bad) => return Poll::Ready(Some(Err(RequestError::Protocol(bad)))),
            }
            match ready!(self.read_more(cx)) {
                Ok(true) => {}
                Ok(false) => {
                    let ended = decoder.end();
                    return Poll::Ready(ended.err().map(|bad| Err(RequestError::Protocol(bad))));
                }
                Err(error) => return Poll::Ready(Some(Err(RequestError::ConnectionClosed(error.to_string())))),
            }
        }
    }

    /// Reads available bytes; false at end of stream.
    fn read_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.read.capacity() - self.read.len() < MIN_READ {
            self.read.reserve(self.room);
        }
        let room = self.read.capacity() - self.read.len();
        let count = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx))?;
        if count == room {
            self.room = LARGE_READ_BUFFER;
        }
        Poll::Ready(Ok(count > 0))
    }

    /// Writes as much as possible. A write error is not reported: the pod may have responded before it closed.
    fn write_pending(&mut self, cx: &mut Context<'_>, body: &mut RequestBody) -> Result<(), RequestError> {
        while !self.write_failed {
            if self.written < self.write_buffer.len() {
                match Pin::new(&mut self.stream).poll_write(cx, &self.write_buffer[self.written..]) {
                    Poll::Ready(Ok(count @ 1..)) => self.written += count,
                    Poll::Ready(_) => self.write_failed = true,
                    Poll::Pending => break,
                }
                self.must_flush = true;
                self.request_started |= self.written > 0;
                continue;
            }
            self.write_buffer.clear();
            self.written = 0;
            if self.pending_body.is_none() || self.encode_frame(cx, body)?.is_pending() {
                self.flush(cx);
                break;
            }
        }
        Ok(())
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        if self.must_flush
            && let Poll::Ready(done) = Pin::new(&mut self.stream).poll_flush(cx)
        {
            (self.must_flush, self.write_failed) = (false, done.is_err());
        }
    }

    /// Encodes the next frame of the request body.
    fn encode_frame(&mut self, cx: &mut Context<'_>, body: &mut RequestBody) -> Result<Poll<()>, RequestError> {
        let Some(rest) = &mut self.pending_body else { return Ok(Poll::Pending) };
        let frame = match Pin::new(body).poll_frame(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(Some(Ok(frame))) => Some(frame),
            Poll::Ready(Some(Err(_))) => return Err(RequestError::Client),
            Poll::Ready(None) => None,
        };
        let is_done = match (frame.map(Frame::into_data), &mut rest.body_length) {
            (Some(Ok(piece)), BodyLength::Length(remaining)) => {
                *remaining = remaining.checked_sub(piece.len() as u64).ok_or(RequestError::Client)?;
                self.write_buffer.extend_from_slice(&piece);
                *remaining == 0
            }
            // An empty chunk would end the body.
            (Some(Ok(piece)), _) if piece.is_empty() => false,
            (Some(Ok(piece)), _) => {
                let _ = write!(self.write_buffer, "{:x}\r\n", piece.len());
                self.write_buffer.extend_from_slice(&piece);
                self.write_buffer.extend_from_slice(b"\r\n");
                false
            }
            (_, BodyLength::Length(0)) => true,
            (_, BodyLength::Length(_)) => return Err(RequestError::Client),
            (behind, _) => {
                self.write_buffer.extend_from_slice(b"0\r\n");
                let behind = behind.and_then(Result::err).and_then(|frame| frame.into_trailers().ok());
                put_trailers(behind.unwrap_or_default(), rest.trailers.as_ref(), &mut self.write_buffer);
                self.write_buffer.extend_from_slice(b"\r\n");
                true
            }
        };
        if is_done {
            self.pending_body = None;
        }
        Ok(Poll::Ready(()))
    }
}

/// Framing of the request body, if any.
fn body_length(body: &RequestBody) -> Option<BodyLength> {
    let length = body.size_hint().exact();
    (!body.is_empty()).then(|| length.map_or(BodyLength::Chunked, BodyLength::Length))
}

/// Writes the trailers that were announced and are allowed.
fn put_trailers(mut fields: HeaderMap, announced: Option<&HeaderValue>, to: &mut Vec<u8>) {
    headers::strip_hop_by_hop(&mut fields);
    let announced = announced.and_then(|names| names.to_str().ok()).unwrap_or_default();
    let is_announced =
        |name: &HeaderName| announced.split(',').any(|word| word.trim().eq_ignore_ascii_case(name.as_str()));
    for (name, value) in &fields {
        if is_announced(name) && !FORBIDDEN_TRAILERS.contains(name) && !headers::is_forwarded_header(name) {
            field(to, name.as_str(), value.as_bytes());
        }
    }
}

/// Whether it is an interim response (1xx).
fn is_interim(head: &Head) -> bool {
    head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS
}
