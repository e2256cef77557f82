//! delete and deletecollection.

use api::options::{DeleteOptions, Propagation};
use api::status::Status;
use store::Entry;

use super::api_request::ApiRequest;
use crate::registry::{Deletion, why_required};
use crate::reply::Reply;

/// DELETE of an object.
pub(super) async fn delete(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    let options = request.delete_options()?;
    warn_of_orphans(request, &options, warnings);
    let call = request.call("", options.dry_run);
    request.written(request.shared.registry.delete(&call, request.name, &deletion(&options), warnings).await?)
}

/// DELETE of a collection: every object that matches and is not required, one after the other. The response lists them as they were.
pub(super) async fn delete_collection(request: &ApiRequest<'_>, warnings: &mut Vec<String>) -> Result<Reply, Status> {
    let options = request.delete_options()?;
    warn_of_orphans(request, &options, warnings);
    let (mut entries, meta) = super::read::matching(request).await?;
    entries.retain(|entry| why_required(request.target.kind, name_of(entry)).is_none());
    let call = request.call("", options.dry_run);
    let deletion = deletion(&options);
    for entry in &entries {
        match request.shared.registry.delete(&call, name_of(entry), &deletion, warnings).await {
            // Deleted by another client meanwhile.
            Err(status) if status.code == 404 => {}
            done => drop(done?),
        }
    }
    Ok(Reply::document(200, request.context.view.list(request.target.kind, &entries, &meta)?))
}

/// Warns of dependents that are not deleted because the client specifies no propagation policy.
fn warn_of_orphans(request: &ApiRequest<'_>, options: &DeleteOptions, warnings: &mut Vec<String>) {
    if options.propagation.is_none() && options.orphan_dependents.is_none() {
        warnings.extend(request.target.kind.rules.orphan_warning().map(str::to_owned));
    }
}

fn name_of(entry: &Entry) -> &str {
    entry.key.name.rsplit('/').next().unwrap_or_default()
}

pub(super) fn deletion(options: &DeleteOptions) -> Deletion {
    Deletion {
        grace: options.grace_period_seconds,
        uid: options.uid.clone(),
        revision: options.resource_version.clone(),
        propagation: match (options.propagation, options.orphan_dependents) {
            (None, Some(true)) => Some(Propagation::Orphan),
            (None, Some(false)) => Some(Propagation::Background),
            (propagation, _) => propagation,
        },
    }
}
