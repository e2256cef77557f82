//! create, update and patch (JSON, merge, strategic, server-side apply).

use api::dynamic_admission::request::Operation;
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::Value;

use super::api_request::{ApiRequest, patched};
use super::pod_messages;
use crate::auth::service_account;
use crate::registry::{Source, check_name, match_namespace};
use crate::reply::Reply;
use crate::reviews;

/// The audit annotation with the credential id of an issued token.
const ISSUED_CREDENTIAL: &str = "authentication.kubernetes.io/issued-credential-id";

/// POST of a collection.
pub(super) async fn create(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    let (options, object) = request.create(request.target.kind, warnings)?;
    if request.target.name.is_some() {
        // Permissions may be limited to this name.
        check_name(&object, request.name)?;
    }
    let call = request.call(&options.field_manager, options.dry_run);
    request.written(request.shared.registry.create(&call, object, warnings).await?)
}

/// POST of a subresource.
pub(super) async fn create_subresource(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    match request.target.subresource.map(|sub| sub.name) {
        Some("binding") => pod_messages::bind(request, warnings).await,
        Some("eviction") => pod_messages::evict(request, warnings).await,
        Some("token") => create_token(request, warnings).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// Issues a token for a ServiceAccount.
async fn create_token(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    let (shared, context) = (request.shared, request.context);
    let mut body = request.message("authentication.TokenRequest")?;
    let call = request.call("", false);
    let about = request.about(Operation::Create, request.name);
    shared.registry.admit_message(&call, about, &mut body, warnings).await?;
    let account = shared.registry.get(&call, request.name)?;
    let account = crate::view::read(request.target.kind, &account);
    let token_request = reviews::TokenRequest { body: &body, account: &account, user: context.user };
    let answer = reviews::token_request(&token_request, &shared.authn, context.now, warnings)?;
    if let Some(id) = service_account::credential_id(answer.text("status.token")) {
        context.audit.annotate(ISSUED_CREDENTIAL, id);
    }
    Ok(Reply::bytes(201, "application/json", answer.to_string()))
}

/// PUT of an object or a subresource.
pub(super) async fn update(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    let (options, mut object) = request.update(request.target.kind, warnings)?;
    check_name(&object, request.name)?;
    match_namespace(&request.call("", false), &mut object)?;
    request.written(request.change(&options, Source::Body(&object), warnings).await?)
}

/// PATCH of an object or a subresource.
pub(super) async fn patch(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    if request.is_apply() {
        let (options, config) = request.apply(warnings)?;
        let source = Source::Apply { config: &config, force: options.force };
        return request.written(request.change(&options, source, warnings).await?);
    }
    let (options, patch) = request.patch()?;
    let run = |old: &Value, noted: &mut Vec<String>| {
        let new = patched(request.target.kind, &patch, old, options.field_validation, noted)?;
        check_name(&new, request.name)?;
        Ok(new)
    };
    request.written(request.change(&options, Source::Patch(&run), warnings).await?)
}
