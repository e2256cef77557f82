//! One call of a webhook: sends the review, parses the response, and applies the failure policy.

use api::dynamic_admission::request::{Form, Request};
use api::field::quote;
use api::status::Status;

use super::review::{self, Answer, Malformed};
use super::webhook::Webhook;
use super::{Notes, described};
use crate::webhooks::Caller;

/// Why a webhook does not admit a request.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Failure {
    /// The call failed: the failure policy decides.
    Calling(String),
    /// The webhook or the server refuses.
    Refused(Box<Status>),
}

/// Calls a webhook; returns an allowing response.
pub(super) async fn ask(
    caller: &dyn Caller,
    webhook: &Webhook,
    request: &Request<'_>,
    form: &Form,
    mutating: bool,
    notes: &mut Notes,
) -> Result<Answer, Failure> {
    if request.dry_run && !webhook.takes_dry_run {
        let why = format!("admission webhook {} does not support dry run", quote(&webhook.name));
        return Err(Failure::Refused(Box::new(Status::bad_request(why))));
    }
    let Some(version) = webhook.review_version else {
        let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return Err(Failure::Calling(format!("could not create admission objects: {why}")));
    };
    let uid = uuid::Uuid::new_v4().to_string();
    let body = review::request(request, form, &uid, version).to_string();
    let bytes = caller.post(&webhook.target, body.into(), webhook.timeout).await;
    let bytes = bytes.map_err(|error| Failure::Calling(error.to_string()))?;
    let answer = review::read(&bytes, &uid, version, mutating).map_err(|error| match error {
        Malformed::Unreadable(why) => Failure::Calling(format!("failed to call webhook: {why}")),
        Malformed::Invalid(why) => Failure::Calling(format!("received invalid webhook response: {why}")),
    })?;
    let annotations = answer.annotations.iter();
    notes.annotations.extend(annotations.map(|(key, value)| (format!("{}/{key}", webhook.name), value.clone())));
    notes.warnings.extend(answer.warnings.iter().cloned());
    if answer.allowed {
        return Ok(answer);
    }
    Err(Failure::Refused(Box::new(review::denied(&webhook.name, &answer.result))))
}

/// Applies the failure policy: an error, or the request continues without this webhook, which is recorded under a key.
pub(super) fn settle<T>(
    webhook: &Webhook,
    request: &Request<'_>,
    result: Result<T, Failure>,
    failed_open: &str,
    notes: &mut Notes,
) -> Result<Option<T>, Status> {
    let why = match result {
        Ok(done) => return Ok(Some(done)),
        Err(Failure::Refused(status)) => return Err(*status),
        Err(Failure::Calling(why)) => why,
    };
    let (name, request) = (webhook.name.as_str(), described(request));
    tracing::warn!(webhook = name, %request, error = %why, fails_open = webhook.ignores_failure, "failed to call webhook");
    if webhook.ignores_failure {
        notes.annotations.push((failed_open.to_owned(), webhook.name.clone()));
        return Ok(None);
    }
    Err(Status::internal(format!("failed calling webhook {}: {why}", quote(name))))
}
