//! A tiny expression language for tests of admission: enough to see which values an expression gets and when it runs.
//!
//! `true`, `false`, `null`, `'text'`, a path (`object.metadata.name`, `variables.x`), `A == B`, `A != B`, `error TEXT`
//! (fails), `cost N` (true, at that cost), `allowed VERB` (queries the authorizer about pods). Text with `frob` in it
//! does not compile.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use serde_json::Value;

use super::expression::{
    Authorize, Authorizer, Compiled, Compiler, Decision, Environment, Expressions, Input, OutOfBudget, Outcome,
    Request, Resource, Results, Subject, Target,
};
use crate::value::ValueExt as _;

/// The compiler.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fake;

#[derive(Debug, Default)]
struct FakeExpressions {
    composed: bool,
    variables: Vec<(String, Result<String, String>)>,
    texts: Vec<String>,
}

impl Compiler for Fake {
    fn expressions(&self, composed: bool) -> Box<dyn Expressions> {
        Box::new(FakeExpressions { composed, ..FakeExpressions::default() })
    }
}

impl FakeExpressions {
    fn check(&self, text: &str, environment: Environment) -> Result<(), String> {
        let undeclared =
            |name: &str| Err(format!("compilation failed: ERROR: <input>:1:1: undeclared reference to '{name}'"));
        for word in text.split([' ', '.']) {
            match word {
                "frob" => return undeclared(word),
                "params" if !environment.params => return undeclared(word),
                "allowed" if !environment.authorizer => return undeclared("authorizer"),
                "variables" if !self.composed => return undeclared(word),
                _ => {}
            }
        }
        let variable = text.strip_prefix("variables.").map(|rest| rest.split(' ').next().unwrap_or_default());
        match variable {
            Some(name) if !self.variables.iter().any(|(known, _)| known == name) => {
                Err(format!("compilation failed: ERROR: <input>:1:10: undefined field '{name}'"))
            }
            _ => Ok(()),
        }
    }
}

impl Expressions for FakeExpressions {
    fn declare(&mut self, name: &str, expression: &str, environment: Environment) -> Result<(), String> {
        let checked = self.check(expression, environment);
        let stored = checked.clone().map(|()| expression.to_owned());
        self.variables.push((name.to_owned(), stored));
        checked
    }

    fn compile(&mut self, expression: &str, environment: Environment) -> Result<Compiled, String> {
        self.check(expression, environment)?;
        self.texts.push(expression.to_owned());
        let result_type = match expression {
            "null" => "null_type",
            "true" | "false" => "bool",
            _ if expression.contains("==") || expression.contains("!=") => "bool",
            _ if expression.starts_with('\'') => "string",
            _ => "",
        };
        Ok(Compiled { index: self.texts.len() - 1, result_type: result_type.to_owned() })
    }

    fn evaluate(&self, input: Input<'_>, indexes: &[usize], budget: &mut u64) -> Result<Results, OutOfBudget> {
        let evaluation = FakeEvaluation { set: self, input, known: RefCell::default(), cost: Cell::default() };
        let mut out = Results::new();
        for index in indexes {
            let text = self.texts.get(*index).map_or("", String::as_str);
            let value = evaluation.value(text);
            *budget = budget.checked_sub(evaluation.cost.take()).ok_or(OutOfBudget)?;
            out.push(value.map(|value| match value {
                Value::Bool(flag) => Outcome::Bool(flag),
                Value::String(text) => Outcome::Text(text),
                Value::Null => Outcome::Null,
                _ => Outcome::Other { type_name: "map".to_owned() },
            }));
        }
        Ok(out)
    }
}

/// Allows one verb on everything.
#[derive(Clone, Copy, Debug)]
pub struct OneVerb(pub &'static str);

impl Authorizer for OneVerb {
    fn authorize(&self, request: &Request) -> Decision {
        Decision { allowed: request.verb == self.0, ..Decision::default() }
    }
}

impl Authorize for OneVerb {
    fn request_resource(&self) -> Resource {
        Resource::default()
    }
}

struct FakeEvaluation<'a> {
    set: &'a FakeExpressions,
    input: Input<'a>,
    /// Variables that were evaluated.
    known: RefCell<HashMap<String, Result<Value, String>>>,
    cost: Cell<u64>,
}

impl FakeEvaluation<'_> {
    fn value(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        let own: u64 = text.strip_prefix("cost ").and_then(|cost| cost.parse().ok()).unwrap_or_default();
        self.cost.set(self.cost.get() + own);
        if let Some((left, right)) = text.split_once(" == ") {
            return Ok(Value::Bool(self.value(left)? == self.value(right)?));
        }
        if let Some((left, right)) = text.split_once(" != ") {
            return Ok(Value::Bool(self.value(left)? != self.value(right)?));
        }
        if let Some(why) = text.strip_prefix("error ") {
            return Err(why.to_owned());
        }
        if let Some(verb) = text.strip_prefix("allowed ") {
            return self.allowed(verb);
        }
        match text {
            "null" => Ok(Value::Null),
            "true" | "false" => Ok(Value::Bool(text == "true")),
            _ if text.starts_with("cost ") => Ok(Value::Bool(true)),
            _ if text.starts_with('\'') => Ok(text.trim_matches('\'').into()),
            _ => self.path(text),
        }
    }

    fn allowed(&self, verb: &str) -> Result<Value, String> {
        let authorizer = self.input.authorizer.ok_or("no such attribute(s): authorizer")?;
        let pods = Resource { resource: "pods".to_owned(), ..Resource::default() };
        let request = Request { subject: Subject::Requester, verb: verb.to_owned(), target: Target::Resource(pods) };
        Ok(Value::Bool(authorizer.authorize(&request).allowed))
    }

    fn path(&self, text: &str) -> Result<Value, String> {
        let (root, rest) = text.split_once('.').unwrap_or((text, ""));
        let value = match root {
            "object" => self.input.object,
            "oldObject" => self.input.old_object,
            "request" => self.input.request,
            "params" => self.input.params,
            "namespaceObject" => self.input.namespace,
            "variables" => return self.variable(rest),
            _ => return Err(format!("no such attribute(s): {root}")),
        };
        if rest.is_empty() {
            return Ok(value.clone());
        }
        match value.at(rest) {
            Value::Null => Err(format!("no such key: {}", rest.rsplit('.').next().unwrap_or_default())),
            value => Ok(value.clone()),
        }
    }

    fn variable(&self, name: &str) -> Result<Value, String> {
        if let Some(known) = self.known.borrow().get(name) {
            return known.clone();
        }
        let text = self.set.variables.iter().find(|(known, _)| known == name).map(|(_, text)| text);
        let value = match text {
            Some(Ok(text)) => self.value(text),
            _ => Err(format!("composited variable \"{name}\" fails to compile")),
        };
        self.known.borrow_mut().insert(name.to_owned(), value.clone());
        value
    }
}
