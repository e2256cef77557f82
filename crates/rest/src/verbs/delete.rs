//! delete and deletecollection.

use api::options::{DeleteOptions, Propagation};
use api::status::Status;

use super::api_request::ApiRequest;
use crate::registry::Deletion;
use crate::reply::Reply;

/// DELETE of an object.
pub(super) async fn delete(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    let options = request.delete_options()?;
    let call = request.call("", options.dry_run);
    request.written(request.shared.registry.delete(&call, request.name, &deletion(&options), warnings).await?)
}

/// DELETE of a collection: every object that matches, one after the other. The response lists them as they were.
pub(super) async fn delete_collection(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    let options = request.delete_options()?;
    let (entries, meta) = super::read::matching(request).await?;
    let call = request.call("", options.dry_run);
    let deletion = deletion(&options);
    for entry in &entries {
        let name = entry.key.name.rsplit('/').next().unwrap_or_default();
        match request.shared.registry.delete(&call, name, &deletion, warnings).await {
            // Deleted by another client meanwhile.
            Err(status) if status.code == 404 => {}
            done => drop(done?),
        }
    }
    Ok(Reply::document(200, request.context.view.list(request.target.kind, &entries, &meta)?))
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
