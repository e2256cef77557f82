//! delete and deletecollection.

use std::sync::Arc;

use api::options::{DeleteOptions, Propagation};
use api::status::Status;
use http::header;

use super::{call, written};
use crate::handler::{Ask, Shared};
use crate::registry::Deletion;
use crate::reply::Reply;
use crate::route::Target;
use crate::{body, negotiate};

/// DELETE of an object.
pub(super) async fn delete(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let options = options(ask, bytes)?;
    let call = call(ask, target, "", options.dry_run);
    let name = target.name.unwrap_or_default();
    let outcome = shared.registry.delete(&call, name, &deletion(&options), warnings).await?;
    written(ask, target, outcome)
}

/// DELETE of a collection: every object that matches, one after the other. The answer shows them as they were.
pub(super) async fn delete_collection(
    shared: &Arc<Shared>,
    ask: &Ask<'_>,
    target: &Target<'_>,
    bytes: &[u8],
    warnings: &mut Vec<String>,
) -> Result<Reply, Status> {
    let options = options(ask, bytes)?;
    let (entries, meta) = super::read::matching(shared, ask, target).await?;
    let call = call(ask, target, "", options.dry_run);
    let wish = deletion(&options);
    for entry in &entries {
        let name = entry.key.name.rsplit('/').next().unwrap_or_default();
        match shared.registry.delete(&call, name, &wish, warnings).await {
            // Somebody else was faster: it is gone, which is what was asked for.
            Err(status) if status.code == 404 => {}
            done => drop(done?),
        }
    }
    Ok(Reply::document(200, ask.view.list(target.kind, &entries, &meta)?))
}

fn options(ask: &Ask<'_>, bytes: &[u8]) -> Result<DeleteOptions, Status> {
    let body = if bytes.is_empty() {
        None
    } else {
        body::delete_options(negotiate::body_media(ask.header(header::CONTENT_TYPE))?, bytes)?
    };
    match body {
        Some(body) => DeleteOptions::from_value(&body),
        None => DeleteOptions::from_query(&ask.query),
    }
}

pub(super) fn deletion(options: &DeleteOptions) -> Deletion {
    Deletion {
        grace: options.grace_period_seconds,
        uid: options.uid.clone(),
        revision: options.resource_version.clone(),
        propagation: match (options.propagation, options.orphan_dependents) {
            (None, Some(true)) => Some(Propagation::Orphan),
            (propagation, _) => propagation,
        },
    }
}
