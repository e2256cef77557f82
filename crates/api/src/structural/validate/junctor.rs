//! `anyOf`, `oneOf`, `allOf` and `not`. Inside of them nothing is excused for being unchanged.

use serde_json::Value;

use super::{Context, Name, Report};
use crate::field::quote;
use crate::structural::Structural;

impl Context<'_> {
    pub(super) fn junctors(&self, schema: &Structural, value: &Value, name: &Name<'_>, report: &mut Report) {
        let checks = &schema.checks;
        if !checks.any_of.is_empty() {
            self.any_of(&checks.any_of, value, name, report);
        }
        if !checks.one_of.is_empty() {
            self.one_of(&checks.one_of, value, name, report);
        }
        if !checks.all_of.is_empty() {
            self.all_of(&checks.all_of, value, name, report);
        }
        if let Some(not) = &checks.not
            && self.alone(not, value, name).is_valid()
        {
            self.general(report, &format!("{} must not validate the schema (not)", quote(&name.to_string())));
        }
        report.matches += 1;
    }

    fn alone(&self, schema: &Structural, value: &Value, name: &Name<'_>) -> Report {
        let mut report = Report::default();
        self.node(schema, value, name, None, &mut report);
        report
    }

    fn any_of(&self, schemas: &[Structural], value: &Value, name: &Name<'_>, report: &mut Report) {
        let mut best = None;
        for schema in schemas {
            let result = self.alone(schema, value, name);
            if result.is_valid() {
                report.matches += result.matches;
                return;
            }
            keep_closest(&mut best, result);
        }
        self.general(report, &format!("{} must validate at least one schema (anyOf)", quote(&name.to_string())));
        if let Some(best) = best {
            report.merge(best);
        }
    }

    fn one_of(&self, schemas: &[Structural], value: &Value, name: &Name<'_>, report: &mut Report) {
        let (mut valid, mut first, mut best) = (0, None, None);
        for schema in schemas {
            let result = self.alone(schema, value, name);
            if result.is_valid() {
                valid += 1;
                first.get_or_insert(result);
            } else if valid == 0 {
                keep_closest(&mut best, result);
            }
        }
        let found = match valid {
            1 => {
                report.matches += first.map_or(0, |first| first.matches);
                return;
            }
            0 => "Found none valid".to_owned(),
            several => format!("Found {several} valid alternatives"),
        };
        let name = quote(&name.to_string());
        self.general(report, &format!("{name} must validate one and only one schema (oneOf). {found}"));
        if let Some(best) = best.filter(|_| valid == 0) {
            report.merge(best);
        }
    }

    fn all_of(&self, schemas: &[Structural], value: &Value, name: &Name<'_>, report: &mut Report) {
        let mut valid = 0;
        for schema in schemas {
            let failures = report.failures;
            self.node(schema, value, name, None, report);
            valid += usize::from(report.failures == failures);
        }
        if valid != schemas.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            self.general(report, &format!("{} must validate all the schemas (allOf){none}", quote(&name.to_string())));
        }
    }
}

/// Keeps the first of the reports with the most matches.
fn keep_closest(best: &mut Option<Report>, result: Report) {
    if best.as_ref().is_none_or(|best| result.matches > best.matches) {
        *best = Some(result);
    }
}
