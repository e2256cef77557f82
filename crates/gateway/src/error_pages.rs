//! Error pages: what is wrong, with which Service, and what to do next.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::body::ResponseBody;
use crate::cause::Cause;
use crate::headers::Rejection;
use crate::upstream::{Failure, Upstream};

/// No endpoint is available.
pub(crate) fn no_endpoints(upstream: &Upstream, elsewhere: usize) -> Response<ResponseBody> {
    upstream.failed();
    let (namespace, name) = parts(upstream);
    let why = match elsewhere {
        0 => format!("The Service {name} in the namespace {namespace} has no ready pod."),
        some => format!(
            "The Service {name} in the namespace {namespace} has no ready pod on this node, and its \
             traffic policy is Local; {some} elsewhere."
        ),
    };
    page(
        Cause::NoEndpoints,
        StatusCode::SERVICE_UNAVAILABLE,
        &format!("{why}\nSee: kubectl -n {namespace} get endpointslices -l kubernetes.io/service-name={name}"),
    )
}

/// No connection to a pod could be opened.
pub(crate) fn connect_failed(upstream: &Upstream, failure: &Failure) -> Response<ResponseBody> {
    upstream.failed();
    let (namespace, name) = parts(upstream);
    let (cause, why) = match failure {
        Failure::Refused(error) => (Cause::ConnectFailed, format!("refused the connection ({error})")),
        Failure::Timeout => (Cause::ConnectTimeout, "did not accept the connection in time".to_owned()),
        Failure::Handshake(why) => (Cause::UpstreamFailed, format!("accepted the connection but failed: {why}")),
    };
    let status = match cause {
        Cause::ConnectTimeout => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    let text = format!(
        "A pod of the Service {name} in the namespace {namespace} {why}.\nSee: kubectl -n {namespace} describe service {name}"
    );
    page(cause, status, &text)
}

/// The connection to a pod failed.
pub(crate) fn upstream_failed(upstream: &Upstream, why: &str) -> Response<ResponseBody> {
    connect_failed(upstream, &Failure::Handshake(format!("closed before a complete response: {why}")))
}

/// A pod did not respond in time.
pub(crate) fn upstream_timeout(upstream: &Upstream, limit: Duration) -> Response<ResponseBody> {
    upstream.failed();
    let (namespace, name) = parts(upstream);
    let limit = match limit.subsec_millis() {
        0 => format!("{} s", limit.as_secs()),
        _ => format!("{} ms", limit.as_millis()),
    };
    let text = format!(
        "A pod of the Service {name} in the namespace {namespace} did not respond within {limit}.\nSee: kubectl -n \
         {namespace} describe service {name}"
    );
    page(Cause::UpstreamTimeout, StatusCode::GATEWAY_TIMEOUT, &text)
}

/// The request is rejected.
pub(crate) fn rejected(rejection: Rejection) -> Response<ResponseBody> {
    closing(Cause::Rejected, rejection)
}

/// The request was not received completely.
pub(crate) fn request_timeout() -> Response<ResponseBody> {
    let why = "The request body did not arrive in time, or was aborted.";
    closing(Cause::RequestTimeout, Rejection { status: StatusCode::REQUEST_TIMEOUT, why })
}

/// An answer after which the connection is closed.
fn closing(cause: Cause, rejection: Rejection) -> Response<ResponseBody> {
    let mut answer = page(cause, rejection.status, rejection.why);
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// The answer to a gRPC call that failed, with its status.
pub(crate) fn grpc(cause: Cause, status: u8, message: &'static str) -> Response<ResponseBody> {
    let mut answer = Response::new(ResponseBody::own(None, cause));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from(u16::from(status)));
    headers.insert(HeaderName::from_static("grpc-message"), HeaderValue::from_static(message));
    answer
}

fn parts(upstream: &Upstream) -> (&str, &str) {
    upstream.service.split_once('/').unwrap_or(("", &upstream.service))
}

/// A page with this text.
pub(crate) fn page(cause: Cause, status: StatusCode, text: &str) -> Response<ResponseBody> {
    let mut answer = Response::new(ResponseBody::own(Some(Bytes::from(format!("{text}\n"))), cause));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
