//! Expressions (CEL) as admission uses them: what they may name, what they must give, what comes of them.
//!
//! This crate does not contain the language. A [`Compiler`] is installed once per process with [`install`]; until then
//! [`AcceptAll`] takes every expression and can evaluate none. Messages are put together here, so an implementation
//! only supplies the text of compilation issues, the name of the result type, and the error of an evaluation.

use std::fmt::Debug;
use std::sync::OnceLock;

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
    /// The issues, as CEL writes them (`ERROR: <input>:1:1: …`).
    fn declare(&mut self, name: &str, expression: &str, environment: Environment) -> Result<(), String>;

    /// Compiles an expression.
    ///
    /// # Errors
    /// The issues, as CEL writes them (`ERROR: <input>:1:1: …`).
    fn compile(&mut self, expression: &str, environment: Environment) -> Result<Compiled, String>;

    /// Begins an evaluation. Variables are evaluated when they are first named, and once.
    fn begin<'a>(&'a self, input: Input<'a>) -> Box<dyn Evaluation + 'a>;
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

/// An evaluation on one input.
pub trait Evaluation {
    /// Evaluates an expression of the set, by its [`Compiled::index`].
    fn evaluate(&mut self, index: usize) -> Evaluated;
}

/// What came of an expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evaluated {
    /// The result, or what went wrong in CEL's words (`no such key: x`).
    pub result: Result<Outcome, String>,
    /// What it cost, with the variables that were evaluated for it.
    pub cost: u64,
}

/// A result, as far as admission looks at it.
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
pub trait Authorize: Debug + Sync {
    /// Decides about a question.
    fn decide(&self, question: &Question) -> Decision;

    /// What the request itself is about: the value of `authorizer.requestResource`.
    fn request_resource(&self) -> Asset;
}

/// A question to the authorizer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Namespace and name of the ServiceAccount that is asked about; none: the user of the request.
    pub service_account: Option<(String, String)>,
    /// What is done.
    pub verb: String,
    /// With what.
    pub target: Target,
}

/// What a question is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A URL path that is no resource.
    Path(String),
    /// A resource.
    Resource(Asset),
}

/// A resource in a question to the authorizer; empty fields do not restrict it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asset {
    /// The API group, empty for core.
    pub group: String,
    /// The plural name.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// A field selector.
    pub field_selector: String,
    /// A label selector.
    pub label_selector: String,
}

/// An answer of the authorizer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What went wrong while deciding.
    pub error: Option<String>,
}

// === compiling ===

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
    let compiled = expressions.compile(text, environment).map_err(|issues| failed(&issues))?;
    let (types, result_type) = (gives.types(), compiled.result_type.as_str());
    if types.is_empty() || result_type.is_empty() || types.contains(&result_type) {
        return Ok(compiled.index);
    }
    let wanted = if let [one] = types { (*one).to_owned() } else { format!("one of [{}]", types.join(" ")) };
    Err(format!("must evaluate to {wanted} but got {result_type}"))
}

/// Declares a variable.
///
/// # Errors
/// What is wrong with its expression, as field errors say it.
pub fn declare(
    expressions: &mut dyn Expressions,
    name: &str,
    text: &str,
    environment: Environment,
) -> Result<(), String> {
    expressions.declare(name, text, environment).map_err(|issues| failed(&issues))
}

fn failed(issues: &str) -> String {
    format!("compilation failed: {issues}")
}

// === the compiler of the process ===

static INSTALLED: OnceLock<Box<dyn Compiler>> = OnceLock::new();

/// Installs the compiler that the kinds validate with. The rules of kinds are static, so it is one per process; a second
/// call changes nothing and returns false.
pub fn install(compiler: Box<dyn Compiler>) -> bool {
    INSTALLED.set(compiler).is_ok()
}

/// The compiler that was installed, or [`AcceptAll`].
#[must_use]
pub fn installed() -> &'static dyn Compiler {
    INSTALLED.get().map_or(&AcceptAll, |compiler| compiler.as_ref())
}

/// Takes every expression for one of the right type; evaluating one fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptAll;

impl Compiler for AcceptAll {
    fn expressions(&self, _composed: bool) -> Box<dyn Expressions> {
        Box::new(Self)
    }
}

impl Expressions for AcceptAll {
    fn declare(&mut self, _name: &str, _expression: &str, _environment: Environment) -> Result<(), String> {
        Ok(())
    }

    fn compile(&mut self, _expression: &str, _environment: Environment) -> Result<Compiled, String> {
        Ok(Compiled { index: 0, result_type: String::new() })
    }

    fn begin<'a>(&'a self, _input: Input<'a>) -> Box<dyn Evaluation + 'a> {
        Box::new(Self)
    }
}

impl Evaluation for AcceptAll {
    fn evaluate(&mut self, _index: usize) -> Evaluated {
        Evaluated { result: Err("expressions are not supported".to_owned()), cost: 0 }
    }
}
