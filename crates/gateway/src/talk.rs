//! HTTP/1.1 with a pod, one request at a time, spoken by the task that has the request.
//!
//! In: a stream to a pod, and requests. Out: heads of answers and pieces of their bodies. hyper would have a task for each connection,
//! to which requests and answers are handed and which is woken for each of them: two fifths of all instructions that a request took. Here the
//! client's own task writes and reads. What is on the wire is read by [`head`] and [`pieces`].

pub mod head;
pub mod pieces;
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

use crate::body::Upload;
use crate::headers::{self, Client};
use head::{Bad, Head, Measure, field};
use pieces::{Next, Pieces};

/// The least room into which it is worth reading.
const LEAST: usize = 2 * 1024;
/// How much room is made where there is less.
const ROOM: usize = 8 * 1024;
/// The same where much comes.
const MUCH: usize = 64 * 1024;

/// What says how, by whom or for whom a request is to be read, and so cannot come behind it.
const NEVER_BEHIND: [HeaderName; 9] =
    [AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE, HOST, TE];

/// What a pod is spoken to by.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<I: AsyncRead + AsyncWrite + Send + Unpin> Stream for I {}

/// A connection to a pod.
pub(crate) struct Talk {
    stream: Box<dyn Stream>,
    read: BytesMut,
    room: usize,
    /// What is to be written, and how much of it was.
    unsent: Vec<u8>,
    sent: usize,
    upload: Option<Rest>,
    must_flush: bool,
    /// Whether the pod may have heard of the request.
    has_begun: bool,
    /// Whether the pod takes no more.
    is_deaf: bool,
}

/// The part of a request's body that is to come.
#[derive(Debug)]
struct Rest {
    measure: Measure,
    /// The fields that will come behind it, by what the request says.
    trailers: Option<HeaderValue>,
}

/// Why there is no answer, or no more of it.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The request was not sent to its end.
    Client,
    /// The connection ended before anything was answered.
    Ended(String),
    /// The pod says what cannot be understood.
    Speech(Bad),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("the request did not come to its end"),
            Self::Ended(why) => f.write_str(why),
            Self::Speech(bad) => f.write_str(bad),
        }
    }
}

impl Talk {
    pub(crate) fn new(stream: impl Stream + 'static) -> Box<Self> {
        Box::new(Self {
            stream: Box::new(stream),
            read: BytesMut::new(),
            room: ROOM,
            unsent: Vec::new(),
            sent: 0,
            upload: None,
            must_flush: false,
            has_begun: false,
            is_deaf: false,
        })
    }

    /// Whether nothing of an earlier request or answer is left.
    pub(crate) fn is_settled(&self) -> bool {
        self.upload.is_none() && self.unsent.is_empty() && self.read.is_empty() && !self.is_deaf
    }

    /// Whether the connection can take a request: the pod has neither ended it nor said anything unasked.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.is_settled() && self.fill(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Before it waits for the next request, perhaps for long.
    pub(crate) fn rest(&mut self) {
        if self.room > ROOM {
            (self.read, self.room) = (BytesMut::new(), ROOM);
        }
        self.unsent.shrink_to(ROOM);
    }

    /// Whether the pod may have heard of the request.
    pub(crate) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// What is underneath, with what was read too much.
    pub(crate) fn into_stream(self) -> (Box<dyn Stream>, BytesMut) {
        (self.stream, self.read)
    }

    /// Sends a request and waits for the head of its answer. The pod may answer before it has the whole body: then the rest is sent while
    /// the answer is read.
    pub(crate) async fn ask(&mut self, request: &mut Request<Upload>, client: &Client) -> Result<Head, Fault> {
        let measure = measure(request.body());
        let trailers = measure.and_then(|_| request.headers().get(TRAILER).cloned());
        self.upload = measure.map(|measure| Rest { measure, trailers });
        self.has_begun = false;
        head::write(request, measure, client, &mut self.unsent);
        let (method, mut seen) = (request.method().clone(), 0);
        poll_fn(|cx| self.poll_head(cx, request.body_mut(), &method, &mut seen)).await
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Upload,
        method: &Method,
        seen: &mut usize,
    ) -> Poll<Result<Head, Fault>> {
        self.push(cx, body)?;
        loop {
            if !self.read.is_empty() && head::may_be_whole(&self.read, *seen) {
                *seen = self.read.len();
                if let Some(head) = head::read(&mut self.read, method).map_err(Fault::Speech)? {
                    if !is_interim(&head) {
                        return Poll::Ready(Ok(head));
                    }
                    *seen = 0;
                    continue;
                }
            }
            let is_silent = self.read.is_empty();
            let why = match ready!(self.fill(cx)) {
                Ok(true) => continue,
                Ok(false) => "the connection ended".to_owned(),
                Err(error) => error.to_string(),
            };
            return Poll::Ready(Err(match is_silent {
                true => Fault::Ended(why),
                false => Fault::Speech("it broke off within the head of its answer"),
            }));
        }
    }

    /// The next piece of an answer.
    pub(crate) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Upload,
        pieces: &mut Pieces,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        if let Err(fault) = self.push(cx, body) {
            return Poll::Ready(Some(Err(fault)));
        }
        loop {
            match pieces.next(&mut self.read) {
                Ok(Next::Piece(piece)) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                Ok(Next::Trailers(mut fields)) => {
                    headers::strip(&mut fields);
                    fields.remove(CONTENT_LENGTH);
                    return Poll::Ready(Some(Ok(Frame::trailers(fields))));
                }
                Ok(Next::Over) => return Poll::Ready(None),
                Ok(Next::More) => {}
                Err(bad) => return Poll::Ready(Some(Err(Fault::Speech(bad)))),
            }
            match ready!(self.fill(cx)) {
                Ok(true) => {}
                Ok(false) => {
                    let ended = pieces.end();
                    return Poll::Ready(ended.err().map(|bad| Err(Fault::Speech(bad))));
                }
                Err(error) => return Poll::Ready(Some(Err(Fault::Ended(error.to_string())))),
            }
        }
    }

    /// Reads what there is; false at the end.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.read.capacity() - self.read.len() < LEAST {
            self.read.reserve(self.room);
        }
        let room = self.read.capacity() - self.read.len();
        let count = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx))?;
        if count == room {
            self.room = MUCH;
        }
        Poll::Ready(Ok(count > 0))
    }

    /// Sends what is to be sent, as far as that goes. A pod that takes no more may have answered before: that is for whoever reads to see.
    fn push(&mut self, cx: &mut Context<'_>, body: &mut Upload) -> Result<(), Fault> {
        while !self.is_deaf {
            if self.sent < self.unsent.len() {
                match Pin::new(&mut self.stream).poll_write(cx, &self.unsent[self.sent..]) {
                    Poll::Ready(Ok(count @ 1..)) => self.sent += count,
                    Poll::Ready(_) => self.is_deaf = true,
                    Poll::Pending => break,
                }
                self.must_flush = true;
                self.has_begun |= self.sent > 0;
                continue;
            }
            self.unsent.clear();
            self.sent = 0;
            if self.upload.is_none() || self.take(cx, body)?.is_pending() {
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
            (self.must_flush, self.is_deaf) = (false, done.is_err());
        }
    }

    /// Takes the next piece of the request's body.
    fn take(&mut self, cx: &mut Context<'_>, body: &mut Upload) -> Result<Poll<()>, Fault> {
        let Some(rest) = &mut self.upload else { return Ok(Poll::Pending) };
        let frame = match Pin::new(body).poll_frame(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(Some(Ok(frame))) => Some(frame),
            Poll::Ready(Some(Err(_))) => return Err(Fault::Client),
            Poll::Ready(None) => None,
        };
        let is_over = match (frame.map(Frame::into_data), &mut rest.measure) {
            (Some(Ok(piece)), Measure::Length(left)) => {
                *left = left.checked_sub(piece.len() as u64).ok_or(Fault::Client)?;
                self.unsent.extend_from_slice(&piece);
                *left == 0
            }
            // A chunk without bytes would be the last.
            (Some(Ok(piece)), _) if piece.is_empty() => false,
            (Some(Ok(piece)), _) => {
                let _ = write!(self.unsent, "{:x}\r\n", piece.len());
                self.unsent.extend_from_slice(&piece);
                self.unsent.extend_from_slice(b"\r\n");
                false
            }
            (_, Measure::Length(0)) => true,
            (_, Measure::Length(_)) => return Err(Fault::Client),
            (behind, _) => {
                self.unsent.extend_from_slice(b"0\r\n");
                let behind = behind.and_then(Result::err).and_then(|frame| frame.into_trailers().ok());
                put_trailers(behind.unwrap_or_default(), rest.trailers.as_ref(), &mut self.unsent);
                self.unsent.extend_from_slice(b"\r\n");
                true
            }
        };
        if is_over {
            self.upload = None;
        }
        Ok(Poll::Ready(()))
    }
}

/// How a request's body goes to the pod, if it has one.
fn measure(body: &Upload) -> Option<Measure> {
    let length = body.size_hint().exact();
    (!body.is_empty()).then(|| length.map_or(Measure::Chunks, Measure::Length))
}

/// Fields behind a body: those that were announced, if they may be there.
fn put_trailers(mut fields: HeaderMap, announced: Option<&HeaderValue>, to: &mut Vec<u8>) {
    headers::strip(&mut fields);
    let announced = announced.and_then(|names| names.to_str().ok()).unwrap_or_default();
    let is_announced =
        |name: &HeaderName| announced.split(',').any(|word| word.trim().eq_ignore_ascii_case(name.as_str()));
    for (name, value) in &fields {
        if is_announced(name) && !NEVER_BEHIND.contains(name) && !headers::is_about_clients(name) {
            field(to, name.as_str(), value.as_bytes());
        }
    }
}

/// Whether the true answer comes behind this one.
fn is_interim(head: &Head) -> bool {
    head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS
}
