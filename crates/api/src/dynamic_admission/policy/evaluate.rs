//! One policy, one parameter, one request: conditions, validations, messages, values of annotations.

use super::{Policy, Validation};
use crate::dynamic_admission::evaluation::{Context, MatchResult, conditions, evaluate_all};
use crate::dynamic_admission::expression::{BUDGET, Input, OutOfBudget, Outcome};

/// Bytes of a message that an expression gives.
const MAX_MESSAGE: usize = 5 * 1024;
/// What a validation decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    Admit,
    Deny { message: String, reason: String },
}

/// What a policy decides.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Outcomes {
    /// One for each validation; or a single one when they could not be evaluated.
    pub(super) decisions: Vec<Decision>,
    /// Keys with their value, or why there is none.
    pub(super) annotations: Annotations,
}

type Annotations = Vec<(String, Result<String, String>)>;

impl Policy {
    /// Evaluates the policy.
    pub(super) fn evaluate(&self, context: &Context<'_>) -> Outcomes {
        let only = |why: String| Outcomes { decisions: vec![self.failure(why)], annotations: Vec::new() };
        match conditions(self.expressions.as_ref(), &self.conditions, context, self.ignores_failure) {
            MatchResult::Hold => {}
            MatchResult::Skip => return Outcomes::default(),
            MatchResult::Failed(why) => return only(why),
        }
        let mut budget = BUDGET;
        let texts: Vec<_> = self.validations.iter().map(|one| (one.text.as_str(), &one.compiled)).collect();
        let results = match evaluate_all(self.expressions.as_ref(), context.input(), &texts, &mut budget) {
            Ok(results) => results,
            Err(why) => return only(why.to_string()),
        };
        let messages = self.messages(context, budget);
        let mut decisions = Vec::with_capacity(results.len());
        for (index, (validation, result)) in self.validations.iter().zip(results).enumerate() {
            decisions.push(match (&messages, result) {
                (_, Err(why)) => self.failure(why),
                (Err(why), Ok(_)) => self.failure(format!("failed messageExpression: {why}")),
                (Ok(_), Ok(Outcome::Bool(true))) => Decision::Admit,
                (Ok(messages), Ok(_)) => {
                    let message = validation.denial(messages.get(index).and_then(Option::as_deref));
                    Decision::Deny { message, reason: validation.reason.clone() }
                }
            });
        }
        match self.annotations(context) {
            Ok(annotations) => Outcomes { decisions, annotations },
            Err(why) => only(why.to_string()),
        }
    }

    /// What an error decides.
    fn failure(&self, message: String) -> Decision {
        if self.ignores_failure { Decision::Admit } else { Decision::Deny { message, reason: String::new() } }
    }

    /// What the message expressions give, in place of each validation; without the authorizer.
    fn messages(&self, context: &Context<'_>, mut budget: u64) -> Result<Vec<Option<String>>, OutOfBudget> {
        let input = Input { authorizer: None, ..context.input() };
        let expressions = self.validations.iter().filter_map(|validation| validation.message_expression.as_ref());
        let texts: Vec<_> = expressions.map(|(text, compiled)| (text.as_str(), compiled)).collect();
        let mut results = evaluate_all(self.expressions.as_ref(), input, &texts, &mut budget)?.into_iter();
        let each = self.validations.iter().map(|validation| {
            validation.message_expression.as_ref()?;
            match results.next() {
                Some(Ok(Outcome::Text(text))) => Some(text),
                _ => None,
            }
        });
        Ok(each.collect())
    }

    /// The values of audit annotations, without those that are null or empty; without the authorizer.
    fn annotations(&self, context: &Context<'_>) -> Result<Annotations, OutOfBudget> {
        let input = Input { authorizer: None, ..context.input() };
        let texts: Vec<_> = self.annotations.iter().map(|one| (one.text.as_str(), &one.compiled)).collect();
        let results = evaluate_all(self.expressions.as_ref(), input, &texts, &mut { BUDGET })?;
        let mut out = Vec::new();
        for (annotation, result) in self.annotations.iter().zip(results) {
            let value = match result {
                Ok(Outcome::Text(text)) if text.trim().is_empty() => continue,
                Ok(Outcome::Text(text)) => Ok(text.trim().to_owned()),
                Ok(Outcome::Null) => continue,
                Ok(other) => Err(format!(
                    "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or \
                     null.",
                    annotation.text,
                    other.type_name()
                )),
                Err(_) if self.ignores_failure => continue,
                Err(why) => Err(why),
            };
            out.push((annotation.key.clone(), value));
        }
        Ok(out)
    }
}

impl Validation {
    /// The message of a failed validation: that of its expression, its own, or the expression.
    fn denial(&self, evaluated: Option<&str>) -> String {
        let evaluated = evaluated.unwrap_or_default().trim();
        if !evaluated.is_empty() && evaluated.len() <= MAX_MESSAGE && !evaluated.contains('\n') {
            return evaluated.to_owned();
        }
        match self.message.trim() {
            "" => format!("failed expression: {}", self.text.trim()),
            message => message.to_owned(),
        }
    }
}
