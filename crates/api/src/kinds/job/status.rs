//! The status of a Job. Other controllers may manage Jobs (`spec.managedBy`), so transitions that clients could not understand are refused.
//!
//! Most rules apply only when the fields they are about change: a status that violated one before it existed can still be updated.

use jiff::Timestamp;
use serde_json::Value;

use super::super::common::{IMMUTABLE, go_struct, invalid_omitted, invalid_struct};
use super::super::workload::{STATUS, not_negative};
use super::{has_condition, is_finished, is_indexed};
use crate::field::{Errors, Path};
use crate::indexes;
use crate::value::ValueExt as _;

/// Checks a change of the status.
pub(super) fn validate(new: &Value, old: &Value, errors: &mut Errors) {
    let change = Change { new, old, conditions: STATUS.child("conditions") };
    not_negative(&STATUS, new.at("status"), &["active", "succeeded", "failed", "ready", "terminating"], errors);
    validate_uncounted(new.at("status.uncountedTerminatedPods"), errors);
    change.validate_completion(errors);
    change.validate_finished(errors);
    change.validate_indexes(errors);
    change.validate_counts(errors);
    change.validate_success_criteria(errors);
    change.validate_transitions(errors);
}

fn validate_uncounted(uncounted: &Value, errors: &mut Errors) {
    let (path, mut seen) = (STATUS.child("uncountedTerminatedPods"), std::collections::HashSet::new());
    for field in ["succeeded", "failed"] {
        let path = path.child(field);
        for (index, uid) in uncounted.texts(field).into_iter().enumerate() {
            if uid.is_empty() {
                errors.invalid(&path.index(index), uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(&path.index(index), uid);
            }
        }
    }
}

struct Change<'a> {
    new: &'a Value,
    old: &'a Value,
    conditions: Path<'static>,
}

impl Change<'_> {
    fn is(&self, kind: &str) -> bool {
        has_condition(self.new, kind, "True")
    }

    fn was(&self, kind: &str) -> bool {
        has_condition(self.old, kind, "True")
    }

    /// Whether a condition became or ceased to be true.
    fn turned(&self, kind: &str) -> bool {
        self.is(kind) != self.was(kind)
    }

    /// Whether a field of the status changed.
    fn changed(&self, field: &str) -> bool {
        self.new.at("status").at(field) != self.old.at("status").at(field)
    }

    fn time(&self, field: &str) -> Option<Timestamp> {
        self.new.at("status").text(field).parse().ok()
    }

    fn refuse(&self, detail: &str, errors: &mut Errors) {
        invalid_omitted(&self.conditions, detail, errors);
    }

    fn validate_completion(&self, errors: &mut Errors) {
        let status = self.new.at("status");
        let (path, completion) = (STATUS.child("completionTime"), status.at("completionTime"));
        let (complete, turned) = (self.is("Complete"), self.turned("Complete"));
        if (turned || self.turned("Failed")) && complete && self.is("Failed") {
            self.refuse("cannot set Complete=True and Failed=true conditions", errors);
        }
        if (turned || self.turned("FailureTarget")) && complete && self.is("FailureTarget") {
            self.refuse("cannot set Complete=True and FailureTarget=true conditions", errors);
        }
        if turned || self.changed("completionTime") {
            if !completion.is_null() && !complete {
                let detail = "cannot set completionTime when there is no Complete=True condition";
                errors.invalid(&path, completion, detail);
            }
            if completion.is_null() && complete {
                errors.required(&path, "completionTime is required for Complete jobs");
            }
        }
        if (self.changed("startTime") || self.changed("completionTime"))
            && let (Some(start), Some(end)) = (self.time("startTime"), self.time("completionTime"))
            && end < start
        {
            errors.invalid(&path, completion, "must be equal to or after `startTime`");
        }
    }

    fn validate_finished(&self, errors: &mut Errors) {
        let (status, finished) = (self.new.at("status"), is_finished(self.new));
        let turned = finished != is_finished(self.old);
        if (self.turned("Failed") || self.changed("failedIndexes")) && self.is("Failed") && !self.is("FailureTarget") {
            self.refuse("cannot set Failed=True condition without the FailureTarget=true condition", errors);
        }
        if (self.turned("Complete") || self.turned("SuccessCriteriaMet"))
            && self.is("Complete")
            && !self.is("SuccessCriteriaMet")
        {
            self.refuse("cannot set Complete=True condition without the SuccessCriteriaMet=true condition", errors);
        }
        if !finished {
            return;
        }
        let active = status.int("active");
        if (turned || self.changed("active")) && active > 0 {
            errors.invalid(&STATUS.child("active"), active, "active>0 is invalid for finished job");
        }
        let never_ran = self.new.flag("spec.suspend") && self.new.at("spec.completions").as_i64() == Some(0);
        if (turned || self.changed("startTime")) && !never_ran && !status.has("startTime") {
            errors.required(&STATUS.child("startTime"), "startTime is required for finished job");
        }
        let uncounted = status.at("uncountedTerminatedPods");
        let has_some = ["succeeded", "failed"].iter().any(|list| !uncounted.items(list).is_empty());
        if (turned || self.changed("uncountedTerminatedPods")) && has_some {
            let printed = go_struct(uncounted, &[("Succeeded", "succeeded?"), ("Failed", "failed?")]);
            let path = STATUS.child("uncountedTerminatedPods");
            invalid_struct(&path, &printed, "must be empty for finished job", errors);
        }
    }

    fn validate_indexes(&self, errors: &mut Errors) {
        let (status, completions) = (self.new.at("status"), self.new.at("spec.completions").as_i64());
        let (completed, failed) = (status.text("completedIndexes"), status.at("failedIndexes").as_str());
        let (completed_path, failed_path) = (STATUS.child("completedIndexes"), STATUS.child("failedIndexes"));
        let (completed_changed, failed_changed) = (self.changed("completedIndexes"), self.changed("failedIndexes"));
        let per_index = self.new.has("spec.backoffLimitPerIndex");
        if let (true, Some(Err(why))) = (completed_changed, completions.map(|all| indexes::check(completed, all))) {
            errors.invalid(&completed_path, completed, &format!("error parsing completedIndexes: {why}"));
        }
        if let (true, Some(all), Some(failed)) = (failed_changed && per_index, completions, failed)
            && let Err(why) = indexes::check(failed, all)
        {
            errors.invalid(&failed_path, failed, &format!("error parsing failedIndexes: {why}"));
        }
        if completed_changed && !completed.is_empty() && !is_indexed(self.new) {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errors.invalid(&completed_path, completed, detail);
        }
        let Some(failed) = failed else { return };
        if failed_changed && !per_index {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            errors.invalid(&failed_path, failed, detail);
        }
        if (failed_changed || completed_changed)
            && let Some(index) = completions.and_then(|all| indexes::overlap(completed, failed, all))
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            errors.invalid(&failed_path, failed, &detail);
        }
    }

    fn validate_counts(&self, errors: &mut Errors) {
        let (status, finished) = (self.new.at("status"), is_finished(self.new));
        let (terminating, ready) = (status.int("terminating"), status.int("ready"));
        if (finished != is_finished(self.old) || self.changed("terminating")) && terminating > 0 && finished {
            errors.invalid(&STATUS.child("terminating"), terminating, "terminating>0 is invalid for finished job");
        }
        if (self.changed("ready") || self.changed("active")) && ready > status.int("active") {
            errors.invalid(&STATUS.child("ready"), ready, "cannot set more ready pods than active");
        }
    }

    fn validate_success_criteria(&self, errors: &mut Errors) {
        let met = self.is("SuccessCriteriaMet");
        if met && self.is("Failed") {
            self.refuse("cannot set SuccessCriteriaMet=True and Failed=true conditions", errors);
        }
        if met && self.is("FailureTarget") {
            self.refuse("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions", errors);
        }
        if self.new.has("spec.successPolicy") && !met && self.is("Complete") {
            let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
            self.refuse(detail, errors);
        }
    }

    fn validate_transitions(&self, errors: &mut Errors) {
        let (new, old) = (self.new.at("status"), self.old.at("status"));
        for kind in ["Failed", "Complete", "FailureTarget"] {
            if self.was(kind) && !self.is(kind) {
                self.refuse(&format!("cannot disable the terminal {kind}=True condition"), errors);
            }
        }
        // An Indexed Job with as many completions as parallel Pods can be scaled down.
        let elastic = is_indexed(self.new) && self.new.at("spec.completions") == self.new.at("spec.parallelism");
        for (field, only_grows) in [("failed", true), ("succeeded", !elastic)] {
            if only_grows && new.int(field) < old.int(field) {
                let detail = format!("cannot decrease the {field} counter");
                errors.invalid(&STATUS.child(field), new.int(field), &detail);
            }
        }
        if new.has("completionTime") && old.has("completionTime") && self.changed("completionTime") {
            errors.invalid(&STATUS.child("completionTime"), new.at("completionTime"), IMMUTABLE);
        }
        let resumes = self.was("Suspended") && has_condition(self.new, "Suspended", "False");
        if self.changed("startTime") && !resumes && old.has("startTime") && !self.new.flag("spec.suspend") {
            let detail = "field is immutable for unsuspended job once set";
            errors.invalid(&STATUS.child("startTime"), new.at("startTime"), detail);
        }
        if self.was("SuccessCriteriaMet") && !self.is("SuccessCriteriaMet") {
            self.refuse("cannot disable the SuccessCriteriaMet=True condition", errors);
        }
        if self.was("Complete") && !self.was("SuccessCriteriaMet") && self.is("SuccessCriteriaMet") {
            let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
            self.refuse(detail, errors);
        }
    }
}
