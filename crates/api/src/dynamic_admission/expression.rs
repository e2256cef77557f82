//! Expressions (CEL) as admission uses them: what they may name, what they must give, what comes of them.
//!
//! The language itself is behind [`Compiler`]: [`language`](super::language) is CEL, and tests use
//! [`fake`](super::fake). Messages are put together here, so an implementation only supplies the text of compilation issues,
//! the name of the result type, and the error of an evaluation.

pub use cel::{Authorizer, Decision, Request, Resource, Subject, Target};
use serde_json::Value;

/// What may be spent on the validations of one binding and parameter.
pub const BUDGET: u64 = 10_000_000;
/// What may be spent on the match conditions of one policy or webhook.
pub const CONDITIONS_BUDGET: u64 = 2_500_000;

/// Which optional names an expression may use. `object`, `oldObject`, `request` and `namespaceObject` are always declared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Environment {
    /// `params`, of any type.
    pub params: bool,
    /// `authorizer` and `authorizer.requestResource`.
    pub authorizer: bool,
    /// The expression was accepted earlier, maybe by a newer server: functions of later versions are known too.
    pub stored: bool,
}

/// What an expression must give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gives {
    /// Anything.
    Any,
    /// `bool`.
    Bool,
    /// `string`.
    Text,
    /// `string` or null.
    TextOrNull,
}

/// An expression that was compiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// Which of its [`Expressions`] it is.
    pub index: usize,
    /// The type of its result as CEL writes it (`bool`, `dyn`, `list(string)`, `null_type`); empty where it is not known.
    pub result_type: String,
}

/// Compiles expressions.
pub trait Compiler: Send + Sync {
    /// An empty set of expressions. With `composed`, `variables` is declared in it and has a field for each expression that
    /// is given to [`Expressions::declare`].
    fn expressions(&self, composed: bool) -> Box<dyn Expressions>;
}

/// Expressions that are evaluated on the same input and may share variables.
pub trait Expressions: Send + Sync {
    /// Compiles a variable, which expressions compiled after it can name. One that does not compile is declared with the
    /// type `dyn`, and evaluating it fails.
    ///
    /// # Errors
    /// What is wrong with it: `compilation failed: ERROR: <input>:1:1: …`.
    fn declare(&mut self, name: &str, expression: &str, environment: Environment) -> Result<(), String>;

    /// Compiles an expression.
    ///
    /// # Errors
    /// What is wrong with it: `compilation failed: ERROR: <input>:1:1: …`.
    fn compile(&mut self, expression: &str, environment: Environment) -> Result<Compiled, String>;

    /// Evaluates expressions, by their [`Compiled::index`], on one input, and charges their cost to the budget. Variables
    /// are evaluated lazily and once. A result is a value, or CEL's error message (`no such key: x`).
    ///
    /// # Errors
    /// When the budget is spent; expressions after that are not evaluated.
    fn evaluate(&self, input: Input<'_>, indexes: &[usize], budget: &mut u64) -> Result<Results, OutOfBudget>;
}

/// The results of expressions.
pub type Results = Vec<Result<Outcome, String>>;

/// More was spent than may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfBudget;

impl std::fmt::Display for OutOfBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("validation failed due to running out of cost budget, no further validation rules will be run")
    }
}

/// The values of names.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// `object`; null on DELETE.
    pub object: &'a Value,
    /// `oldObject`; null on CREATE.
    pub old_object: &'a Value,
    /// `request`: an AdmissionRequest without uid and objects.
    pub request: &'a Value,
    /// `namespaceObject`; null for requests about objects without namespace, and in match conditions.
    pub namespace: &'a Value,
    /// `params`; null when the binding has none.
    pub params: &'a Value,
    /// Answers `authorizer`, which has no value without it.
    pub authorizer: Option<&'a dyn Authorize>,
}

/// A result, as far as admission uses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A boolean.
    Bool(bool),
    /// A string.
    Text(String),
    /// Null.
    Null,
    /// A value of another type.
    Other {
        /// The type as CEL writes it.
        type_name: String,
    },
}

impl Outcome {
    /// The type as CEL writes it.
    #[must_use]
    pub fn type_name(&self) -> &str {
        match self {
            Self::Bool(_) => "bool",
            Self::Text(_) => "string",
            Self::Null => "null_type",
            Self::Other { type_name } => type_name,
        }
    }
}

/// Answers whether something is allowed, for expressions that ask.
pub trait Authorize: Authorizer {
    /// What the request itself is about: the value of `authorizer.requestResource`.
    fn request_resource(&self) -> Resource;
}

impl Gives {
    const fn types(self) -> &'static [&'static str] {
        match self {
            Self::Any => &[],
            Self::Bool => &["bool"],
            Self::Text => &["string"],
            Self::TextOrNull => &["string", "null_type"],
        }
    }
}

/// Compiles an expression that must give a value of some type.
///
/// # Errors
/// What is wrong with it, as field errors say it.
pub fn compile(
    expressions: &mut dyn Expressions,
    text: &str,
    environment: Environment,
    gives: Gives,
) -> Result<usize, String> {
    let compiled = expressions.compile(text, environment)?;
    let (types, result_type) = (gives.types(), compiled.result_type.as_str());
    if types.is_empty() || result_type.is_empty() || types.contains(&result_type) {
        return Ok(compiled.index);
    }
    let wanted = if let [one] = types { (*one).to_owned() } else { format!("one of [{}]", types.join(" ")) };
    Err(format!("must evaluate to {wanted} but got {result_type}"))
}
