//! Eviction: deletes a Pod if its PodDisruptionBudget allows it ([`api::disruption`]).
//!
//! ```text
//! decide ─▶ charge the budget ─▶ condition DisruptionTarget ─▶ delete
//! ```
//! Each step is one transaction, and each may fail without harm: a charge without a deletion expires after two minutes, a condition without a
//! deletion is reset by the controller of budgets. Two evictions cannot use the same disruption, because a charge is an update of the
//! budget: the later one is computed again from what the earlier one left.

#[cfg(test)]
mod tests;

use api::admission::Plugin;
use api::disruption::{self, Decision};
use api::kinds::poddisruptionbudget as budget;
use api::object;
use api::status::Status;
use serde_json::Value;
use store::{Entry, Table, Txn};

use super::delete::check_preconditions;
use super::{ATTEMPTS, Call, Change, Deletion, Registry, Source, WriteError, old_object, restriction};
use crate::auth::User;

/// The field manager of the status of budgets.
const MANAGER: &str = "kube-apiserver";
/// Reason and message of the condition of an evicted Pod.
const CONDITION: (&str, &str) = ("EvictionByEvictionAPI", "Eviction API: evicting");

impl Registry {
    /// Evicts a Pod.
    pub(crate) async fn evict(
        &self,
        call: &Call<'_>,
        name: &str,
        deletion: &Deletion,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        for _ in 0..ATTEMPTS {
            let entry = self.get(call, name)?;
            let pod = old_object(call.kind, &entry);
            // Checked again when the Pod is deleted. Users must not use up the budget of a Pod that they may not evict.
            if self.plugins.has(Plugin::NodeRestriction) {
                restriction::on_delete(call, name, &pod)?;
            }
            check_preconditions(call, name, deletion, &pod)?;
            let budgets = self.budgets_of(call.namespace, &entry);
            let decision = disruption::decide(&pod, &budgets)?;
            let mut options = deletion.clone();
            match decision {
                Decision::Delete => {}
                Decision::DeleteUnchanged(_) => options.revision = Some(entry.modified.to_string()),
                Decision::Charge(budget) => match self.charge(call, budget, name, warnings).await {
                    // The budget was deleted: other budgets may apply now. 404 would mean that the Pod does not exist.
                    Err(status) if status.code == 404 => continue,
                    done => done?,
                },
            }
            let Err(status) = self.delete_disrupted(call, name, &options, warnings).await else { return Ok(()) };
            let is_stale = status.code == 409 && deletion.revision.is_none();
            match decision {
                Decision::DeleteUnchanged(None) if is_stale => {}
                Decision::DeleteUnchanged(Some(budget)) if is_stale => return Err(disruption::outdated(budget)),
                _ => return Err(status),
            }
        }
        Err(Status::too_many_requests("too many conflicting writes to the object; please try again"))
    }

    /// The budgets that select a Pod.
    fn budgets_of(&self, namespace: &str, pod: &Entry) -> Vec<Value> {
        let Ok(range) = self.store.range(Table::named(budget::KIND.table), &format!("{namespace}/"), None) else {
            return Vec::new();
        };
        let budgets = range.entries.iter().map(|entry| object::decode_light(&entry.value));
        budgets.filter(|budget| disruption::selects(budget, &pod.facts)).collect()
    }

    /// Uses one disruption of a budget. Policies and webhooks see a write of the API server, as in Kubernetes.
    async fn charge(&self, call: &Call<'_>, budget: &str, pod: &str, warnings: &mut Vec<String>) -> Result<(), Status> {
        let (now, user) = (call.now_text(), User::api_server());
        let subresource = budget::KIND.subresource("status");
        let budgets = Call { kind: &budget::KIND, subresource, manager: MANAGER, user: &user, ..*call };
        if call.dry_run {
            let entry = self.get(&budgets, budget)?;
            return disruption::charge(&old_object(&budget::KIND, &entry), pod, &now).map(drop);
        }
        let charge = |old: &Value, _: &mut Vec<String>| disruption::charge(old, pod, &now);
        let change = Change { name: budget, source: Source::Patch(&charge) };
        self.update(&budgets, &change, warnings).await.map(drop)
    }

    /// Marks a Pod as the target of a disruption, and deletes it.
    async fn delete_disrupted(
        &self,
        call: &Call<'_>,
        name: &str,
        deletion: &Deletion,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let mut deletion = deletion.clone();
        if !call.dry_run {
            let marked = self.mark_disrupted(call, name, &deletion).await?;
            // The revision of the precondition is the one before this write.
            deletion.revision = deletion.revision.map(|_| marked.to_string());
        }
        self.delete(call, name, &deletion, warnings).await.map(drop)
    }

    /// Sets the condition DisruptionTarget of a Pod under the preconditions of its deletion; returns the revision of the Pod.
    async fn mark_disrupted(&self, call: &Call<'_>, name: &str, deletion: &Deletion) -> Result<u64, Status> {
        for _ in 0..ATTEMPTS {
            let entry = self.get(call, name)?;
            let old = old_object(call.kind, &entry);
            if self.plugins.has(Plugin::NodeRestriction) {
                restriction::on_delete(call, name, &old)?;
            }
            check_preconditions(call, name, deletion, &old)?;
            let mut new = old.clone();
            disruption::set_target(&mut new, Some(CONDITION), &call.now_text());
            if new == old {
                return Ok(entry.modified);
            }
            let written = match self.stored_form(call, &new).await {
                Ok(stored) => self.put(call, name, stored, entry.modified, Txn::default()).await,
                Err(error) => Err(error),
            };
            match written {
                Ok(written) => return Ok(written.modified),
                Err(WriteError::Refused(status)) => return Err(status),
                Err(WriteError::Conflict) => {}
            }
        }
        Err(Status::too_many_requests("too many conflicting writes to the object; please try again"))
    }
}
