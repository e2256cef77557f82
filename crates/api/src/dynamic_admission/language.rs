//! The expressions of admission in CEL: which names and types they may use, and how variables are evaluated.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use cel::{Check, ObjectTable, ObjectTypes, Program, Type, Value, Variables};

use super::expression::{BUDGET, Compiled, Compiler, Environment, Expressions, Input, OutOfBudget, Outcome, Results};
use super::type_check::SchemaTypes;

/// The type of `variables`.
const VARIABLES: &str = "kubernetes.variables";

/// The Common Expression Language with the libraries of Kubernetes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cel;

impl Compiler for Cel {
    fn expressions(&self, composed: bool) -> Box<dyn Expressions> {
        Box::new(Set { composed, ..Set::typed(Type::Dyn, Type::Dyn) })
    }
}

/// Expressions that share variables.
pub(super) struct Set {
    composed: bool,
    /// The type of `object` and `oldObject`.
    object: Type,
    params: Type,
    types: Types,
    variables: Vec<Variable>,
    programs: Vec<Program>,
}

struct Variable {
    name: String,
    program: Result<Program, String>,
}

/// Types of names, and of kinds.
#[derive(Clone, Debug)]
struct Types(ObjectTable);

impl ObjectTypes for Types {
    fn contains(&self, name: &str) -> bool {
        self.0.contains(name) || SchemaTypes.contains(name)
    }

    fn field(&self, name: &str, field: &str) -> Option<Type> {
        self.0.field(name, field).or_else(|| SchemaTypes.field(name, field))
    }
}

impl Set {
    /// An empty set with variables, where objects and parameters have these types.
    pub(super) fn typed(object: Type, params: Type) -> Self {
        let mut types = TYPES.clone();
        types.add(VARIABLES, []);
        Self { composed: true, object, params, types: Types(types), variables: Vec::new(), programs: Vec::new() }
    }

    /// Checks an expression.
    ///
    /// # Errors
    /// The issues, as CEL writes them (`ERROR: <input>:1:1: …`).
    pub(super) fn check(&self, expression: &str, environment: Environment) -> Result<(), String> {
        self.environment(environment).compile(expression).map(drop).map_err(|issues| issues.to_string())
    }

    fn environment(&self, environment: Environment) -> cel::Environment {
        let compatibility = match environment.stored {
            true => cel::Compatibility::Stored,
            false => cel::Compatibility::New,
        };
        let mut out = cel::Environment::new(compatibility)
            .types(Arc::new(self.types.clone()))
            .variable("object", self.object.clone())
            .variable("oldObject", self.object.clone())
            .variable("namespaceObject", Type::object("kubernetes.Namespace"))
            .variable("request", Type::object("kubernetes.AdmissionRequest"));
        if environment.params {
            out = out.variable("params", self.params.clone());
        }
        if environment.authorizer {
            let resource = Type::object(cel::RESOURCE_CHECK);
            out = out.variable("authorizer", Type::object(cel::AUTHORIZER));
            out = out.variable("authorizer.requestResource", resource);
        }
        match self.composed {
            true => out.variable("variables", Type::object(VARIABLES)),
            false => out,
        }
    }

    fn program(&self, expression: &str, environment: Environment) -> Result<(Program, Type), String> {
        let compiled = self.environment(environment).compile(expression);
        let compiled = compiled.map_err(|issues| format!("compilation failed: {issues}"))?;
        let program = compiled.program().map_err(|why| format!("program instantiation failed: {why}"))?;
        Ok((program, compiled.result_type().clone()))
    }
}

impl Expressions for Set {
    fn declare(&mut self, name: &str, expression: &str, environment: Environment) -> Result<(), String> {
        let (program, kind) = match self.program(expression, environment) {
            Ok((program, kind)) => (Ok(program), declared(&kind)),
            Err(why) => (Err(why), Type::Dyn),
        };
        let checked = program.as_ref().map(|_| ()).map_err(Clone::clone);
        self.types.0.add(VARIABLES, [(name, kind)]);
        self.variables.push(Variable { name: name.to_owned(), program });
        checked
    }

    fn compile(&mut self, expression: &str, environment: Environment) -> Result<Compiled, String> {
        let (program, kind) = self.program(expression, environment)?;
        self.programs.push(program);
        Ok(Compiled { index: self.programs.len() - 1, result_type: kind.to_string() })
    }

    fn evaluate(&self, input: Input<'_>, indexes: &[usize], budget: &mut u64) -> Result<Results, OutOfBudget> {
        let named = names(&input);
        let lazy =
            Lazy { set: self, values: self.variables.iter().map(|_| OnceLock::new()).collect(), missing: none() };
        let named = if self.composed { named.with("variables", Value::Object(&lazy)) } else { named };
        let mut evaluation = Evaluation { lazy: &lazy, named, work: BUDGET.saturating_mul(REPETITIONS) };
        let programs = indexes.iter().filter_map(|index| self.programs.get(*index));
        programs.map(|program| evaluation.outcome(program, budget)).collect()
    }
}

/// The type that a variable is declared with: Kubernetes keeps those of plain values, lists and maps.
fn declared(kind: &Type) -> Type {
    match kind {
        Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => kind.clone(),
        Type::List(element) => Type::list(declared(element)),
        Type::Map(key, value) => Type::map(declared(key), declared(value)),
        _ => Type::Dyn,
    }
}

fn names<'a>(input: &Input<'a>) -> Variables<'a> {
    let out = Variables::new()
        .with("object", Value::from_json(input.object))
        .with("oldObject", Value::from_json(input.old_object))
        .with("request", Value::from_json(input.request))
        .with("namespaceObject", Value::from_json(input.namespace))
        .with("params", Value::from_json(input.params));
    let Some(authorizer) = input.authorizer else { return out };
    let resource = Check::request_resource(authorizer, authorizer.request_resource());
    out.with("authorizer", Value::Check(Check::authorizer(authorizer)))
        .with("authorizer.requestResource", Value::Check(resource))
}

// === variables ===

/// How many times the budget may be spent on evaluating expressions again, after variables that they name became known.
const REPETITIONS: u64 = 10;

const NONE: usize = usize::MAX;

const fn none() -> AtomicUsize {
    AtomicUsize::new(NONE)
}

/// The value of `variables`. An expression that names a variable without a value fails; the variable is noted, and the
/// expression is evaluated again when the variable has a value. So a long chain of variables needs no deep stack.
#[derive(Debug)]
struct Lazy<'a> {
    set: &'a Set,
    values: Vec<OnceLock<Result<Value<'a>, String>>>,
    /// The variable that an evaluation lacked, or [`NONE`].
    missing: AtomicUsize,
}

impl std::fmt::Debug for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Set").field("composed", &self.composed).finish_non_exhaustive()
    }
}

impl cel::Object for Lazy<'_> {
    fn type_name(&self) -> &str {
        VARIABLES
    }

    fn get(&self, field: &str) -> Option<Result<Value<'_>, String>> {
        let index = self.set.variables.iter().position(|variable| variable.name == field)?;
        Some(self.values.get(index)?.get().cloned().unwrap_or_else(|| {
            self.missing.store(index, Ordering::Relaxed);
            Err(format!("variable {field:?} has no value yet"))
        }))
    }
}

struct Evaluation<'a> {
    lazy: &'a Lazy<'a>,
    named: Variables<'a>,
    /// What may be spent with all repetitions.
    work: u64,
}

impl<'a> Evaluation<'a> {
    fn outcome(&mut self, program: &'a Program, budget: &mut u64) -> Result<Result<Outcome, String>, OutOfBudget> {
        // Variables that are being evaluated, each for the one before it.
        let mut open: Vec<usize> = Vec::new();
        loop {
            let current = match open.last() {
                Some(index) => self.lazy.set.variables.get(*index).map(|variable| &variable.program),
                None => None,
            };
            let program = match current {
                Some(Ok(variable)) => variable,
                Some(Err(why)) => {
                    self.set(&mut open, |name| Err(format!("composited variable {name:?} fails to compile: {why}")));
                    continue;
                }
                None => program,
            };
            let done = program.evaluate(&self.named);
            self.work = self.work.checked_sub(done.cost).ok_or(OutOfBudget)?;
            match self.lazy.missing.swap(NONE, Ordering::Relaxed) {
                NONE => {}
                missing if open.contains(&missing) => {
                    self.set(&mut open, |name| Err(format!("composited variable {name:?} refers to itself")));
                    continue;
                }
                missing => {
                    open.push(missing);
                    continue;
                }
            }
            *budget = budget.checked_sub(done.cost).ok_or(OutOfBudget)?;
            let result = done.result.map_err(|why| why.to_string());
            if open.is_empty() {
                return Ok(result.map(|value| outcome(&value)));
            }
            self.set(&mut open, |name| {
                result.map_err(|why| format!("composited variable {name:?} fails to evaluate: {why}"))
            });
        }
    }

    /// Sets the variable that is being evaluated.
    fn set(&self, open: &mut Vec<usize>, value: impl FnOnce(&str) -> Result<Value<'a>, String>) {
        let Some(index) = open.pop() else { return };
        if let (Some(variable), Some(slot)) = (self.lazy.set.variables.get(index), self.lazy.values.get(index)) {
            // A variable is evaluated once: it has no value yet.
            let _ = slot.set(value(&variable.name));
        }
    }
}

fn outcome(value: &Value<'_>) -> Outcome {
    match value {
        Value::Bool(flag) => Outcome::Bool(*flag),
        Value::String(_) => Outcome::Text(value.as_str().unwrap_or_default().to_owned()),
        Value::Null => Outcome::Null,
        other => Outcome::Other { type_name: other.type_name().to_owned() },
    }
}

// === types of names ===

static TYPES: LazyLock<ObjectTable> = LazyLock::new(|| {
    use Type::{Bool, Dyn, Int, String, Timestamp};
    let (strings, object) = (|| Type::list(String), Type::object);
    let labels = || Type::map(String, String);
    let mut all = ObjectTable::default();
    let (kind, resource) = ("kubernetes.GroupVersionKind", "kubernetes.GroupVersionResource");
    all.add(kind, ["group", "version", "kind"].map(|field| (field, String)));
    all.add(resource, ["group", "version", "resource"].map(|field| (field, String)));
    let user = "kubernetes.UserInfo";
    let extra = Type::map(String, strings());
    all.add(user, [("username", String), ("uid", String), ("groups", strings()), ("extra", extra)]);
    let request = "kubernetes.AdmissionRequest";
    all.add(request, ["subResource", "requestSubResource", "name", "__namespace__", "operation"].map(|f| (f, String)));
    all.add(request, [("kind", object(kind)), ("requestKind", object(kind))]);
    all.add(request, [("resource", object(resource)), ("requestResource", object(resource))]);
    all.add(request, [("userInfo", object(user)), ("dryRun", Bool), ("options", Dyn)]);
    let (namespace, meta) = ("kubernetes.Namespace", "kubernetes.NamespaceMetadata");
    let (spec, status, condition) =
        ("kubernetes.NamespaceSpec", "kubernetes.NamespaceStatus", "kubernetes.NamespaceCondition");
    all.add(namespace, [("metadata", object(meta)), ("spec", object(spec)), ("status", object(status))]);
    all.add(meta, ["name", "generateName", "__namespace__", "UID", "resourceVersion"].map(|field| (field, String)));
    all.add(meta, [("labels", labels()), ("annotations", labels()), ("finalizers", strings())]);
    all.add(meta, [("creationTimestamp", Timestamp), ("deletionTimestamp", Timestamp)]);
    all.add(meta, [("deletionGracePeriodSeconds", Int), ("generation", Int)]);
    all.add(spec, [("finalizers", strings())]);
    all.add(status, [("conditions", Type::list(object(condition))), ("phase", String)]);
    all.add(condition, ["status", "type", "message", "reason"].map(|field| (field, String)));
    all.add(condition, [("lastTransitionTime", Timestamp)]);
    all
});

#[cfg(test)]
mod tests;
