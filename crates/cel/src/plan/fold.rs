//! Comprehensions.

use super::attributes::valid;
use super::eval::{Evaluator, Local, Outcome, absorb};
use super::{Fold, Node};
use crate::budget::Stop;
use crate::library::lists_ext::insert_one;
use crate::value::{Value, number};

/// What a comprehension runs over.
type Pairs<'a> = Vec<(Value<'a>, Value<'a>)>;

impl<'p, 'a> Evaluator<'p, '_, 'a> {
    pub(super) fn fold(&mut self, fold: &'p Fold) -> Outcome<'a> {
        let range = self.eval(&fold.range)?;
        self.set(fold.accumulator, Local::Lazy(&fold.init));
        match fold.second {
            Some(second) => self.fold_pairs(fold, second, &range)?,
            None => self.fold_elements(fold, &range)?,
        }
        self.set(fold.variable, Local::Unset);
        let outcome = self.eval(&fold.result);
        self.set(fold.accumulator, Local::Unset);
        outcome
    }

    fn set(&mut self, slot: usize, local: Local<'p, 'a>) {
        if let Some(known) = self.locals.get_mut(slot) {
            *known = local;
        }
    }

    fn fold_elements(&mut self, fold: &'p Fold, range: &Value<'a>) -> Result<(), Stop> {
        match range {
            Value::List(list) => {
                for element in list.iter() {
                    self.set(fold.variable, Local::Set(valid(element)));
                    if !self.step(fold)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                self.budget.make(map.len())?;
                let keys: Vec<Value<'a>> = map.iter().map(|(key, _)| key).collect();
                for key in keys {
                    self.set(fold.variable, Local::Set(Ok(key)));
                    if !self.step(fold)? {
                        break;
                    }
                }
            }
            other => return Err(format!("got '{}', expected iterable type", other.go_type()).into()),
        }
        Ok(())
    }

    fn fold_pairs(&mut self, fold: &'p Fold, second: usize, range: &Value<'a>) -> Result<(), Stop> {
        let pairs: Pairs<'a> = match range {
            Value::List(list) => {
                self.budget.make(list.len().saturating_mul(2))?;
                list.iter().enumerate().map(|(index, element)| (Value::Int(number::size(index)), element)).collect()
            }
            Value::Map(map) => {
                self.budget.make(map.len().saturating_mul(2))?;
                map.iter().collect()
            }
            other => return Err(format!("unsupported comprehension range type: {}", other.go_type()).into()),
        };
        for (first, other) in pairs {
            self.set(fold.variable, Local::Set(Ok(first)));
            self.set(second, Local::Set(valid(other)));
            if !self.step(fold)? {
                break;
            }
        }
        self.set(second, Local::Unset);
        Ok(())
    }

    /// One step; false if the condition does not hold any more.
    fn step(&mut self, fold: &'p Fold) -> Result<bool, Stop> {
        self.budget.work(1)?;
        if let Ok(Value::Bool(false)) = absorb(self.eval(&fold.condition))? {
            return Ok(false);
        }
        let outcome = absorb(self.eval(&fold.step))?.map_err(Stop::Error);
        self.set(fold.accumulator, Local::Set(outcome));
        Ok(true)
    }

    /// Takes an accumulator out of its slot, to change it in place.
    fn take(&mut self, slot: usize) -> Outcome<'a> {
        if matches!(self.locals.get(slot), Some(Local::Lazy(_))) {
            self.local(slot)?;
        }
        match self.locals.get_mut(slot).map(|local| std::mem::replace(local, Local::Unset)) {
            Some(Local::Set(outcome)) => outcome,
            _ => Err(Stop::no_such_overload()),
        }
    }

    /// `accumulator + […]`.
    pub(super) fn append(&mut self, slot: usize, list: &'p Node) -> Outcome<'a> {
        let accumulator = absorb(self.take(slot))?;
        self.budget.charge(1)?;
        let added = absorb(self.eval(list))?;
        self.budget.charge(1)?;
        match (accumulator, added) {
            (Err(why), _) | (_, Err(why)) => Err(Stop::Error(why)),
            (Ok(Value::List(mut list)), Ok(Value::List(added))) => {
                self.budget.make(added.len())?;
                list.push_all(added.iter());
                Ok(Value::List(list))
            }
            _ => Err(Stop::no_such_overload()),
        }
    }

    /// Inserts a key and a value, or the entries of a map, into an accumulator.
    pub(super) fn insert(&mut self, slot: usize, args: &'p [Node]) -> Outcome<'a> {
        let accumulator = absorb(self.take(slot))?;
        self.budget.charge(1)?;
        let (mut values, mut failed) = (Vec::with_capacity(args.len()), accumulator.as_ref().err().cloned());
        let mut evaluated = 0;
        for arg in args {
            // A call with three arguments stops at the first that fails, one with two evaluates both.
            if failed.is_some() && args.len() > 1 {
                break;
            }
            evaluated += 1;
            match absorb(self.eval(arg))? {
                Ok(value) => values.push(value),
                Err(why) => failed = failed.or(Some(why)),
            }
        }
        let outcome = match failed {
            Some(why) => Err(Stop::Error(why)),
            None => self.inserted(accumulator.unwrap_or(Value::Null), &values),
        };
        if evaluated == args.len() && !matches!(outcome, Err(Stop::Cancelled | Stop::Fatal(_))) {
            self.budget.charge(1)?;
        }
        outcome
    }

    fn inserted(&mut self, accumulator: Value<'a>, values: &[Value<'a>]) -> Outcome<'a> {
        let Value::Map(mut map) = accumulator else { return Err(Stop::no_such_overload()) };
        match values {
            [key, value] => insert_one(&mut map, key, value)?,
            [Value::Map(more)] => {
                self.budget.make(more.len().saturating_mul(4))?;
                more.iter().try_for_each(|(key, value)| insert_one(&mut map, &key, &value))?;
            }
            [other] => {
                let kind = other.type_name();
                return Err(Stop::Error(format!("no such overload: cel.@mapInsert(map, {kind})")));
            }
            _ => return Err(Stop::no_such_overload()),
        }
        Ok(Value::Map(map))
    }
}
