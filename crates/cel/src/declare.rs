//! Functions: their signatures for the checker and their code for the evaluator.

use std::collections::HashMap;

use crate::budget::{Budget, Stop};
use crate::types::Type;
use crate::value::Value;

/// The code of a function. It gets arguments that fit its signature, unless the function is not guarded.
pub(crate) type Native = for<'a> fn(&mut Budget, &[Value<'a>]) -> Result<Value<'a>, Stop>;

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    /// Unique; the cost of a call depends on it.
    pub(crate) id: &'static str,
    /// Called as `target.function(…)`; the target is the first argument.
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    pub(crate) code: Option<Native>,
    /// Arguments behind one that fails are not evaluated.
    pub(crate) stops_early: bool,
}

/// One code for all overloads of a function, for first arguments of some kinds.
#[derive(Debug)]
pub(crate) struct Singleton {
    pub(crate) accepts: fn(&Value<'_>) -> bool,
    pub(crate) code: Native,
}

/// A function.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
    pub(crate) singleton: Option<Singleton>,
    /// Whether types of arguments are checked again when it is called.
    pub(crate) guarded: bool,
}

/// All functions of an environment.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    by_name: HashMap<&'static str, Function>,
}

impl Functions {
    pub(crate) fn get(&self, name: &str) -> Option<&Function> {
        self.by_name.get(name.strip_prefix('.').unwrap_or(name))
    }

    fn entry(&mut self, name: &'static str) -> &mut Function {
        self.by_name.entry(name).or_insert_with(|| Function {
            name,
            overloads: Vec::new(),
            singleton: None,
            guarded: true,
        })
    }

    /// Adds overloads to a function, behind those it has.
    pub(crate) fn add(&mut self, name: &'static str, overloads: impl IntoIterator<Item = Overload>) {
        self.entry(name).overloads.extend(overloads);
    }

    /// Adds overloads that share one code.
    pub(crate) fn add_singleton(
        &mut self,
        name: &'static str,
        accepts: fn(&Value<'_>) -> bool,
        code: Native,
        overloads: impl IntoIterator<Item = Overload>,
    ) {
        let function = self.entry(name);
        function.overloads.extend(overloads);
        function.singleton = Some(Singleton { accepts, code });
    }

    /// Adds overloads whose code checks its arguments itself.
    pub(crate) fn add_unguarded(&mut self, name: &'static str, overloads: impl IntoIterator<Item = Overload>) {
        let function = self.entry(name);
        function.overloads.extend(overloads);
        function.guarded = false;
    }
}

/// A signature of a function that is called as `function(…)`.
pub(crate) fn global(id: &'static str, args: &[Type], result: Type, code: Native) -> Overload {
    Overload { id, member: false, args: args.to_vec(), result, code: Some(code), stops_early: false }
}

/// A signature of a function that is called as `target.function(…)`.
pub(crate) fn member(id: &'static str, args: &[Type], result: Type, code: Native) -> Overload {
    Overload { member: true, ..global(id, args, result, code) }
}

impl Overload {
    /// The same without code of its own.
    pub(crate) fn signature(id: &'static str, member: bool, args: &[Type], result: Type) -> Self {
        Self { id, member, args: args.to_vec(), result, code: None, stops_early: false }
    }

    pub(crate) fn stopping_early(self) -> Self {
        Self { stops_early: true, ..self }
    }
}
