//! A checked expression prepared for evaluation.
//!
//! Names are resolved, constant parts are computed and constant patterns are compiled. Chains of selections and indexes
//! become one node, because Kubernetes' cost counts them so.

mod attributes;
mod build;
mod cost;
mod eval;
mod fold;

use std::sync::Arc;

use ::regex::bytes::Regex;

use crate::budget::{Budget, EvalError, PER_CALL_LIMIT};
use crate::check::Checked;
use crate::declare::Function;
use crate::value::{Map, Value};

/// A value that does not depend on input.
type Constant = Value<'static>;

/// A part of a program.
#[derive(Debug)]
pub(crate) enum Node {
    Const(Constant),
    /// A variable or another value, with selections and indexes.
    Attribute(Box<Attribute>),
    /// `has(…)`; the last qualifier is the tested one.
    Test(Box<Attribute>),
    And(Box<[Self; 2]>),
    Or(Box<[Self; 2]>),
    Equal(Box<[Self; 2]>),
    NotEqual(Box<[Self; 2]>),
    NotStrictlyFalse(Box<Self>),
    Call(Box<Call>),
    /// A list, with a mark for each element that is written with `?`.
    List(Vec<(Self, bool)>),
    Map(Vec<(Self, Self, bool)>),
    /// A message, of a type that cannot be constructed.
    Struct(String, Vec<Self>),
    Fold(Box<Fold>),
    /// `a.or(b)`.
    OrOptional(Box<[Self; 2]>),
    /// `a.orValue(b)`.
    OrValue(Box<[Self; 2]>),
    /// Whether a value is in a constant list, whose elements are keys here.
    InSet(Box<Self>, Map<'static>),
    /// Adds the elements of a list to the accumulator in this slot.
    Append(usize, Box<Self>),
    /// Inserts entries into the accumulator in this slot: a key and a value, or a map.
    Insert(usize, Vec<Self>),
}

/// A value with selections and indexes.
#[derive(Debug)]
pub(crate) struct Attribute {
    root: Root,
    qualifiers: Vec<Qualifier>,
}

#[derive(Debug)]
enum Root {
    Variable(String),
    /// A variable of a comprehension, by its slot.
    Local(usize),
    Operand(Node),
    Conditional(Node, Box<[Attribute; 2]>),
}

impl Root {
    fn is_conditional(&self) -> bool {
        matches!(self, Self::Conditional(..))
    }
}

/// A selection or an index.
#[derive(Debug)]
struct Qualifier {
    key: Key,
    optional: bool,
    /// Only whether it is there matters.
    test: bool,
}

#[derive(Debug)]
enum Key {
    Const(Constant),
    Attribute(Attribute),
    Node(Node),
}

/// A call of a function.
#[derive(Debug)]
pub(crate) struct Call {
    function: &'static Function,
    how: How,
    args: Vec<Node>,
    /// Arguments behind one that fails are not evaluated.
    stops_early: bool,
}

/// What is called.
#[derive(Debug)]
enum How {
    /// The only overload that fits.
    Overload(usize),
    /// The overload that fits the values.
    Dispatch,
    /// A function with one code for all overloads; the id if only one overload fits.
    Singleton(&'static str),
    /// `matches`, `find` or `findAll` with a constant pattern, and the id of the overload.
    Pattern(Arc<Regex>, &'static str),
}

/// A comprehension. Each of its variables has a slot of its own.
#[derive(Debug)]
pub(crate) struct Fold {
    range: Box<Node>,
    accumulator: usize,
    variable: usize,
    second: Option<usize>,
    init: Box<Node>,
    condition: Box<Node>,
    step: Box<Node>,
    result: Box<Node>,
}

/// A program: evaluated any number of times, with different variables.
#[derive(Debug)]
pub struct Program {
    root: Node,
    slots: usize,
}

/// Values of variables.
#[derive(Clone, Debug, Default)]
pub struct Variables<'a> {
    values: Vec<(&'a str, Value<'a>)>,
}

impl<'a> Variables<'a> {
    /// No variables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a variable.
    #[must_use]
    pub fn with(mut self, name: &'a str, value: Value<'a>) -> Self {
        self.values.retain(|(known, _)| *known != name);
        self.values.push((name, value));
        self
    }

    fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// The result of an evaluation.
#[derive(Debug)]
pub struct Evaluation<'a> {
    /// The value, or why there is none.
    pub result: Result<Value<'a>, EvalError>,
    /// The cost, also of an evaluation that failed.
    pub cost: u64,
}

impl Program {
    pub(crate) fn new(checked: &Checked) -> Result<Self, String> {
        build::build(checked)
    }

    /// Evaluates the program with Kubernetes' limit for one call.
    #[must_use]
    pub fn evaluate<'a>(&self, variables: &Variables<'a>) -> Evaluation<'a> {
        self.evaluate_within(variables, PER_CALL_LIMIT)
    }

    /// Evaluates the program with a limit for its cost.
    #[must_use]
    pub fn evaluate_within<'a>(&self, variables: &Variables<'a>, limit: u64) -> Evaluation<'a> {
        let mut budget = Budget::new(limit);
        let result = eval::evaluate(&self.root, self.slots, variables, &mut budget);
        Evaluation { result: result.map_err(EvalError::from), cost: budget.cost() }
    }
}
