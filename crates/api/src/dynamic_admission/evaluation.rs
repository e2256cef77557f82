//! Evaluating expressions on a request: their values, their budget, and the match conditions that policies and webhooks
//! share.

use serde_json::Value;

use super::expression::{
    self, Authorize, CONDITIONS_BUDGET, Compiler, Environment, Expressions, Gives, Input, OutOfBudget, Outcome, Results,
};
use super::request::{Form, Request};
use crate::value::ValueExt as _;

/// An expression, or why it does not compile.
pub(super) type Compiled = Result<usize, String>;

/// The input of expressions.
pub(super) struct Context<'a> {
    object: Value,
    old_object: Value,
    request: Value,
    /// The request as match conditions see it: in the requested form, but for the resource that was sent.
    request_sent: Value,
    namespace: &'a Value,
    params: &'a Value,
    authorizer: &'a dyn Authorize,
}

impl<'a> Context<'a> {
    /// A request in the form that a rule requests.
    pub(super) fn new(
        request: &Request<'_>,
        form: &Form,
        namespace: &'a Value,
        params: &'a Value,
        authorizer: &'a dyn Authorize,
    ) -> Self {
        let (object, old_object) = request.objects(form);
        let Form { resource, group, version, .. } = request.form();
        let request_sent = request.describe(&Form { resource, group, version, ..*form });
        Self { object, old_object, request: request.describe(form), request_sent, namespace, params, authorizer }
    }

    /// The values of names: everything, for validations.
    pub(super) fn input(&self) -> Input<'_> {
        Input {
            object: &self.object,
            old_object: &self.old_object,
            request: &self.request,
            namespace: self.namespace,
            params: self.params,
            authorizer: Some(self.authorizer),
        }
    }
}

/// Evaluates expressions one after the other until the budget is spent. Each comes with its text.
pub(super) fn evaluate_all(
    expressions: &dyn Expressions,
    input: Input<'_>,
    all: &[(&str, &Compiled)],
    budget: &mut u64,
) -> Result<Results, OutOfBudget> {
    let indexes: Vec<usize> = all.iter().filter_map(|(_, compiled)| compiled.as_ref().ok().copied()).collect();
    let mut results = expressions.evaluate(input, &indexes, budget)?.into_iter();
    let each = all.iter().map(|(text, compiled)| match compiled {
        Err(why) => Err(why.clone()),
        Ok(_) => match results.next() {
            Some(result) => result.map_err(|why| format!("expression '{text}' resulted in error: {why}")),
            None => Err(format!("expression '{text}' was not evaluated")),
        },
    });
    Ok(each.collect())
}

/// What match conditions say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MatchResult {
    /// All of them are true.
    Hold,
    /// One of them is false, or one fails and failures are ignored.
    Skip,
    /// One of them fails.
    Failed(String),
}

/// Evaluates match conditions. Parameters are there for policies; the namespace is not.
pub(super) fn conditions(
    expressions: &dyn Expressions,
    all: &[(String, Compiled)],
    context: &Context<'_>,
    ignores_failure: bool,
) -> MatchResult {
    if all.is_empty() {
        return MatchResult::Hold;
    }
    let input = Input { namespace: &Value::Null, request: &context.request_sent, ..context.input() };
    let texts: Vec<_> = all.iter().map(|(text, compiled)| (text.as_str(), compiled)).collect();
    let failed = match evaluate_all(expressions, input, &texts, &mut { CONDITIONS_BUDGET }) {
        Err(why) => vec![why.to_string()],
        Ok(results) if results.contains(&Ok(Outcome::Bool(false))) => return MatchResult::Skip,
        Ok(results) => results.into_iter().filter_map(Result::err).collect(),
    };
    match &failed[..] {
        [] => MatchResult::Hold,
        _ if ignores_failure => MatchResult::Skip,
        [one] => MatchResult::Failed(one.clone()),
        several => MatchResult::Failed(format!("[{}]", several.join(", "))),
    }
}

/// Match conditions of a webhook.
pub struct MatchConditions {
    expressions: Box<dyn Expressions>,
    all: Vec<(String, Compiled)>,
    ignores_failure: bool,
}

impl MatchConditions {
    /// Reads and compiles `matchConditions`; with `ignores_failure`, one that fails is as good as one that is false.
    #[must_use]
    pub fn read(conditions: &[Value], ignores_failure: bool, compiler: &dyn Compiler) -> Self {
        let mut expressions = compiler.expressions(false);
        let environment = Environment { params: false, authorizer: true, stored: true };
        let mut all = Vec::with_capacity(conditions.len());
        for condition in conditions {
            let text = condition.text("expression");
            let compiled = expression::compile(expressions.as_mut(), text, environment, Gives::Bool);
            all.push((text.to_owned(), compiled.map_err(|why| format!("compilation error: {why}"))));
        }
        Self { expressions, all, ignores_failure }
    }

    /// Evaluates them on a request in the form that a rule requests.
    #[must_use]
    pub fn check(&self, request: &Request<'_>, form: &Form, authorizer: &dyn Authorize) -> MatchResult {
        if self.all.is_empty() {
            return MatchResult::Hold;
        }
        let context = Context::new(request, form, &Value::Null, &Value::Null, authorizer);
        conditions(self.expressions.as_ref(), &self.all, &context, self.ignores_failure)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dynamic_admission::fake::{Fake, OneVerb};
    use crate::dynamic_admission::request::Operation;
    use crate::kinds::{event, events_event};

    fn check(conditions: &[&str], ignores_failure: bool) -> MatchResult {
        let object = json!({"metadata": {"name": "x"}});
        let request = Request {
            operation: Operation::Create,
            kind: &event::KIND,
            subresource: None,
            namespace: "n",
            name: "x",
            object: &object,
            old_object: &Value::Null,
            options: &Value::Null,
            dry_run: false,
            user: &Value::Null,
        };
        let list: Vec<Value> = conditions.iter().map(|text| json!({"name": "a", "expression": text})).collect();
        let conditions = MatchConditions::read(&list, ignores_failure, &Fake);
        conditions.check(&request, &Form::of(&events_event::KIND, None), &OneVerb("get"))
    }

    #[test]
    fn one_false_condition_is_enough() {
        assert_eq!(check(&[], false), MatchResult::Hold);
        assert_eq!(check(&["true", "object.metadata.name == 'x'", "allowed get"], false), MatchResult::Hold);
        assert_eq!(check(&["error x", "false"], false), MatchResult::Skip);
        assert_eq!(check(&["allowed list"], false), MatchResult::Skip);
    }

    #[test]
    fn errors_count_unless_they_are_ignored() {
        let failed = "expression 'error x' resulted in error: x".to_owned();
        assert_eq!(check(&["true", "error x"], false), MatchResult::Failed(failed.clone()));
        assert_eq!(check(&["true", "error x"], true), MatchResult::Skip);
        let frob = "compilation error: compilation failed: ERROR: <input>:1:1: undeclared reference to 'frob'";
        assert_eq!(check(&["error x", "frob"], false), MatchResult::Failed(format!("[{failed}, {frob}]")));
        assert_eq!(check(&["cost 2000000", "cost 500001"], false), MatchResult::Failed(OutOfBudget.to_string()));
        assert_eq!(check(&["cost 2000000", "cost 500000"], false), MatchResult::Hold);
    }

    #[test]
    fn conditions_see_the_kind_of_the_rule_and_the_resource_of_the_request() {
        let holds =
            ["request.kind.group == 'events.k8s.io'", "request.resource.group == ''", "namespaceObject == null"];
        assert_eq!(check(&holds, false), MatchResult::Hold);
    }
}
