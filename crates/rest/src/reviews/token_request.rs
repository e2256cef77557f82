//! TokenRequest: a POST to `serviceaccounts/NAME/token`.
//!
//! In: a TokenRequest, the ServiceAccount, and the user. Out: the request with a token in its status. A token is valid until it expires, and
//! while its account and its bound object exist; its lifetime is limited, so that a leaked token does not stay valid.

use api::field::{Errors, Path};
use api::lifecycle;
use api::status::{Resource, Status};
use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::bound_object;
use crate::auth::service_account::{Grant, Lifetime};
use crate::auth::{Authenticator, User};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
const DEFAULT_SECONDS: i64 = 3600;
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;

/// A request for a token.
pub(crate) struct TokenRequest<'a> {
    /// The body.
    pub(crate) body: &'a Value,
    /// The account of the token.
    pub(crate) account: &'a Value,
    /// The user.
    pub(crate) user: &'a User,
}

/// Issues a token for an account.
///
/// # Errors
/// 400, 403, 404, 409 and 422, with the messages of kube-apiserver.
pub(crate) fn token_request(
    request: &TokenRequest<'_>,
    authn: &Authenticator,
    now: Timestamp,
    warnings: &mut Vec<String>,
) -> Result<Value, Status> {
    let TokenRequest { body, account, user } = *request;
    let (name, namespace) = (account.text("metadata.name"), account.text("metadata.namespace"));
    let uid = account.text("metadata.uid");
    bound_object::restrict_node(body, account, user, authn)?;
    check_metadata(body, name, namespace, uid)?;
    let asked = body.at("spec.expirationSeconds").as_i64().unwrap_or(DEFAULT_SECONDS);
    check_seconds(asked)?;
    let objects = bound_object::find(body, account, authn)?;
    let mut audiences = body.texts("spec.audiences");
    if audiences.is_empty() {
        audiences = vec![authn.accounts().issuer()];
    }
    let (shown, seconds) = limited(asked, authn.accounts().max_lifetime(), warnings);
    let grant = Grant { namespace, name, uid, audiences: &audiences, seconds, bound: objects.binding() };
    let token = authn.accounts().sign(&grant, now).map_err(Status::internal)?;
    let end = Timestamp::from_second(now.as_second().saturating_add(seconds)).unwrap_or(Timestamp::MAX);
    Ok(json!({
        "kind": KIND,
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": lifecycle::seconds(now)},
        "spec": {"audiences": audiences, "expirationSeconds": shown, "boundObjectRef": body.at("spec.boundObjectRef")},
        "status": {"token": token, "expirationTimestamp": lifecycle::seconds(end)},
    }))
}

/// The seconds in the spec of the response, and the lifetime of the token. A configured maximum is shown in the spec and causes a warning,
/// as in kube-apiserver, which has no maximum otherwise; our default one only affects the status.
fn limited(asked: i64, max: Lifetime, warnings: &mut Vec<String>) -> (i64, i64) {
    if asked <= max.seconds {
        return (asked, asked);
    }
    if !max.is_configured {
        return (asked, max.seconds);
    }
    warnings.push(format!("requested expiration of {asked} seconds shortened to {} seconds", max.seconds));
    (max.seconds, max.seconds)
}

/// Checks the metadata of the body against the account.
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
