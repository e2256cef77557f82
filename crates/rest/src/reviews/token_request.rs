//! Tokens on request: a POST to `serviceaccounts/NAME/token`.
//!
//! In: a TokenRequest and the ServiceAccount it was sent to. Out: the request with a token in its status. Tokens are
//! bound to their account only: a request to bind one to a Pod or another object is refused, because a token that
//! outlives what it was bound to is worse than none.

use api::field::{Errors, Path};
use api::lifecycle;
use api::status::{Resource, Status};
use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::auth::Authenticator;
use crate::auth::service_account::{API_AUDIENCE, Grant};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;

/// Answers a TokenRequest for an account.
///
/// # Errors
/// 400, 409 and 422, with the words of the original.
pub(crate) fn token_request(
    body: &Value,
    account: &Value,
    authenticator: &Authenticator,
    now: Timestamp,
) -> Result<Value, Status> {
    let (name, namespace) = (account.text("metadata.name"), account.text("metadata.namespace"));
    let uid = account.text("metadata.uid");
    check_metadata(body, name, namespace, uid)?;
    let seconds = body.at("spec.expirationSeconds").as_i64().unwrap_or(DEFAULT_SECONDS);
    check_seconds(seconds)?;
    if body.has("spec.boundObjectRef") {
        let target = body.at("spec.boundObjectRef");
        let (group, version) = target.text("apiVersion").split_once('/').unwrap_or(("", target.text("apiVersion")));
        let kind = target.text("kind");
        return Err(Status::bad_request(format!("cannot bind token to object of type {group}/{version}, Kind={kind}")));
    }
    let mut audiences = body.texts("spec.audiences");
    if audiences.is_empty() {
        audiences = vec![API_AUDIENCE];
    }
    let grant = Grant { namespace, name, uid, audiences: &audiences, seconds };
    let token = authenticator.accounts().sign(&grant, now).map_err(Status::internal)?;
    let end = Timestamp::from_second(now.as_second().saturating_add(seconds)).unwrap_or(Timestamp::MAX);
    Ok(json!({
        "kind": KIND,
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": lifecycle::seconds(now)},
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": null},
        "status": {"token": token, "expirationTimestamp": lifecycle::seconds(end)},
    }))
}

/// What the body says about the account must be true.
fn check_metadata(body: &Value, name: &str, namespace: &str, uid: &str) -> Result<(), Status> {
    let metadata = Path::Root("metadata");
    for (key, real) in [("name", name), ("namespace", namespace)] {
        let said = body.at("metadata").text(key);
        if !said.is_empty() && said != real {
            let mut errors = Errors::default();
            let detail = format!("must match the service account {key} if specified");
            errors.invalid(&metadata.child(key), said, &detail);
            return Err(Status::invalid(GROUP, KIND, name, &errors));
        }
    }
    let said = body.text("metadata.uid");
    if said.is_empty() || said == uid {
        return Ok(());
    }
    let why = format!("the UID in the token request ({said}) does not match the UID of the service account ({uid})");
    Err(Status::conflict(Resource { group: GROUP, plural: KIND, kind: KIND }, name, &why))
}

fn check_seconds(seconds: i64) -> Result<(), Status> {
    let why = if seconds < MIN_SECONDS {
        "may not specify a duration less than 10 minutes"
    } else if seconds > MAX_SECONDS {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let mut errors = Errors::default();
    errors.invalid(&Path::Root("spec").child("expirationSeconds"), seconds, why);
    Err(Status::invalid(GROUP, KIND, "", &errors))
}
