//! The functions that expressions can call, one file per library.
//!
//! Which libraries there are, and in which order their overloads are considered, is Kubernetes' base environment.

pub(crate) mod authz;
pub(crate) mod cidr;
pub(crate) mod format_string;
pub(crate) mod ip;
mod lists;
pub(crate) mod lists_ext;
mod logic;
pub(crate) mod math;
pub(crate) mod named_format;
mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
mod sets;
pub(crate) mod standard;
mod strings;
mod times;
pub(crate) mod url;

use std::sync::OnceLock;

use crate::budget::Stop;
use crate::declare::Functions;
use crate::value::Value;

/// Which functions are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compatibility {
    /// Those that the previous minor version has, too: for expressions that are written now, so that going back stays
    /// possible.
    New,
    /// All of this version: for expressions that were accepted before.
    Stored,
}

/// The functions of an environment.
pub(crate) fn functions(compatibility: Compatibility) -> &'static Functions {
    static NEW: OnceLock<Functions> = OnceLock::new();
    static STORED: OnceLock<Functions> = OnceLock::new();
    match compatibility {
        Compatibility::New => NEW.get_or_init(|| build(false)),
        Compatibility::Stored => STORED.get_or_init(|| build(true)),
    }
}

fn build(latest: bool) -> Functions {
    let mut all = Functions::default();
    logic::add(&mut all);
    standard::add(&mut all);
    times::add(&mut all);
    url::add(&mut all);
    regex::add(&mut all);
    if !latest {
        lists::add(&mut all, false);
    }
    authz::add(&mut all);
    optional::add(&mut all);
    quantity::add(&mut all);
    strings::add(&mut all);
    sets::add(&mut all);
    ip::add(&mut all);
    cidr::add(&mut all);
    named_format::add(&mut all);
    authz::add_selectors(&mut all);
    semver::add(&mut all);
    lists_ext::add(&mut all);
    if latest {
        lists::add(&mut all, true);
    }
    all
}

/// The first arguments as strings. Guarded functions get what their signatures say.
fn text<'v>(args: &'v [Value<'_>], index: usize) -> Result<&'v str, Stop> {
    args.get(index).and_then(Value::as_str).ok_or_else(Stop::no_such_overload)
}

/// An argument as an integer.
fn int(args: &[Value<'_>], index: usize) -> Result<i64, Stop> {
    match args.get(index) {
        Some(Value::Int(value)) => Ok(*value),
        _ => Err(Stop::no_such_overload()),
    }
}

/// An argument, whatever it is.
fn any<'v, 'a>(args: &'v [Value<'a>], index: usize) -> Result<&'v Value<'a>, Stop> {
    args.get(index).ok_or_else(Stop::no_such_overload)
}

/// An argument as a list.
fn list<'v, 'a>(args: &'v [Value<'a>], index: usize) -> Result<&'v crate::value::List<'a>, Stop> {
    match args.get(index) {
        Some(Value::List(list)) => Ok(list),
        _ => Err(Stop::no_such_overload()),
    }
}
