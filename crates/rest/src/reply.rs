//! Responses: a document or a stream, warnings, and the common headers of the API.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::download::Account;
use crate::view::Document;

/// When all warnings together are longer than this, in bytes, …
const WARNINGS_LIMIT: usize = 4096;
/// … each is truncated to this.
const WARNING_CUT: usize = 256;

/// A body larger than this is sent in chunks of this size, in bytes. The connection's task yields after each: encrypting and sending
/// megabytes at once would occupy a thread for milliseconds and delay other requests.
const CHUNK: usize = 64 << 10;

/// The body of a response.
pub(crate) enum Body {
    /// A complete body.
    Whole(Option<Bytes>),
    /// The rest of a complete body that is sent in chunks.
    Chunks(Chunks),
    /// A stream.
    Stream(BoxStream<'static, Bytes>),
    /// A stream from a backend, which may fail.
    Passed(BoxStream<'static, io::Result<Bytes>>),
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Chunks(chunks) => chunks.poll_next(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(stream) => stream.as_mut().poll_next(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes)))),
            Self::Passed(stream) => stream.as_mut().poll_next(cx).map(|next| next.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Chunks(chunks) => chunks.rest.is_empty(),
            Self::Stream(_) | Self::Passed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Chunks(chunks) => SizeHint::with_exact(chunks.rest.len() as u64),
            Self::Stream(_) | Self::Passed(_) => SizeHint::default(),
        }
    }
}

/// A large body. See [`CHUNK`].
pub(crate) struct Chunks {
    rest: Bytes,
    /// Whether to yield to other tasks before the next chunk.
    yields: bool,
}

impl Chunks {
    fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        if std::mem::replace(&mut self.yields, false) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.yields = true;
        Poll::Ready(Some(self.rest.split_to(CHUNK.min(self.rest.len()))))
    }
}

/// A response.
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: Body,
    pub(crate) warnings: Vec<String>,
    pub(crate) headers: Vec<(header::HeaderName, String)>,
    /// The headers of a proxied response, which replace all others.
    pub(crate) passed: Option<HeaderMap>,
    /// The account that is charged for the memory of the body until it is sent.
    pub(crate) account: Option<Account>,
}

impl Reply {
    /// A document.
    pub(crate) fn document(code: u16, document: Document) -> Self {
        Self::bytes(code, document.content_type, document.body)
    }

    /// A body with a content type.
    pub(crate) fn bytes(code: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let body = Body::Whole(Some(body.into()));
        Self { code, content_type, body, warnings: Vec::new(), headers: Vec::new(), passed: None, account: None }
    }

    /// A response without a body.
    pub(crate) fn no_content() -> Self {
        Self { body: Body::Whole(None), ..Self::bytes(204, "text/plain", "") }
    }

    /// A stream.
    pub(crate) fn stream(content_type: &'static str, stream: BoxStream<'static, Bytes>) -> Self {
        let body = Body::Stream(stream);
        Self { code: 200, content_type, body, warnings: Vec::new(), headers: Vec::new(), passed: None, account: None }
    }

    /// A proxied response.
    pub(crate) fn passed(code: u16, headers: HeaderMap, body: Body) -> Self {
        Self {
            code,
            content_type: "",
            body,
            warnings: Vec::new(),
            headers: Vec::new(),
            passed: Some(headers),
            account: None,
        }
    }

    /// Adds a header.
    pub(crate) fn with(mut self, name: header::HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Charges the memory of the body to its user until it is sent.
    pub(crate) fn counted(mut self) -> Self {
        if let (Body::Whole(Some(bytes)), Some(account)) = (&mut self.body, self.account.take()) {
            *bytes = account.charge(std::mem::take(bytes));
        }
        self
    }

    /// Converts to an HTTP response.
    pub(crate) fn into_response(self) -> Response<Body> {
        let body = match self.body {
            Body::Whole(Some(rest)) if rest.len() > CHUNK => Body::Chunks(Chunks { rest, yields: false }),
            other => other,
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        if let Some(passed) = self.passed {
            *headers = passed;
            return response;
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        for text in cut(self.warnings) {
            if let Ok(value) = HeaderValue::from_bytes(warning(&text).as_bytes()) {
                headers.append(header::WARNING, value);
            }
        }
        response
    }
}

fn cut(warnings: Vec<String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for text in warnings {
        if !out.contains(&text) {
            out.push(text);
        }
    }
    if out.iter().map(|text| text.chars().count()).sum::<usize>() > WARNINGS_LIMIT {
        for text in &mut out {
            *text = text.chars().take(WARNING_CUT).collect();
        }
    }
    out
}

fn warning(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("299 - \"{}\"", clean.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_quoted_and_deduplicated() {
        let mut reply = Reply::bytes(200, "text/plain", "ok");
        reply.warnings = vec!["a \"b\" \\c".to_owned(), "a \"b\" \\c".to_owned()];
        let response = reply.into_response();
        let headers: Vec<_> = response.headers().get_all(header::WARNING).iter().collect();
        assert_eq!(headers, ["299 - \"a \\\"b\\\" \\\\c\""]);
    }

    #[tokio::test]
    async fn large_bodies_are_sent_in_chunks_with_yields() {
        let bytes = Bytes::from((0..=255_u8).cycle().take(2 * CHUNK + 1).collect::<Vec<u8>>());
        let mut body = Reply::bytes(200, "text/plain", bytes.clone()).into_response().into_body();
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        let (mut sent, mut chunks, mut pauses) = (Vec::new(), 0, 0);
        while !body.is_end_stream() {
            let next = futures_util::poll!(std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)));
            match next {
                Poll::Ready(Some(frame)) => {
                    sent.extend_from_slice(&frame.expect("a frame").into_data().expect("data"));
                    chunks += 1;
                }
                Poll::Ready(None) => break,
                Poll::Pending => pauses += 1,
            }
        }
        assert_eq!((chunks, pauses), (3, 2));
        assert!(sent == bytes);
    }

    #[test]
    fn many_long_warnings_are_truncated() {
        let texts = cut((0..20).map(|index| format!("{index}{}", "x".repeat(400))).collect());
        assert!(texts.iter().all(|text| text.chars().count() == WARNING_CUT));
    }
}
