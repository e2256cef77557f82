//! One request over HTTP/3 and its response.
//!
//! In: a request stream. Out: the response to the request as all protocols answer it ([`http_proxy::respond`]). A request that HTTP/3 does not
//! allow is reset; the library accepts some that backends could understand in another way.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use h3::error::{Code, StreamError};
use h3::server::{self, RequestResolver};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use jiff::Timestamp;
use tokio::time::timeout;

use super::body::RequestStream;
use super::transport::{AcceptedStream, BidiStream, SendStream, Transport};
use crate::body::{BoxError, ResponseBody};
use crate::client_body::ClientBody;
use crate::headers;
use crate::http_proxy::{self, ClientConnection};
use crate::metrics::QuicLimit;

/// Headers of one connection, which HTTP/3 does not have (RFC 9114, 4.2).
const FORBIDDEN: [HeaderName; 5] = [
    CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The client has the response.
    Answered,
    /// The client did not want the response, or did not send a request.
    Cancelled,
    /// The request or the response is incomplete.
    Failed,
}

/// Answers a request.
pub(super) async fn serve(
    resolver: RequestResolver<Transport, Bytes>,
    mut accepted: AcceptedStream,
    client: Arc<ClientConnection>,
) -> Outcome {
    let idle = client.port_config.idle();
    let metrics = Arc::clone(&client.port_config.metrics);
    let (request, stream) = match timeout(idle, resolver.resolve_request()).await {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(error)) => {
            // The library has answered with 431.
            if let StreamError::HeaderTooBig { .. } = error {
                metrics.quic.limited(QuicLimit::Headers);
            }
            tracing::debug!(service = &*client.port_config.service, %error, "failed to read HTTP/3 request");
            return Outcome::Cancelled;
        }
        Err(_) => return Outcome::Cancelled,
    };
    accepted.must_finish();
    let Some(length) = declared_length(&request) else { return malformed(stream) };
    let is_head = request.method() == Method::HEAD;
    let (send, recv) = stream.split();
    let ahead = Arc::clone(&accepted.ahead);
    let answering = async {
        let body = RequestStream::open(recv, ahead, length, request.method(), idle).await?;
        let answer = http_proxy::respond(&client, request.map(|()| ClientBody::Quic(Box::new(body)))).await;
        respond(send, answer, is_head).await
    };
    tokio::select! {
        biased;
        result = answering => {
            if let Err(error) = result {
                tracing::debug!(service = &*client.port_config.service, %error, "HTTP/3 response is incomplete");
                return if error.is::<StreamError>() { Outcome::Cancelled } else { Outcome::Failed };
            }
        }
        _ = &mut accepted.stopped => return Outcome::Cancelled,
    }
    // The response is complete when the client has acknowledged it: until then the connection must not be closed.
    match timeout(idle, accepted.stopped).await {
        Ok(false) => Outcome::Answered,
        Ok(true) | Err(_) => Outcome::Cancelled,
    }
}

fn malformed(mut stream: server::RequestStream<BidiStream, Bytes>) -> Outcome {
    stream.stop_stream(Code::H3_MESSAGE_ERROR);
    stream.stop_sending(Code::H3_MESSAGE_ERROR);
    Outcome::Cancelled
}

/// The length of the body, if it is declared; none if the request is malformed.
fn declared_length(request: &Request<()>) -> Option<Option<u64>> {
    let (headers, path) = (request.headers(), request.uri().path());
    let has_te = headers.get_all(TE).iter().any(|te| !te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    if has_te || FORBIDDEN.iter().any(|name| headers.contains_key(name)) {
        return None;
    }
    if !path.starts_with('/') && path != "*" && request.method() != Method::CONNECT {
        return None;
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Some(None) };
    let is_number = !first.is_empty() && first.as_bytes().iter().all(u8::is_ascii_digit);
    let number = first.to_str().ok()?.parse().ok()?;
    (is_number && lengths.all(|other| other == first)).then_some(Some(number))
}

/// Sends a response.
async fn respond(
    mut stream: server::RequestStream<SendStream, Bytes>,
    answer: Response<ResponseBody>,
    is_head: bool,
) -> Result<(), BoxError> {
    let (mut parts, mut body) = answer.into_parts();
    let may_have_body =
        !parts.status.is_informational() && ![StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&parts.status);
    complete(&mut parts.headers, body.size_hint().exact().filter(|length| may_have_body && (!is_head || *length > 0)));
    stream.send_response(Response::from_parts(parts, ())).await?;
    let sends_body = may_have_body && !is_head;
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        match frame?.into_data() {
            Ok(piece) if sends_body && !piece.is_empty() => stream.send_data(piece).await?,
            Ok(_) => {}
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers()
                    && sends_body
                {
                    stream.send_trailers(trailers).await?;
                }
            }
        }
    }
    Ok(stream.finish().await?)
}

/// What hyper does for the other protocols: a date and a length, and no headers of connections.
fn complete(headers: &mut HeaderMap, length: Option<u64>) {
    headers::strip_hop_by_hop(headers);
    if !headers.contains_key(DATE) {
        let date = Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        headers.extend(HeaderValue::from_str(&date).ok().map(|date| (DATE, date)));
    }
    if let Some(length) = length.filter(|_| !headers.contains_key(CONTENT_LENGTH)) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str, headers: &[(&str, &str)]) -> Request<()> {
        let builder = headers.iter().fold(Request::get(path), |builder, (name, value)| builder.header(*name, *value));
        builder.body(()).expect("a request")
    }

    #[test]
    fn malformed_requests_are_recognised() {
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<Option<u64>>);
        let cases: [Case<'_>; 12] = [
            (&[], Some(None)),
            (&[("content-length", "7")], Some(Some(7))),
            (&[("content-length", "7"), ("content-length", "7")], Some(Some(7))),
            (&[("content-length", "7"), ("content-length", "8")], None),
            (&[("content-length", "7, 7")], None),
            (&[("content-length", "+7")], None),
            (&[("content-length", "")], None),
            (&[("content-length", "18446744073709551616")], None),
            (&[("transfer-encoding", "chunked")], None),
            (&[("connection", "close")], None),
            (&[("te", "trailers")], Some(None)),
            (&[("te", "gzip")], None),
        ];
        for (headers, expected) in cases {
            assert_eq!(declared_length(&request("https://a/", headers)), expected, "{headers:?}");
        }
        let mut options = request("*", &[]);
        *options.method_mut() = Method::OPTIONS;
        assert_eq!(declared_length(&options), Some(None));
    }

    #[test]
    fn responses_have_a_date_and_a_length() {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        complete(&mut headers, Some(5));
        assert_eq!(headers.get(CONTENT_LENGTH), Some(&HeaderValue::from(5)));
        assert!(headers.contains_key(DATE) && !headers.contains_key(CONNECTION), "{headers:?}");
        complete(&mut headers, Some(6));
        assert_eq!(headers.get(CONTENT_LENGTH), Some(&HeaderValue::from(5)), "that of the backend");
    }
}
