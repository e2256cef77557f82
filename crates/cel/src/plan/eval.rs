//! Evaluation.
//!
//! An error is the value of the part that fails; `&&`, `||` and `?:` may do without that part. Costs are added where
//! cel-go adds them, also for parts that fail.

use super::{Call, How, Node, Variables, cost};
use crate::budget::{Budget, Stop};
use crate::declare::{Function, Overload};
use crate::library::regex;
use crate::value::map::Entries;
use crate::value::{List, Map, Value, compare};

pub(super) type Outcome<'a> = Result<Value<'a>, Stop>;

/// Evaluates a program. `slots` is the number of variables of comprehensions in it.
pub(super) fn evaluate<'a>(root: &Node, slots: usize, variables: &Variables<'a>, budget: &mut Budget) -> Outcome<'a> {
    let locals = std::iter::repeat_with(|| Local::Unset).take(slots).collect();
    Evaluator { variables, locals, budget }.eval(root)
}

/// A variable of a comprehension.
pub(super) enum Local<'p, 'a> {
    Unset,
    /// An accumulator that has not been read yet.
    Lazy(&'p Node),
    Set(Outcome<'a>),
}

pub(super) struct Evaluator<'p, 'v, 'a> {
    pub(super) variables: &'v Variables<'a>,
    pub(super) locals: Vec<Local<'p, 'a>>,
    pub(super) budget: &'v mut Budget,
}

impl<'p, 'a> Evaluator<'p, '_, 'a> {
    pub(super) fn eval(&mut self, node: &'p Node) -> Outcome<'a> {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Attribute(attribute) => self.attribute(attribute),
            Node::Test(attribute) => self.test(attribute),
            Node::And(terms) => self.logical(terms, false),
            Node::Or(terms) => self.logical(terms, true),
            Node::Equal(args) => self.equal(args, "_==_"),
            Node::NotEqual(args) => self.equal(args, "_!=_"),
            Node::NotStrictlyFalse(arg) => self.not_strictly_false(arg),
            Node::Call(call) => self.call(call),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Struct(name, fields) => self.construct(name, fields),
            Node::Fold(fold) => self.fold(fold),
            Node::OrOptional(args) => self.or_optional(args, true),
            Node::OrValue(args) => self.or_optional(args, false),
            Node::InSet(element, set) => {
                let element = self.eval(element)?;
                Ok(Value::Bool(set.find(&element).is_some()))
            }
            Node::Append(slot, list) => self.append(*slot, list),
            Node::Insert(slot, args) => self.insert(*slot, args),
        }
    }

    /// `&&` and `||`: the operand that decides wins over an error.
    fn logical(&mut self, terms: &'p [Node; 2], decides: bool) -> Outcome<'a> {
        let mut failed = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or_else(|| Some(Stop::no_such_overload())),
                Err(Stop::Error(why)) => failed = failed.or(Some(Stop::Error(why))),
                Err(stop) => return Err(stop),
            }
        }
        failed.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn equal(&mut self, args: &'p [Node; 2], function: &'static str) -> Outcome<'a> {
        let [left, right] = args;
        let (left, right) = (absorb(self.eval(left))?, absorb(self.eval(right))?);
        let outcome = match (&left, &right) {
            (Err(why), _) | (_, Err(why)) => Err(Stop::Error(why.clone())),
            (Ok(left), Ok(right)) if function == "_==_" => compare::equal(self.budget, left, right).map(Value::Bool),
            (Ok(left), Ok(right)) => compare::is_equal(self.budget, left, right).map(|equal| Value::Bool(!equal)),
        };
        let id = if function == "_==_" { "equals" } else { "not_equals" };
        self.charge_call(function, id, &[left.ok(), right.ok()], outcome.as_ref().ok())?;
        outcome
    }

    fn not_strictly_false(&mut self, arg: &'p Node) -> Outcome<'a> {
        let value = absorb(self.eval(arg))?;
        self.budget.charge(1)?;
        Ok(match value {
            Ok(Value::Bool(value)) => Value::Bool(value),
            _ => Value::Bool(true),
        })
    }

    fn call(&mut self, call: &'p Call) -> Outcome<'a> {
        let mut args: Vec<Option<Value<'a>>> = Vec::with_capacity(call.args.len());
        let mut failed = None;
        for arg in &call.args {
            match self.eval(arg) {
                Ok(value) => args.push(Some(value)),
                Err(Stop::Error(why)) => {
                    failed = failed.or(Some(why));
                    args.push(None);
                    if call.stops_early {
                        break;
                    }
                }
                Err(stop) => return Err(stop),
            }
        }
        let complete = args.len() == call.args.len();
        let outcome = match failed {
            Some(why) => Err(Stop::Error(why)),
            None => {
                let values: Vec<Value<'a>> = args.iter().flatten().cloned().collect();
                self.invoke(call, &values)
            }
        };
        if matches!(outcome, Err(Stop::Cancelled | Stop::Fatal(_))) {
            return outcome;
        }
        if complete {
            let id = match &call.how {
                How::Overload(index) => call.function.overloads.get(*index).map_or("", |overload| overload.id),
                How::Dispatch => "",
                How::Singleton(id) | How::Pattern(_, id) => id,
            };
            self.charge_call(call.function.name, id, &args, outcome.as_ref().ok())?;
        }
        outcome
    }

    fn charge_call(
        &mut self,
        function: &str,
        id: &str,
        args: &[Option<Value<'a>>],
        result: Option<&Value<'a>>,
    ) -> Result<(), Stop> {
        let cost = cost::call(self.budget, function, id, args, result)?;
        self.budget.charge(cost)
    }

    fn invoke(&mut self, call: &Call, args: &[Value<'a>]) -> Outcome<'a> {
        let function = call.function;
        match &call.how {
            How::Overload(index) => match function.overloads.get(*index) {
                Some(overload) if !function.guarded || fits(overload, args) => self.run(overload, args),
                _ => Err(no_such_overload(function, args)),
            },
            How::Dispatch => {
                let found = function.overloads.iter().find(|overload| {
                    overload.code.is_some()
                        && overload.args.len() == args.len()
                        && (!function.guarded || fits(overload, args))
                });
                match found {
                    Some(overload) => self.run(overload, args),
                    None => Err(no_such_overload(function, args)),
                }
            }
            How::Singleton(_) => match (&function.singleton, args.first()) {
                (Some(singleton), Some(first)) if (singleton.accepts)(first) => (singleton.code)(self.budget, args),
                (_, Some(Value::String(_) | Value::Timestamp(_) | Value::Duration(_))) => Err(Stop::no_such_overload()),
                _ => Err(Stop::Error(format!("no such overload: {}", function.name))),
            },
            How::Pattern(regex, _) => regex::with_pattern(self.budget, function.name, regex, args),
        }
    }

    fn run(&mut self, overload: &Overload, args: &[Value<'a>]) -> Outcome<'a> {
        match overload.code {
            Some(code) => code(self.budget, args),
            None => Err(Stop::no_such_overload()),
        }
    }

    fn list(&mut self, elements: &'p [(Node, bool)]) -> Outcome<'a> {
        let outcome = self.list_values(elements);
        self.finish(outcome, cost::LIST)
    }

    fn list_values(&mut self, elements: &'p [(Node, bool)]) -> Outcome<'a> {
        let mut values = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            let value = self.eval(element)?;
            match (optional, value) {
                (false, value) => values.push(value),
                (true, Value::Optional(value)) => values.extend(value.map(|value| (*value).clone())),
                (true, other) => {
                    let message = format!("cannot initialize optional list element from non-optional value {other}");
                    return Err(message.into());
                }
            }
        }
        Ok(Value::List(List::from_values(values)))
    }

    fn map(&mut self, entries: &'p [(Node, Node, bool)]) -> Outcome<'a> {
        let outcome = self.map_values(entries);
        self.finish(outcome, cost::MAP)
    }

    fn map_values(&mut self, entries: &'p [(Node, Node, bool)]) -> Outcome<'a> {
        let mut built = Entries::default();
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let value = self.eval(value)?;
            match (optional, value) {
                (false, value) => built.insert(key, value),
                (true, Value::Optional(Some(value))) => built.insert(key, (*value).clone()),
                (true, Value::Optional(None)) => built.remove(&key),
                (true, other) => {
                    let message = format!("cannot initialize optional entry '{key}' from non-optional value {other}");
                    return Err(message.into());
                }
            }
        }
        Ok(Value::Map(Map::from_entries(built)))
    }

    fn construct(&mut self, name: &str, fields: &'p [Node]) -> Outcome<'a> {
        let failed = fields.iter().find_map(|field| self.eval(field).err());
        let stop = failed.unwrap_or_else(|| Stop::Error(format!("unknown type '{name}'")));
        self.finish(Err(stop), cost::STRUCT)
    }

    /// Charges for a list, a map or a message, whether it was made or not.
    fn finish(&mut self, outcome: Outcome<'a>, cost: u64) -> Outcome<'a> {
        if !matches!(outcome, Err(Stop::Cancelled | Stop::Fatal(_))) {
            self.budget.charge(cost)?;
        }
        outcome
    }

    fn or_optional(&mut self, args: &'p [Node; 2], keep: bool) -> Outcome<'a> {
        let [left, right] = args;
        match self.eval(left)? {
            some @ Value::Optional(Some(_)) if keep => Ok(some),
            Value::Optional(Some(value)) => Ok((*value).clone()),
            Value::Optional(None) => self.eval(right),
            _ => Err(Stop::no_such_overload()),
        }
    }
}

/// Separates errors that are values from those that end the evaluation.
pub(super) fn absorb<'a>(outcome: Outcome<'a>) -> Result<Result<Value<'a>, String>, Stop> {
    match outcome {
        Ok(value) => Ok(Ok(value)),
        Err(Stop::Error(why)) => Ok(Err(why)),
        Err(stop) => Err(stop),
    }
}

fn fits(overload: &Overload, args: &[Value<'_>]) -> bool {
    overload.args.len() == args.len() && overload.args.iter().zip(args).all(|(kind, arg)| arg.fits(kind))
}

fn no_such_overload(function: &Function, args: &[Value<'_>]) -> Stop {
    let kinds: Vec<&str> = args.iter().map(Value::type_name).collect();
    Stop::Error(format!("no such overload: {}({})", function.name, kinds.join(", ")))
}
