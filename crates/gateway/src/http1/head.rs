//! HTTP/1.1 heads on connections to pods. Pure.
//!
//! In: a request and its body framing; response bytes. Out: bytes; the response head, its body framing, and whether the
//! connection is persistent. Framing headers are written by us; those of the client are dropped. Responses with
//! ambiguous framing are rejected.

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use httparse::{Header, ParserConfig, Status};

use crate::headers::{self, Client, FORWARDED_FOR, FORWARDED_PORT, FORWARDED_PROTO};

/// Maximum number of response headers.
pub(super) const MAX_HEADERS: usize = 100;
/// Maximum length of a response head in bytes.
const MAX_HEAD: usize = 256 * 1024;

/// Body framing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyLength {
    /// Content-Length; 0 means no body.
    Length(u64),
    /// Chunked transfer encoding.
    Chunked,
    /// Until the connection is closed.
    UntilClose,
}

/// Response head.
#[derive(Debug)]
pub struct Head {
    /// Status code.
    pub status: StatusCode,
    /// All headers, including hop-by-hop ones.
    pub headers: HeaderMap,
    /// Body framing.
    pub body_length: BodyLength,
    /// Whether the connection is persistent.
    pub keep_alive: bool,
}

/// Description of a malformed response.
pub type ProtocolError = &'static str;

/// Writes the request head with the framing of its body, if any.
pub fn write<B>(request: &Request<B>, body: Option<BodyLength>, client: &Client, to: &mut Vec<u8>) {
    let target = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    for word in [request.method().as_str(), " ", target, " HTTP/1.1\r\n"] {
        to.extend_from_slice(word.as_bytes());
    }
    let (mut has_length, mut has_chain) = (false, false);
    for (name, value) in request.headers() {
        match () {
            () if *name == CONTENT_LENGTH => has_length = true,
            () if *name == TRANSFER_ENCODING => {}
            () if headers::is_forwarded_header(name) => has_chain = true,
            () => field(to, name.as_str(), value.as_bytes()),
        }
    }
    let forwarded_for = has_chain.then(|| headers::forwarded_for(request.headers(), client));
    field(to, FORWARDED_FOR.as_str(), forwarded_for.as_ref().unwrap_or(&client.ip).as_bytes());
    field(to, FORWARDED_PORT.as_str(), client.port.as_bytes());
    field(to, FORWARDED_PROTO.as_str(), client.proto.as_bytes());
    match body {
        Some(BodyLength::Length(length)) => field(to, "content-length", length.to_string().as_bytes()),
        Some(BodyLength::Chunked | BodyLength::UntilClose) => field(to, "transfer-encoding", b"chunked"),
        None if has_length => field(to, "content-length", b"0"),
        None => {}
    }
    to.extend_from_slice(b"\r\n");
}

/// Writes one header line.
pub(super) fn field(to: &mut Vec<u8>, name: &str, value: &[u8]) {
    to.extend_from_slice(name.as_bytes());
    to.extend_from_slice(b": ");
    to.extend_from_slice(value);
    to.extend_from_slice(b"\r\n");
}

/// Whether `bytes` may contain a complete head; the first `seen` bytes were checked before.
#[must_use]
pub fn may_be_complete(bytes: &[u8], seen: usize) -> bool {
    let rest = &bytes[seen.saturating_sub(3).min(bytes.len())..];
    seen == 0 || rest.windows(2).any(|two| two == b"\n\n") || rest.windows(3).any(|three| three == b"\n\r\n")
}

/// Parses the response head, if complete.
///
/// # Errors
/// When it is malformed.
pub fn read(from: &mut BytesMut, method: &Method) -> Result<Option<Head>, ProtocolError> {
    let mut slots = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut found = httparse::Response::new(&mut []);
    let parsed = ParserConfig::default().parse_response_with_uninit_headers(&mut found, from, &mut slots);
    let length = match parsed.map_err(parse_error)? {
        Status::Complete(length) => length,
        Status::Partial if from.len() > MAX_HEAD => return Err("response head too large"),
        Status::Partial => return Ok(None),
    };
    let status = found.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or("invalid status code")?;
    let (is_new, positions) = (found.version == Some(1), positions(from, found.headers));
    let headers = fields(&from.split_to(length).freeze(), positions)?;
    with_framing(status, headers, is_new, method).map(Some)
}

/// Parses the trailer section, if complete.
pub(super) fn read_trailers(from: &mut BytesMut) -> Result<Option<HeaderMap>, ProtocolError> {
    let mut slots = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let (length, positions) = match httparse::parse_headers(from, &mut slots).map_err(parse_error)? {
        Status::Partial => return Ok(None),
        Status::Complete((length, found)) => (length, positions(from, found)),
    };
    fields(&from.split_to(length).freeze(), positions).map(Some)
}

const fn parse_error(error: httparse::Error) -> ProtocolError {
    match error {
        httparse::Error::TooManyHeaders => "too many response headers",
        _ => "the response is not HTTP/1.1",
    }
}

/// Positions of header names and values in a head.
type Positions = Vec<(Range<usize>, Range<usize>)>;

fn positions(whole: &[u8], headers: &[Header<'_>]) -> Positions {
    let position = |part: &[u8]| {
        let start = part.as_ptr() as usize - whole.as_ptr() as usize;
        start..start + part.len()
    };
    headers.iter().map(|header| (position(header.name.as_bytes()), position(header.value))).collect()
}

/// Builds the header map; values share the memory of the head.
fn fields(head: &Bytes, positions: Positions) -> Result<HeaderMap, ProtocolError> {
    let mut headers = HeaderMap::with_capacity(positions.len());
    for (name, value) in positions {
        let name = HeaderName::from_bytes(&head[name]).map_err(|_| "invalid response header name")?;
        let value = HeaderValue::from_maybe_shared(head.slice(value));
        headers.append(name, value.map_err(|_| "invalid response header value")?);
    }
    Ok(headers)
}

/// Determines body framing and persistence.
fn with_framing(
    status: StatusCode,
    mut headers: HeaderMap,
    is_new: bool,
    method: &Method,
) -> Result<Head, ProtocolError> {
    // A scan of the few headers is cheaper than lookups by name.
    let has = |name: &HeaderName| headers.keys().any(|other| other == name);
    let (has_connection, has_length, has_coding) = (has(&CONNECTION), has(&CONTENT_LENGTH), has(&TRANSFER_ENCODING));
    let connection_has = |word| has_connection && connection_has(&headers, word);
    let mut keep_alive = if is_new { !connection_has("close") } else { connection_has("keep-alive") };
    let is_chunked = has_coding && is_chunked(&headers, is_new)?;
    if is_chunked && has_length {
        // Transfer-Encoding overrides Content-Length; the connection is not reused (RFC 9112, 6.3).
        headers.remove(CONTENT_LENGTH);
        keep_alive = false;
    }
    let is_bare = *method == Method::HEAD
        || status.is_informational()
        || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    let body_length = match () {
        () if is_bare => BodyLength::Length(0),
        () if is_chunked => BodyLength::Chunked,
        () if has_length => BodyLength::Length(length(&mut headers)?),
        () => BodyLength::UntilClose,
    };
    keep_alive &= body_length != BodyLength::UntilClose;
    Ok(Head { status, headers, body_length, keep_alive })
}

/// Whether the Connection header contains a token.
fn connection_has(headers: &HeaderMap, word: &str) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|text| text.split(',')).any(|token| token.trim().eq_ignore_ascii_case(word))
}

fn is_chunked(headers: &HeaderMap, is_new: bool) -> Result<bool, ProtocolError> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (Some(one), None) if is_new && one.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err("response Transfer-Encoding other than chunked"),
    }
}

/// Content-Length; repeated equal values are allowed.
fn length(headers: &mut HeaderMap) -> Result<u64, ProtocolError> {
    const UNFIT: ProtocolError = "invalid response Content-Length";
    let mut lengths =
        headers.get_all(CONTENT_LENGTH).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let first = lengths.next().and_then(number).ok_or(UNFIT)?;
    let mut is_repeated = false;
    for other in lengths {
        is_repeated = true;
        if number(other) != Some(first) {
            return Err("conflicting response Content-Length values");
        }
    }
    if is_repeated {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(first));
    }
    Ok(first)
}

fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let digits = (!text.is_empty() && text.iter().all(u8::is_ascii_digit)).then_some(text)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
