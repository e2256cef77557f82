//! Pages of our own, for people who meet them in a browser: what is wrong, with which Service, and what to type next.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};

use crate::body::Answer;
use crate::headers::Refusal;
use crate::lane::Lane;
use crate::upstream::Failure;

/// Nobody is there to answer.
pub(crate) fn nobody(lane: &Lane, elsewhere: usize) -> Response<Answer> {
    lane.counts.no_pod();
    let (namespace, name) = parts(lane);
    let why = match elsewhere {
        0 => format!("The Service {name} in the namespace {namespace} has no pod that is ready."),
        some => format!(
            "The Service {name} in the namespace {namespace} has no ready pod on this node, and its \
             externalTrafficPolicy is Local; {some} elsewhere."
        ),
    };
    page(
        StatusCode::SERVICE_UNAVAILABLE,
        &format!("{why}\nSee: kubectl -n {namespace} get endpointslices -l kubernetes.io/service-name={name}"),
    )
}

/// Those who should answer could not be spoken to.
pub(crate) fn failed(lane: &Lane, failure: &Failure) -> Response<Answer> {
    lane.counts.no_pod();
    let (namespace, name) = parts(lane);
    let (status, why) = match failure {
        Failure::Refused(error) => (StatusCode::BAD_GATEWAY, format!("does not take connections ({error})")),
        Failure::Slow => (StatusCode::GATEWAY_TIMEOUT, "did not take a connection in time".to_owned()),
        Failure::Speech(why) => (StatusCode::BAD_GATEWAY, format!("takes connections, but {why}")),
    };
    let text = format!(
        "A pod of the Service {name} in the namespace {namespace} {why}.\nSee: kubectl -n {namespace} describe service {name}"
    );
    page(status, &text)
}

/// A pod broke off.
pub(crate) fn broken(lane: &Lane, why: &str) -> Response<Answer> {
    failed(lane, &Failure::Speech(format!("broke off before it had answered: {why}")))
}

/// A pod took too long.
pub(crate) fn slow(lane: &Lane) -> Response<Answer> {
    lane.counts.no_pod();
    let (namespace, name) = parts(lane);
    let seconds = lane.idle().as_secs();
    let text = format!(
        "A pod of the Service {name} in the namespace {namespace} has not answered for {seconds} s.\nSee: kubectl -n \
         {namespace} describe service {name}"
    );
    page(StatusCode::GATEWAY_TIMEOUT, &text)
}

/// The request goes no further.
pub(crate) fn refused(refusal: Refusal) -> Response<Answer> {
    let mut answer = page(refusal.status, refusal.why);
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// The request did not come whole.
pub(crate) fn late() -> Response<Answer> {
    let why = "The rest of the request did not come in time, or was broken off.";
    refused(Refusal { status: StatusCode::REQUEST_TIMEOUT, why })
}

fn parts(lane: &Lane) -> (&str, &str) {
    lane.service.split_once('/').unwrap_or(("", &lane.service))
}

fn page(status: StatusCode, text: &str) -> Response<Answer> {
    let mut answer = Response::new(Answer::Page(Some(Bytes::from(format!("{text}\n")))));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
