//! Variables with selections and indexes.

use super::eval::{Evaluator, Local, Outcome};
use super::{Attribute, Key, Qualifier, Root};
use crate::budget::Stop;
use crate::value::{Value, number};

/// A value, if it is of its declared type.
pub(super) fn valid(value: Value<'_>) -> Outcome<'_> {
    match value {
        Value::Invalid(message) => Err(Stop::Error((*message).to_owned())),
        value => Ok(value),
    }
}

/// Whether a value can select or index.
pub(super) fn is_key(value: &Value<'_>) -> bool {
    matches!(value, Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Bool(_))
}

impl<'p, 'a> Evaluator<'p, '_, 'a> {
    /// An attribute that is evaluated by itself.
    pub(super) fn attribute(&mut self, attribute: &'p Attribute) -> Outcome<'a> {
        let outcome = self.resolve(attribute);
        if !attribute.root.is_conditional() && !matches!(outcome, Err(Stop::Cancelled | Stop::Fatal(_))) {
            self.budget.charge(1)?;
        }
        outcome
    }

    /// `has(…)`.
    pub(super) fn test(&mut self, attribute: &'p Attribute) -> Outcome<'a> {
        let outcome = self.resolve(attribute);
        if attribute.root.is_conditional() {
            // The reference takes back what it charges for other attributes, though not for this one.
            self.budget.refund(1);
        }
        Ok(match outcome? {
            Value::Optional(value) => Value::Bool(value.is_some()),
            other => other,
        })
    }

    /// The value of an attribute, without the cost of evaluating it by itself.
    fn resolve(&mut self, attribute: &'p Attribute) -> Outcome<'a> {
        let value = self.root(&attribute.root)?;
        if attribute.qualifiers.is_empty() { Ok(value) } else { self.qualify_all(value, &attribute.qualifiers) }
    }

    fn root(&mut self, root: &'p Root) -> Outcome<'a> {
        match root {
            Root::Variable(name) => {
                let value = self.variables.get(name).cloned();
                value.ok_or_else(|| Stop::Error(format!("no such attribute(s): {name}"))).and_then(valid)
            }
            Root::Local(slot) => self.local(*slot),
            Root::Operand(node) => self.eval(node),
            Root::Conditional(condition, branches) => {
                let [truthy, falsy] = &**branches;
                match self.eval(condition)? {
                    Value::Bool(true) => self.resolve(truthy),
                    Value::Bool(false) => self.resolve(falsy),
                    _ => Err(Stop::no_such_overload()),
                }
            }
        }
    }

    /// A variable of a comprehension; an accumulator is initialized on first use.
    pub(super) fn local(&mut self, slot: usize) -> Outcome<'a> {
        let lazy = match self.locals.get(slot) {
            Some(Local::Set(outcome)) => return outcome.clone(),
            Some(Local::Lazy(node)) => *node,
            _ => return Err(Stop::Error("no such attribute(s)".to_owned())),
        };
        let outcome = self.eval(lazy);
        if matches!(outcome, Err(Stop::Cancelled | Stop::Fatal(_))) {
            return outcome;
        }
        if let Some(local) = self.locals.get_mut(slot) {
            *local = Local::Set(outcome.clone());
        }
        outcome
    }

    fn qualify_all(&mut self, value: Value<'a>, qualifiers: &'p [Qualifier]) -> Outcome<'a> {
        let (mut value, mut optional) = match value {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(value)) => ((*value).clone(), true),
            other => (other, false),
        };
        for qualifier in qualifiers {
            optional = optional || qualifier.optional;
            match self.qualify(&value, qualifier, optional)? {
                Some(found) => value = found,
                None => return Ok(Value::Optional(None)),
            }
        }
        Ok(if optional { Value::some(value) } else { value })
    }

    /// One selection or index. With `optional` nothing there is no error.
    fn qualify(
        &mut self,
        value: &Value<'a>,
        qualifier: &'p Qualifier,
        optional: bool,
    ) -> Result<Option<Value<'a>>, Stop> {
        let found = match &qualifier.key {
            Key::Const(key) => select(value, key, optional || qualifier.test),
            Key::Attribute(attribute) => {
                let raw = matches!(attribute.root, Root::Variable(_));
                self.resolve(attribute).and_then(|key| select_by(value, &key, optional, raw))
            }
            Key::Node(node) => self.eval(node).and_then(|key| select_by(value, &key, optional, false)),
        };
        let found = match found {
            Err(stop @ (Stop::Cancelled | Stop::Fatal(_))) => return Err(stop),
            // A value of the wrong type is there, but has no use.
            Ok(Some(found)) if !qualifier.test => valid(found).map(Some),
            found => found,
        };
        if !optional || matches!(found, Ok(Some(_))) {
            self.budget.charge(1)?;
        }
        match found {
            Ok(found) if qualifier.test && !optional => Ok(Some(Value::Bool(found.is_some()))),
            found => found,
        }
    }
}

/// An index that was computed, or with `raw` comes out of a variable.
fn select_by<'a>(value: &Value<'a>, key: &Value<'a>, optional: bool, raw: bool) -> Result<Option<Value<'a>>, Stop> {
    if !is_key(key) {
        let kind = if raw { key.go_raw_type() } else { key.go_type() };
        return Err(format!("invalid qualifier type: {kind}").into());
    }
    select(value, key, optional)
}

/// The part of a value that a key selects; with `test` nothing there is no error.
fn select<'a>(value: &Value<'a>, key: &Value<'_>, test: bool) -> Result<Option<Value<'a>>, Stop> {
    let missing_key = || Stop::Error(format!("no such key: {key}"));
    match value {
        Value::Map(map) => match map.find(key) {
            Some(found) => Ok(Some(found)),
            None if test => Ok(None),
            None => Err(missing_key()),
        },
        Value::List(list) => {
            let index = index(key)?;
            match usize::try_from(index).ok().and_then(|index| list.get(index)) {
                Some(found) => Ok(Some(found)),
                None if test => Ok(None),
                None => Err(Stop::Error(format!("index out of bounds: {key}"))),
            }
        }
        Value::Object(object) => match key.as_str().map(|field| object.get(field)) {
            None => Err(Stop::no_such_overload()),
            Some(Some(found)) => found.map(Some).map_err(Stop::Error),
            Some(None) if test => Ok(None),
            Some(None) => Err(missing_key()),
        },
        _ if test => Ok(None),
        _ => Err(missing_key()),
    }
}

/// A position in a list.
fn index(key: &Value<'_>) -> Result<i64, Stop> {
    let unsupported = || Stop::Error(format!("unsupported index value {key} in list"));
    match key {
        Value::Int(index) => Ok(*index),
        Value::Double(value) => number::exact_int(*value).ok_or_else(unsupported),
        Value::Uint(value) => i64::try_from(*value).map_err(|_| unsupported()),
        other => Err(Stop::Error(format!("unsupported index type '{}' in list", other.type_name()))),
    }
}
