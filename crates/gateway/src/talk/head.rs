//! Heads of HTTP/1.1 between us and a pod, as they are on the wire. Pure.
//!
//! In: a request and how its body comes; the bytes of an answer. Out: bytes; the head of the answer, how its body is told from what
//! follows, and whether the connection can be used again. Where a body ends is said once, by us: what the client said of it is left out.
//! An answer that could be read in two ways is refused.

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use httparse::{Header, ParserConfig, Status};

use crate::headers::{self, Client, FORWARDED_FOR, FORWARDED_PORT, FORWARDED_PROTO};

/// How many headers an answer may have.
pub(super) const MOST_HEADERS: usize = 100;
/// How long the head of an answer may be.
const LONGEST: usize = 256 * 1024;

/// How the end of a body is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// It has so many bytes; none are no body.
    Length(u64),
    /// It comes in chunks, each with its length.
    Chunks,
    /// It ends with the connection.
    End,
}

/// The head of an answer.
#[derive(Debug)]
pub struct Head {
    /// What became of the request.
    pub status: StatusCode,
    /// All of them, also those for this hop.
    pub headers: HeaderMap,
    /// How its body comes.
    pub measure: Measure,
    /// Whether the connection may be used again.
    pub keeps: bool,
}

/// What is wrong with what a pod said.
pub type Bad = &'static str;

/// Writes the head of a client's request whose body comes so, if it has one.
pub fn write<B>(request: &Request<B>, body: Option<Measure>, client: &Client, to: &mut Vec<u8>) {
    let target = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    for word in [request.method().as_str(), " ", target, " HTTP/1.1\r\n"] {
        to.extend_from_slice(word.as_bytes());
    }
    let (mut has_length, mut has_chain) = (false, false);
    for (name, value) in request.headers() {
        match () {
            () if *name == CONTENT_LENGTH => has_length = true,
            () if *name == TRANSFER_ENCODING => {}
            () if headers::is_about_clients(name) => has_chain = true,
            () => field(to, name.as_str(), value.as_bytes()),
        }
    }
    let chain = has_chain.then(|| headers::chain(request.headers(), client));
    field(to, FORWARDED_FOR.as_str(), chain.as_ref().unwrap_or(&client.ip).as_bytes());
    field(to, FORWARDED_PORT.as_str(), client.port.as_bytes());
    field(to, FORWARDED_PROTO.as_str(), client.proto.as_bytes());
    match body {
        Some(Measure::Length(length)) => field(to, "content-length", length.to_string().as_bytes()),
        Some(Measure::Chunks | Measure::End) => field(to, "transfer-encoding", b"chunked"),
        None if has_length => field(to, "content-length", b"0"),
        None => {}
    }
    to.extend_from_slice(b"\r\n");
}

/// Writes one header.
pub(super) fn field(to: &mut Vec<u8>, name: &str, value: &[u8]) {
    to.extend_from_slice(name.as_bytes());
    to.extend_from_slice(b": ");
    to.extend_from_slice(value);
    to.extend_from_slice(b"\r\n");
}

/// Whether there may be a whole head in this, the first part of which was looked at before.
#[must_use]
pub fn may_be_whole(bytes: &[u8], seen: usize) -> bool {
    let rest = &bytes[seen.saturating_sub(3).min(bytes.len())..];
    seen == 0 || rest.windows(2).any(|two| two == b"\n\n") || rest.windows(3).any(|three| three == b"\n\r\n")
}

/// Takes the head of the answer to such a request off the front, when it is whole.
///
/// # Errors
/// What is wrong with it.
pub fn read(from: &mut BytesMut, method: &Method) -> Result<Option<Head>, Bad> {
    let mut slots = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_HEADERS];
    let mut found = httparse::Response::new(&mut []);
    let parsed = ParserConfig::default().parse_response_with_uninit_headers(&mut found, from, &mut slots);
    let length = match parsed.map_err(wrong)? {
        Status::Complete(length) => length,
        Status::Partial if from.len() > LONGEST => return Err("the head of its answer has no end"),
        Status::Partial => return Ok(None),
    };
    let status = found.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or("its answer has no fit status")?;
    let (is_new, places) = (found.version == Some(1), places(from, found.headers));
    let headers = fields(&from.split_to(length).freeze(), places)?;
    framed(status, headers, is_new, method).map(Some)
}

/// Reads the fields behind the last chunk, when they are whole.
pub(super) fn read_trailers(from: &mut BytesMut) -> Result<Option<HeaderMap>, Bad> {
    let mut slots = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let (length, places) = match httparse::parse_headers(from, &mut slots).map_err(wrong)? {
        Status::Partial => return Ok(None),
        Status::Complete((length, found)) => (length, places(from, found)),
    };
    fields(&from.split_to(length).freeze(), places).map(Some)
}

const fn wrong(error: httparse::Error) -> Bad {
    match error {
        httparse::Error::TooManyHeaders => "its answer has too many headers",
        _ => "what it says is not HTTP/1.1",
    }
}

/// Where names and values are in the bytes of a head.
type Places = Vec<(Range<usize>, Range<usize>)>;

fn places(whole: &[u8], headers: &[Header<'_>]) -> Places {
    let place = |part: &[u8]| {
        let start = part.as_ptr() as usize - whole.as_ptr() as usize;
        start..start + part.len()
    };
    headers.iter().map(|header| (place(header.name.as_bytes()), place(header.value))).collect()
}

/// The fields, whose values stay where they are.
fn fields(head: &Bytes, places: Places) -> Result<HeaderMap, Bad> {
    let mut headers = HeaderMap::with_capacity(places.len());
    for (name, value) in places {
        let name = HeaderName::from_bytes(&head[name]).map_err(|_| "its answer has a header without a fit name")?;
        let value = HeaderValue::from_maybe_shared(head.slice(value));
        headers.append(name, value.map_err(|_| "its answer has a header without a fit value")?);
    }
    Ok(headers)
}

/// Says how the body comes.
fn framed(status: StatusCode, mut headers: HeaderMap, is_new: bool, method: &Method) -> Result<Head, Bad> {
    // One look through the few that there are costs less than looking names up.
    let has = |name: &HeaderName| headers.keys().any(|other| other == name);
    let (has_connection, has_length, has_coding) = (has(&CONNECTION), has(&CONTENT_LENGTH), has(&TRANSFER_ENCODING));
    let says = |word| has_connection && says(&headers, word);
    let mut keeps = if is_new { !says("close") } else { says("keep-alive") };
    let is_chunked = has_coding && is_chunked(&headers, is_new)?;
    if is_chunked && has_length {
        // The chunks count, and whoever said both is not asked again.
        headers.remove(CONTENT_LENGTH);
        keeps = false;
    }
    let is_bare = *method == Method::HEAD
        || status.is_informational()
        || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    let measure = match () {
        () if is_bare => Measure::Length(0),
        () if is_chunked => Measure::Chunks,
        () if has_length => Measure::Length(length(&mut headers)?),
        () => Measure::End,
    };
    keeps &= measure != Measure::End;
    Ok(Head { status, headers, measure, keeps })
}

/// Whether this is among what is said of the connection.
fn says(headers: &HeaderMap, word: &str) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|text| text.split(',')).any(|said| said.trim().eq_ignore_ascii_case(word))
}

fn is_chunked(headers: &HeaderMap, is_new: bool) -> Result<bool, Bad> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (Some(one), None) if is_new && one.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err("its answer has a Transfer-Encoding other than chunked"),
    }
}

/// The one length that is said, however often.
fn length(headers: &mut HeaderMap) -> Result<u64, Bad> {
    const UNFIT: Bad = "its answer has no fit Content-Length";
    let mut lengths =
        headers.get_all(CONTENT_LENGTH).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let first = lengths.next().and_then(number).ok_or(UNFIT)?;
    let mut is_repeated = false;
    for other in lengths {
        is_repeated = true;
        if number(other) != Some(first) {
            return Err("its answer has several Content-Lengths");
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
