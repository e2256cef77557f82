//! Answers on their way out: a document or a stream, warnings, and the headers every API answer has.

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

/// When warnings together are longer than this …
const WARNINGS_LIMIT: usize = 4096;
/// … each is cut to this.
const WARNING_CUT: usize = 256;

/// The bytes of an answer.
pub(crate) enum Body {
    /// All of them.
    Whole(Option<Bytes>),
    /// As they come.
    Stream(BoxStream<'static, Bytes>),
    /// As they come from somebody who may fail.
    Passed(BoxStream<'static, io::Result<Bytes>>),
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(stream) => stream.as_mut().poll_next(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes)))),
            Self::Passed(stream) => stream.as_mut().poll_next(cx).map(|next| next.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(_) | Self::Passed(_) => SizeHint::default(),
        }
    }
}

/// An answer.
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: Body,
    pub(crate) warnings: Vec<String>,
    pub(crate) headers: Vec<(header::HeaderName, String)>,
    /// The headers of an answer that somebody else gave: these and no others.
    pub(crate) passed: Option<HeaderMap>,
    /// Whose memory the body is until it was sent.
    pub(crate) account: Option<Account>,
}

impl Reply {
    /// A document.
    pub(crate) fn document(code: u16, document: Document) -> Self {
        Self::bytes(code, document.content_type, document.body)
    }

    /// Bytes of some type.
    pub(crate) fn bytes(code: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let body = Body::Whole(Some(body.into()));
        Self { code, content_type, body, warnings: Vec::new(), headers: Vec::new(), passed: None, account: None }
    }

    /// An answer without a body.
    pub(crate) fn no_content() -> Self {
        Self { body: Body::Whole(None), ..Self::bytes(204, "text/plain", "") }
    }

    /// A stream that begins now.
    pub(crate) fn stream(content_type: &'static str, stream: BoxStream<'static, Bytes>) -> Self {
        let body = Body::Stream(stream);
        Self { code: 200, content_type, body, warnings: Vec::new(), headers: Vec::new(), passed: None, account: None }
    }

    /// An answer that somebody else gave.
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

    /// The same, and its body counts as memory of its user until it was sent.
    pub(crate) fn counted(mut self) -> Self {
        if let (Body::Whole(Some(bytes)), Some(account)) = (&mut self.body, self.account.take()) {
            *bytes = account.charge(std::mem::take(bytes));
        }
        self
    }

    /// The response.
    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
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
    fn warnings_are_quoted_and_said_once() {
        let mut reply = Reply::bytes(200, "text/plain", "ok");
        reply.warnings = vec!["a \"b\" \\c".to_owned(), "a \"b\" \\c".to_owned()];
        let response = reply.into_response();
        let headers: Vec<_> = response.headers().get_all(header::WARNING).iter().collect();
        assert_eq!(headers, ["299 - \"a \\\"b\\\" \\\\c\""]);
    }

    #[test]
    fn many_long_warnings_are_cut() {
        let texts = cut((0..20).map(|index| format!("{index}{}", "x".repeat(400))).collect());
        assert!(texts.iter().all(|text| text.chars().count() == WARNING_CUT));
    }
}
