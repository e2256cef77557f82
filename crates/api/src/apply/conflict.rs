//! The answer to an apply that would change what others own.
//!
//! In: owners with the paths they would lose. Out: the exact 409 with one cause per path.

use super::fieldset::Set;
use super::managed::Owner;
use crate::field::quote;
use crate::status::Status;

/// What one owner would lose.
#[derive(Clone, Debug)]
pub(super) struct Conflict<'a> {
    /// The owner.
    pub(super) owner: Owner<'a>,
    /// The paths.
    pub(super) paths: Set<'a>,
}

/// The answer.
pub(super) fn refuse(mut conflicts: Vec<Conflict<'_>>) -> Status {
    conflicts.sort_by_key(|conflict| conflict.owner.id());
    let losses: Vec<(String, Vec<String>)> =
        conflicts.iter().map(|conflict| (name(&conflict.owner), conflict.paths.paths())).collect();
    let count: usize = losses.iter().map(|(_, paths)| paths.len()).sum();
    let message = match losses.as_slice() {
        [(owner, paths)] if count == 1 => {
            format!("Apply failed with 1 conflict: conflict with {owner}: {}", paths.concat())
        }
        _ => {
            let lines = losses.iter().flat_map(|(owner, paths)| {
                std::iter::once(format!("conflicts with {owner}:")).chain(paths.iter().map(|path| format!("- {path}")))
            });
            format!("Apply failed with {count} conflicts: {}", lines.collect::<Vec<_>>().join("\n"))
        }
    };
    losses
        .iter()
        .flat_map(|(owner, paths)| paths.iter().map(move |path| (owner, path)))
        .fold(Status::apply_conflict(message), |status, (owner, path)| {
            status.with_cause("FieldManagerConflict", &format!("conflict with {owner}"), path)
        })
}

fn name(owner: &Owner<'_>) -> String {
    let mut out = quote(owner.manager);
    if !owner.subresource.is_empty() {
        out.push_str(&format!(" with subresource {}", quote(owner.subresource)));
    }
    if !owner.applied {
        out.push_str(&format!(" using {}", owner.api_version));
    }
    out
}
