//! From the checked tree to the program.

use std::collections::HashMap;

use super::{Attribute, Call, Fold, How, Key, Node, Program, Qualifier, Root, eval};
use crate::budget::{Budget, EvalError};
use crate::check::{Checked, Reference, TYPE_NAMES};
use crate::declare::Function;
use crate::library::{regex, standard::is_conversion};
use crate::plan::Variables;
use crate::syntax::ast::{Comprehension, Entry, Expr, ExprKind, Literal, op};
use crate::syntax::macros::MAP_INSERT;
use crate::value::map::Entries;
use crate::value::{Map, Value};

pub(super) fn build(checked: &Checked) -> Result<Program, String> {
    let Checked { expr, references, .. } = checked;
    let mut builder = Builder { references, locals: Vec::new(), slots: 0 };
    let root = builder.node(expr)?;
    Ok(Program { root, slots: builder.slots })
}

/// A variable of a comprehension that is in scope.
struct Local<'c> {
    name: &'c str,
    slot: usize,
    /// An accumulator that starts as an empty list or map.
    grows: bool,
}

struct Builder<'c> {
    references: &'c HashMap<usize, Reference>,
    locals: Vec<Local<'c>>,
    slots: usize,
}

type Built = Result<Node, String>;

impl<'c> Builder<'c> {
    fn node(&mut self, expr: &'c Expr) -> Built {
        match &expr.kind {
            ExprKind::Unspecified => Err("unsupported expr".to_owned()),
            ExprKind::Literal(literal) => Ok(Node::Const(constant(literal))),
            ExprKind::Ident(_) => self.ident(expr.id),
            ExprKind::Select { .. } if self.references.contains_key(&expr.id) => self.ident(expr.id),
            ExprKind::Select { operand, field, test } => {
                let operand = self.node(operand)?;
                Ok(selection(operand, field, *test))
            }
            ExprKind::Call { target, function, args } => self.call(expr.id, target.as_deref(), function, args),
            ExprKind::List { elements, optional } => self.list(elements, optional),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Struct { name, fields } => {
                let fields = fields.iter().map(|field| self.node(&field.value)).collect::<Result<_, _>>()?;
                Ok(Node::Struct(name.clone(), fields))
            }
            ExprKind::Comprehension(fold) => self.fold(fold),
        }
    }

    #[inline(never)]
    fn ident(&self, id: usize) -> Built {
        let root = match self.references.get(&id) {
            Some(Reference::Type(name)) => {
                if !TYPE_NAMES.contains(&name.as_str()) {
                    return Err(format!("reference to undefined type: {name}"));
                }
                return Ok(Node::Const(Value::Type(name.as_str().into())));
            }
            Some(Reference::Variable { name, global }) => {
                let local = self.locals.iter().rev().find(|local| !global && local.name == name);
                local.map_or_else(|| Root::Variable(name.clone()), |local| Root::Local(local.slot))
            }
            _ => return Err("unsupported expr".to_owned()),
        };
        Ok(Node::Attribute(Box::new(Attribute { root, qualifiers: Vec::new() })))
    }

    #[inline(never)]
    fn list(&mut self, elements: &'c [Expr], optional: &[usize]) -> Built {
        let mut built = Vec::with_capacity(elements.len());
        for (index, element) in elements.iter().enumerate() {
            built.push((self.node(element)?, optional.contains(&index)));
        }
        Ok(constant_list(built))
    }

    #[inline(never)]
    fn map(&mut self, entries: &'c [Entry]) -> Built {
        let mut built = Vec::with_capacity(entries.len());
        for entry in entries {
            built.push((self.node(&entry.key)?, self.node(&entry.value)?, entry.optional));
        }
        Ok(constant_map(built))
    }

    #[inline(never)]
    fn call(&mut self, id: usize, target: Option<&'c Expr>, written: &str, args: &'c [Expr]) -> Built {
        let Some(Reference::Function { function, overloads, qualified }) = self.references.get(&id) else {
            return Err(format!("no such overload: {written}"));
        };
        if let Some(grown) = self.growing(function.name, args) {
            return self.grow(function.name, grown, args);
        }
        let mut built = Vec::with_capacity(args.len() + 1);
        for arg in target.filter(|_| !qualified).into_iter().chain(args) {
            built.push(self.node(arg)?);
        }
        call_node(function, overloads, built)
    }

    /// The slot of the accumulator that a call makes larger: `accumulator + […]`, or an insertion into it.
    fn growing(&self, function: &str, args: &[Expr]) -> Option<usize> {
        let grows = match (function, args) {
            (op::ADD, [_, right]) => matches!(right.kind, ExprKind::List { .. }),
            (MAP_INSERT, _) => true,
            _ => false,
        };
        let accumulator = args.first().filter(|_| grows)?.as_ident()?;
        let local = self.locals.iter().rev().find(|local| local.name == accumulator)?;
        local.grows.then_some(local.slot)
    }

    #[inline(never)]
    fn grow(&mut self, function: &str, slot: usize, args: &'c [Expr]) -> Built {
        let mut built = args.iter().skip(1).map(|arg| self.node(arg)).collect::<Result<Vec<Node>, _>>()?;
        if function == MAP_INSERT {
            return Ok(Node::Insert(slot, built));
        }
        let list = built.pop().ok_or("no such overload")?;
        Ok(Node::Append(slot, Box::new(list)))
    }

    #[inline(never)]
    fn fold(&mut self, fold: &'c Comprehension) -> Built {
        let grows = match &fold.init.kind {
            ExprKind::List { elements, .. } => elements.is_empty(),
            ExprKind::Map(entries) => entries.is_empty(),
            _ => false,
        };
        let init = Box::new(self.node(&fold.init)?);
        let range = Box::new(self.node(&fold.range)?);
        let outer = self.locals.len();
        let accumulator = self.local(&fold.accumulator, grows);
        let inner = self.locals.len();
        let variable = self.local(&fold.variable, false);
        let second = fold.second.as_ref().map(|name| self.local(name, false));
        let condition = Box::new(self.node(&fold.condition)?);
        let step = Box::new(self.node(&fold.step)?);
        self.locals.truncate(inner);
        let result = Box::new(self.node(&fold.result)?);
        self.locals.truncate(outer);
        Ok(Node::Fold(Box::new(Fold { range, accumulator, variable, second, init, condition, step, result })))
    }

    /// Brings a variable into scope.
    fn local(&mut self, name: &'c str, grows: bool) -> usize {
        let slot = self.slots;
        self.slots += 1;
        self.locals.push(Local { name, slot, grows });
        slot
    }
}

#[inline(never)]
fn selection(operand: Node, field: &str, test: bool) -> Node {
    let key = Key::Const(Value::string(field.to_owned()));
    let attribute = qualified(operand, Qualifier { key, optional: false, test });
    if test { Node::Test(attribute) } else { Node::Attribute(attribute) }
}

fn constant_list(elements: Vec<(Node, bool)>) -> Node {
    let constants: Option<Vec<Value<'static>>> = elements
        .iter()
        .map(|(element, optional)| match element {
            Node::Const(value) if !optional => Some(value.clone()),
            _ => None,
        })
        .collect();
    constants.map_or(Node::List(elements), |values| Node::Const(Value::list(values)))
}

/// A call of a function or an operator whose arguments are built.
#[inline(never)]
fn call_node(function: &'static Function, overloads: &[usize], mut args: Vec<Node>) -> Built {
    match function.name {
        op::AND => pair(args, Node::And),
        op::OR => pair(args, Node::Or),
        op::EQUALS => pair(args, Node::Equal),
        op::NOT_EQUALS => pair(args, Node::NotEqual),
        op::CONDITIONAL => conditional(args),
        op::INDEX => index(args, false),
        op::OPTIONAL_INDEX | op::OPTIONAL_SELECT => index(args, true),
        op::NOT_STRICTLY_FALSE => {
            let arg = args.pop().ok_or("no such overload")?;
            Ok(Node::NotStrictlyFalse(Box::new(arg)))
        }
        "or" => pair(args, Node::OrOptional),
        "orValue" => pair(args, Node::OrValue),
        _ => function_call(function, overloads, args),
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::string(text.clone()),
        Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
    }
}

/// The node with one more selection or index.
fn qualified(operand: Node, qualifier: Qualifier) -> Box<Attribute> {
    let mut attribute = match operand {
        Node::Attribute(attribute) => attribute,
        other => Box::new(Attribute { root: Root::Operand(other), qualifiers: Vec::new() }),
    };
    attribute.qualifiers.push(qualifier);
    attribute
}

fn constant_map(entries: Vec<(Node, Node, bool)>) -> Node {
    let mut constants = Entries::default();
    for (key, value, optional) in &entries {
        match (key, value) {
            (Node::Const(key), Node::Const(value)) if !optional => constants.insert(key.clone(), value.clone()),
            _ => return Node::Map(entries),
        }
    }
    Node::Const(Value::Map(Map::from_entries(constants)))
}

fn pair(args: Vec<Node>, node: fn(Box<[Node; 2]>) -> Node) -> Built {
    let args: Box<[Node; 2]> = Box::new(<[Node; 2]>::try_from(args).map_err(|_| "no such overload".to_owned())?);
    Ok(node(args))
}

fn conditional(args: Vec<Node>) -> Built {
    let [condition, truthy, falsy] = <[Node; 3]>::try_from(args).map_err(|_| "no such overload".to_owned())?;
    let root = Root::Conditional(condition, Box::new([branch(truthy), branch(falsy)]));
    Ok(Node::Attribute(Box::new(Attribute { root, qualifiers: Vec::new() })))
}

fn branch(node: Node) -> Attribute {
    match node {
        Node::Attribute(attribute) | Node::Test(attribute) => *attribute,
        other => Attribute { root: Root::Operand(other), qualifiers: Vec::new() },
    }
}

fn index(args: Vec<Node>, optional: bool) -> Built {
    let [operand, index] = <[Node; 2]>::try_from(args).map_err(|_| "no such overload".to_owned())?;
    let key = match index {
        Node::Const(value) if !super::attributes::is_key(&value) => {
            return Err(format!("invalid qualifier type: {}", value.go_type()));
        }
        Node::Const(value) => Key::Const(value),
        Node::Attribute(attribute) => Key::Attribute(*attribute),
        other => Key::Node(other),
    };
    Ok(Node::Attribute(qualified(operand, Qualifier { key, optional, test: false })))
}

fn function_call(function: &'static Function, overloads: &[usize], args: Vec<Node>) -> Built {
    let only = match overloads {
        [index] => function.overloads.get(*index).map(|overload| (*index, overload)),
        _ => None,
    };
    let id = only.map_or("", |(_, overload)| overload.id);
    if id == "in_list"
        && let Some(Node::Const(Value::List(list))) = args.get(1)
    {
        if list.is_empty() {
            return Ok(Node::Const(Value::Bool(false)));
        }
        if list.iter().all(|element| super::attributes::is_key(&element)) {
            let mut set = Entries::default();
            list.iter().for_each(|element| set.insert(element, Value::Bool(true)));
            let element = args.into_iter().next().ok_or("no such overload")?;
            return Ok(Node::InSet(Box::new(element), Map::from_entries(set)));
        }
    }
    let mut stops_early = args.len() > 2 || only.is_some_and(|(_, overload)| overload.stops_early);
    let mut how = match (only, &function.singleton) {
        (_, Some(_)) => How::Singleton(id),
        (Some((index, _)), None) => How::Overload(index),
        (None, None) => {
            stops_early = true;
            How::Dispatch
        }
    };
    if matches!(function.name, "matches" | "find" | "findAll")
        && let Some(Node::Const(Value::String(pattern))) = args.get(1)
    {
        how = How::Pattern(regex::compile(pattern.as_str())?, id);
        stops_early = true;
    }
    let is_constant = is_conversion(function.name) && matches!(args[..], [Node::Const(_)]);
    let call = Node::Call(Box::new(Call { function, how, args, stops_early }));
    if !is_constant {
        return Ok(call);
    }
    // Conversions of constants are computed once and cost nothing.
    let mut budget = Budget::new(u64::MAX);
    let value: Result<Value<'static>, _> = eval::evaluate(&call, 0, &Variables::default(), &mut budget);
    value.map(Node::Const).map_err(|stop| EvalError::from(stop).to_string())
}
