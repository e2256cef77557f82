//! create and update.

use std::sync::Arc;

use api::dynamic_admission::request::Operation;
use api::options::WriteOptions;
use api::status::Status;
use api::value::ValueExt as _;
use http::header;

use super::{about, call, manager, placement, written};
use crate::auth::service_account;
use crate::handler::{Ask, Shared};
use crate::registry::{Change, Source, check_name};
use crate::reply::Reply;
use crate::route::Target;
use crate::{body, negotiate, reviews};

/// The audit annotation that names a token that was issued, by the id that it gives its users.
const ISSUED_CREDENTIAL: &str = "authentication.kubernetes.io/issued-credential-id";

/// POST of a collection.
pub(super) async fn create(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let options = WriteOptions::create(&ask.query)?;
    let media = negotiate::body_media(ask.header(header::CONTENT_TYPE))?;
    let object = body::object(target.kind, media, bytes, options.field_validation, warnings)?;
    let manager = manager(ask, &options.field_manager);
    let call = call(ask, target, &manager, options.dry_run);
    written(ask, target, shared.registry.create(&call, object, warnings).await?)
}

/// POST of a part of an object.
pub(super) async fn create_part(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    match target.subresource.map(|sub| sub.name) {
        Some("binding") => placement::bind(shared, ask, target, bytes, warnings).await,
        Some("eviction") => placement::evict(shared, ask, target, bytes, warnings).await,
        Some("token") => {
            let media = negotiate::body_media(ask.header(header::CONTENT_TYPE))?;
            let mut parsed = body::message("authentication.TokenRequest", media, bytes)?;
            let call = call(ask, target, "", false);
            let name = target.name.unwrap_or_default();
            shared.registry.admit_message(&call, about(target, Operation::Create, name), &mut parsed, warnings).await?;
            let account = shared.registry.get(&call, name)?;
            let account = crate::view::read(target.kind, &account);
            let request = reviews::TokenRequest { body: &parsed, account: &account, user: ask.user };
            let answer = reviews::token_request(&request, &shared.authn, ask.now, warnings)?;
            if let Some(id) = service_account::credential_id(answer.text("status.token")) {
                ask.audit.annotate(ISSUED_CREDENTIAL, id);
            }
            Ok(Reply::bytes(201, "application/json", answer.to_string()))
        }
        _ => Err(Status::method_not_allowed()),
    }
}

/// PUT of an object or a part of it.
pub(super) async fn update(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let name = target.name.unwrap_or_default();
    let options = WriteOptions::update(&ask.query)?;
    let media = negotiate::body_media(ask.header(header::CONTENT_TYPE))?;
    let mut object = body::object(target.kind, media, bytes, options.field_validation, warnings)?;
    check_name(&object, name)?;
    let manager = manager(ask, &options.field_manager);
    let call = call(ask, target, &manager, options.dry_run);
    crate::registry::match_namespace(&call, &mut object)?;
    let change = Change { name, source: Source::Body(&object) };
    written(ask, target, shared.registry.update(&call, &change, warnings).await?)
}
