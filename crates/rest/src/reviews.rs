//! Reviews: SubjectAccessReview and its variants, SelfSubjectRulesReview, TokenReview, SelfSubjectReview.
//!
//! In: the decoded body of a POST, its user, and the authenticators. Out: the review with its status, or an error. Nothing is stored. Errors name
//! no kind, as in kube-apiserver.

mod bound_object;
mod token_request;
mod validate;

use api::decode;
use api::kind::Kind;
use api::lifecycle::seconds;
use api::rbac::PolicyRule;
use api::selector::Terms;
use api::status::Status;
use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::auth::service_account::{TokenError, Verified};
use crate::auth::{Authenticator, User};
use crate::authz::{self, Attributes, Authorizer};

pub(crate) use token_request::{TokenRequest, token_request};

/// The context of a review.
pub(crate) struct ReviewContext<'a> {
    /// The user of the request.
    pub(crate) user: &'a User,
    /// The authenticators.
    pub(crate) authn: &'a Authenticator,
    /// The authorizer.
    pub(crate) authorizer: &'a Authorizer,
}

/// Evaluates a review. The metadata of a LocalSubjectAccessReview has the namespace of the request.
///
/// # Errors
/// 400 and 422, with the messages of kube-apiserver; 404 for kinds that are not reviews.
pub(crate) fn review(kind: &Kind, body: &Value, context: &ReviewContext<'_>, now: Timestamp) -> Result<Value, Status> {
    let access = |user: &User| access(body, user, context.authorizer);
    let mut answer = match kind.kind {
        "SelfSubjectAccessReview" => {
            validate::self_access(body)?;
            access(context.user)
        }
        "SubjectAccessReview" => {
            validate::access(body)?;
            access(&subject(body))
        }
        "LocalSubjectAccessReview" => {
            validate::local_access(body)?;
            access(&subject(body))
        }
        "SelfSubjectRulesReview" => rules(body, context.user, context.authorizer)?,
        "TokenReview" => token(body, context.authn, now)?,
        "SelfSubjectReview" => who_am_i(body, context.user, now),
        _ => return Err(Status::no_such_resource()),
    };
    // The request is echoed as Go encodes it; the status is complete, with empty lists that are not null.
    let status = answer.drop_path("status").unwrap_or_default();
    decode::prune(kind.type_id(), &mut answer);
    answer.put("status", status);
    Ok(answer)
}

/// The object of the request, with another status.
fn answered(body: &Value, status: Value) -> Value {
    let mut out = body.clone();
    out.put("status", status);
    out
}

/// An object of the kind of the request, without its contents.
fn fresh(body: &Value, metadata: &Value, status: &Value) -> Value {
    json!({"kind": body["kind"], "apiVersion": body["apiVersion"], "metadata": metadata, "status": status})
}

// === access ===

fn access(body: &Value, user: &User, authorizer: &Authorizer) -> Value {
    let fields = fields(body);
    let decision = authorizer.authorize(&attributes(body, user, &fields));
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    let problems = validate::selector_problems(body);
    if !problems.is_empty() {
        status["evaluationError"] = problems.join("; ").into();
    }
    answered(body, status)
}

/// The terms of the field selector of a review.
fn fields(body: &Value) -> Terms {
    let selector = body.at("spec.resourceAttributes.fieldSelector");
    let mut terms = api::selector::field_terms(selector.text("rawSelector"));
    for requirement in selector.items("requirements") {
        if let ("In", [value]) = (requirement.text("operator"), &requirement.texts("values")[..]) {
            terms.push((requirement.text("key").to_owned(), true, (*value).to_owned()));
        }
    }
    terms
}

fn attributes<'a>(body: &'a Value, user: &'a User, fields: &'a [(String, bool, String)]) -> Attributes<'a> {
    let on_path = body.at("spec.nonResourceAttributes");
    if !on_path.is_null() {
        return Attributes::path(user, on_path.text("verb"), on_path.text("path"));
    }
    let on = body.at("spec.resourceAttributes");
    Attributes {
        user,
        verb: on.text("verb"),
        group: on.text("group"),
        resource: on.text("resource"),
        subresource: on.text("subresource"),
        name: on.text("name"),
        namespace: on.text("namespace"),
        fields,
        path: None,
    }
}

/// The user of a SubjectAccessReview.
fn subject(body: &Value) -> User {
    let extra = body.map("spec.extra").into_iter().flatten().map(|(key, values)| {
        let values = values.as_array().into_iter().flatten().filter_map(Value::as_str);
        (key.clone(), values.map(str::to_owned).collect())
    });
    User {
        name: body.text("spec.user").to_owned(),
        uid: body.text("spec.uid").to_owned(),
        groups: body.texts("spec.groups").into_iter().map(str::to_owned).collect(),
        extra: extra.collect(),
    }
}

// === rules ===

fn rules(body: &Value, user: &User, authorizer: &Authorizer) -> Result<Value, Status> {
    let namespace = body.text("spec.namespace");
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (rules, mut problems) = authorizer.rules(user, namespace);
    let (on_paths, on_resources): (Vec<&PolicyRule>, Vec<&PolicyRule>) =
        rules.iter().partition(|rule| !rule.non_resource_urls.is_empty());
    let shown = |rules: Vec<&PolicyRule>| rules.into_iter().map(PolicyRule::to_value).collect::<Vec<Value>>();
    // The permissions of a node depend on its Pods.
    let is_node = authz::node::is_node(user);
    if is_node {
        problems.insert(0, "node authorizer does not support user rule resolution".to_owned());
    }
    let mut status = json!({
        "resourceRules": shown(on_resources), "nonResourceRules": shown(on_paths), "incomplete": is_node,
    });
    if !problems.is_empty() {
        status["evaluationError"] = authz::listed(&problems).into();
    }
    let mut out = fresh(body, &json!({}), &status);
    out["spec"] = json!({});
    Ok(out)
}

// === tokens and users ===

fn token(body: &Value, authn: &Authenticator, now: Timestamp) -> Result<Value, Status> {
    let token = body.text("spec.token");
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let mut audiences = body.texts("spec.audiences");
    if audiences.is_empty() {
        audiences = vec![authn.accounts().issuer()];
    }
    // kube-apiserver sends it as a header, so what follows a space is ignored.
    let token = token.split(' ').next().unwrap_or_default();
    let status = match authn.token_user(token, &audiences, now) {
        Ok(Verified { user, audiences, .. }) => {
            json!({"authenticated": true, "user": user_info(&user), "audiences": audiences})
        }
        Err(TokenError::Unknown) => json!({"user": {}, "error": TokenError::Unknown.to_string()}),
        // The errors of all authenticators, in the format of kube-apiserver.
        Err(error) => json!({"user": {}, "error": format!("[{}, {error}]", TokenError::Unknown)}),
    };
    Ok(answered(body, status))
}

fn who_am_i(body: &Value, user: &User, now: Timestamp) -> Value {
    fresh(body, &json!({"creationTimestamp": seconds(now)}), &json!({"userInfo": user_info(user)}))
}

fn user_info(user: &User) -> Value {
    let mut out = Map::new();
    let parts = [
        ("username", json!(user.name), user.name.is_empty()),
        ("uid", json!(user.uid), user.uid.is_empty()),
        ("groups", json!(user.groups), user.groups.is_empty()),
        ("extra", json!(user.extra), user.extra.is_empty()),
    ];
    out.extend(parts.into_iter().filter(|(_, _, empty)| !empty).map(|(key, value, _)| (key.to_owned(), value)));
    Value::Object(out)
}

#[cfg(test)]
mod tests;
