//! Macros: calls that become comprehensions and presence tests while parsing.
//!
//! In: the call with its parsed arguments. Out: the tree it stands for, all of its new nodes at the place of the call.

use super::ast::{Builder, Comprehension, Entry, Expr, ExprKind, Literal, op};

/// The accumulator of comprehensions; no identifier can have this name.
pub(crate) const ACCUMULATOR: &str = "@result";
/// The name of the accumulator in earlier versions of the language, still forbidden for variables.
pub(crate) const OLD_ACCUMULATOR: &str = "__result__";
/// The variable of a comprehension that only binds its accumulator to a value.
const UNUSED: &str = "#unused";
/// The list that `sortBy` was called on.
const SORT_INPUT: &str = "@__sortBy_input__";
/// Inserts into the map that a two-variable comprehension builds.
pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";
/// Sorts a list by a list of keys.
pub(crate) const SORT_BY_KEYS: &str = "@sortByAssociatedKeys";

/// What became of a call.
pub(crate) enum Expansion {
    /// It is no macro: the call is as it was written.
    None(Option<Expr>, Vec<Expr>),
    Done(Expr),
    /// It is a macro with arguments that do not fit; the message and its position.
    Failed(usize, String),
}

/// Expands a call if it is a macro. `bind` enables `cel.bind`.
pub(crate) fn expand(
    build: &mut Builder,
    at: usize,
    function: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
    bind: bool,
) -> Expansion {
    let mut call = Call { build, at };
    let done = match (target, function, args.len()) {
        (None, "has", 1) => call.has(args),
        (Some(target), "all" | "exists" | "exists_one", 2 | 3) | (Some(target), "existsOne", 3) => {
            call.quantifier(function, target, args)
        }
        (Some(target), "map", 2 | 3) => call.map(target, args),
        (Some(target), "filter", 2) => call.filter(target, args),
        (Some(target), "transformList" | "transformMap" | "transformMapEntry", 3 | 4) => {
            call.transform(function, target, args)
        }
        (Some(target), "optMap" | "optFlatMap", 2) => call.optional_map(function, target, args),
        (Some(target), "sortBy", 2) => call.sort_by(target, args),
        (Some(target), "bind", 3) if bind && target.as_ident() == Some("cel") => call.bind(args),
        (target, _, _) => return Expansion::None(target, args),
    };
    match done {
        Ok(expr) => Expansion::Done(expr),
        Err((at, message)) => Expansion::Failed(at, message),
    }
}

type Done = Result<Expr, (usize, String)>;

struct Call<'b> {
    build: &'b mut Builder,
    at: usize,
}

/// The parts of a comprehension that macros choose.
struct Parts {
    variable: String,
    second: Option<String>,
    init: Expr,
    condition: Expr,
    step: Expr,
    result: Expr,
}

impl Call<'_> {
    fn accumulator(&mut self) -> Expr {
        self.build.ident(self.at, ACCUMULATOR)
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.build.literal(self.at, literal)
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.build.call(self.at, function, args)
    }

    fn fold(&mut self, range: Expr, parts: Parts) -> Expr {
        let Parts { variable, second, init, condition, step, result } = parts;
        let accumulator = ACCUMULATOR.to_owned();
        let fold = Comprehension { range, variable, second, accumulator, init, condition, step, result };
        self.build.comprehension(self.at, fold)
    }

    /// A comprehension that evaluates `result` with a name bound to a value.
    fn bound(&mut self, name: &str, value: Expr, result: Expr) -> Expr {
        let fold = Comprehension {
            range: self.build.list(self.at, Vec::new()),
            variable: UNUSED.to_owned(),
            second: None,
            accumulator: name.to_owned(),
            init: value,
            condition: self.literal(Literal::Bool(false)),
            step: self.build.ident(self.at, name),
            result,
        };
        self.build.comprehension(self.at, fold)
    }

    fn has(&mut self, args: Vec<Expr>) -> Done {
        let at = args.first().map_or(self.at, |arg| arg.at);
        match args.into_iter().next().map(|arg| arg.kind) {
            Some(ExprKind::Select { operand, field, .. }) => {
                Ok(self.build.node(self.at, ExprKind::Select { operand, field, test: true }))
            }
            _ => Err((at, "invalid argument to has() macro".to_owned())),
        }
    }

    fn quantifier(&mut self, function: &str, target: Expr, mut args: Vec<Expr>) -> Done {
        let predicate = args.pop();
        let (variable, second) = variables(&args, "argument must be a simple name")?;
        let predicate = self.or_unspecified(predicate);
        let accumulator = self.accumulator();
        let parts = match function {
            "all" => Parts {
                variable,
                second,
                init: self.literal(Literal::Bool(true)),
                condition: self.call(op::NOT_STRICTLY_FALSE, vec![accumulator]),
                step: {
                    let accumulator = self.accumulator();
                    self.call(op::AND, vec![accumulator, predicate])
                },
                result: self.accumulator(),
            },
            "exists" => Parts {
                variable,
                second,
                init: self.literal(Literal::Bool(false)),
                condition: {
                    let not = self.call(op::NOT, vec![accumulator]);
                    self.call(op::NOT_STRICTLY_FALSE, vec![not])
                },
                step: {
                    let accumulator = self.accumulator();
                    self.call(op::OR, vec![accumulator, predicate])
                },
                result: self.accumulator(),
            },
            _ => {
                let one = self.literal(Literal::Int(1));
                let more = self.call(op::ADD, vec![accumulator, one]);
                let (same, last, one) = (self.accumulator(), self.accumulator(), self.literal(Literal::Int(1)));
                Parts {
                    variable,
                    second,
                    init: self.literal(Literal::Int(0)),
                    condition: self.literal(Literal::Bool(true)),
                    step: self.call(op::CONDITIONAL, vec![predicate, more, same]),
                    result: self.call(op::EQUALS, vec![last, one]),
                }
            }
        };
        Ok(self.fold(target, parts))
    }

    /// A list is built: `step` adds to it, for elements that pass the filter.
    fn collect(&mut self, target: Expr, names: (String, Option<String>), step: Expr, filter: Option<Expr>) -> Expr {
        let init = self.build.list(self.at, Vec::new());
        self.build_up(target, names, init, step, filter)
    }

    fn build_up(
        &mut self,
        target: Expr,
        (variable, second): (String, Option<String>),
        init: Expr,
        step: Expr,
        filter: Option<Expr>,
    ) -> Expr {
        let step = match filter {
            Some(filter) => {
                let same = self.accumulator();
                self.call(op::CONDITIONAL, vec![filter, step, same])
            }
            None => step,
        };
        let condition = self.literal(Literal::Bool(true));
        let result = self.accumulator();
        self.fold(target, Parts { variable, second, init, condition, step, result })
    }

    fn append(&mut self, element: Expr) -> Expr {
        let (list, accumulator) = (self.build.list(self.at, vec![element]), self.accumulator());
        self.call(op::ADD, vec![accumulator, list])
    }

    fn map(&mut self, target: Expr, mut args: Vec<Expr>) -> Done {
        let value = args.pop();
        let filter = if args.len() == 2 { args.pop() } else { None };
        let names = variables(&args, "argument is not an identifier")?;
        let value = self.or_unspecified(value);
        let step = self.append(value);
        Ok(self.collect(target, names, step, filter))
    }

    fn filter(&mut self, target: Expr, mut args: Vec<Expr>) -> Done {
        let filter = args.pop();
        let names = variables(&args, "argument is not an identifier")?;
        let element = args.pop();
        let element = self.or_unspecified(element);
        let step = self.append(element);
        Ok(self.collect(target, names, step, filter))
    }

    fn transform(&mut self, function: &str, target: Expr, mut args: Vec<Expr>) -> Done {
        let value = args.pop();
        let filter = if args.len() == 3 { args.pop() } else { None };
        let names = variables(&args, "argument must be a simple name")?;
        let value = self.or_unspecified(value);
        if function == "transformList" {
            let step = self.append(value);
            return Ok(self.collect(target, names, step, filter));
        }
        let mut parts = vec![self.accumulator()];
        if function == "transformMap" {
            parts.push(self.build.ident(self.at, names.0.clone()));
        }
        parts.push(value);
        let step = self.call(MAP_INSERT, parts);
        let init = self.build.node(self.at, ExprKind::Map(Vec::<Entry>::new()));
        Ok(self.build_up(target, names, init, step, filter))
    }

    fn optional_map(&mut self, function: &str, target: Expr, mut args: Vec<Expr>) -> Done {
        let result = args.pop();
        let result = self.or_unspecified(result);
        let Some(name) = args.first().and_then(Expr::as_ident).map(str::to_owned) else {
            let at = args.first().map_or(self.at, |arg| arg.at);
            return Err((at, format!("{function}() variable name must be a simple identifier")));
        };
        let copy = self.build.copy(&target);
        let present = self.build.member_call(self.at, "hasValue", target, Vec::new());
        let value = self.build.member_call(self.at, "value", copy, Vec::new());
        let mut some = self.bound(&name, value, result);
        if function == "optMap" {
            some = self.call("optional.of", vec![some]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call(op::CONDITIONAL, vec![present, some, none]))
    }

    fn sort_by(&mut self, target: Expr, args: Vec<Expr>) -> Done {
        if matches!(
            target.kind,
            ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct { .. } | ExprKind::Unspecified
        ) {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err((target.at, message.to_owned()));
        }
        let range = self.build.ident(self.at, SORT_INPUT);
        let keys = self.map(range, args)?;
        let list = self.build.ident(self.at, SORT_INPUT);
        let sorted = self.build.member_call(self.at, SORT_BY_KEYS, list, vec![keys]);
        Ok(self.bound(SORT_INPUT, target, sorted))
    }

    fn bind(&mut self, args: Vec<Expr>) -> Done {
        let mut args = args.into_iter();
        let (name, value, result) = (args.next(), args.next(), args.next());
        let Some(bound) = name.as_ref().and_then(Expr::as_ident).map(str::to_owned) else {
            let at = name.map_or(self.at, |name| name.at);
            return Err((at, "cel.bind() variable names must be simple identifiers".to_owned()));
        };
        let (value, result) = (self.or_unspecified(value), self.or_unspecified(result));
        Ok(self.bound(&bound, value, result))
    }

    fn or_unspecified(&mut self, expr: Option<Expr>) -> Expr {
        expr.unwrap_or_else(|| self.build.unspecified(self.at))
    }
}

/// The names of one or two iteration variables.
fn variables(args: &[Expr], not_a_name: &str) -> Result<(String, Option<String>), (usize, String)> {
    let name = |arg: &Expr| arg.as_ident().map(str::to_owned).ok_or((arg.at, not_a_name.to_owned()));
    let names = args.iter().map(name).collect::<Result<Vec<String>, _>>()?;
    if let ([first, second], [_, at]) = (&names[..], args)
        && first == second
    {
        return Err((at.at, format!("duplicate variable name: {first}")));
    }
    if let Some((arg, _)) = args.iter().zip(&names).find(|(_, name)| *name == ACCUMULATOR || *name == OLD_ACCUMULATOR) {
        return Err((arg.at, "iteration variable overwrites accumulator variable".to_owned()));
    }
    let mut names = names.into_iter();
    Ok((names.next().unwrap_or_default(), names.next()))
}
