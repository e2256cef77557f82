//! One value and one node of a schema: type, then junctors, then what the type allows to check.

use serde_json::{Map, Value};

use super::{Context, Name, Report};
use crate::field::quote;
use crate::structural::go::{self, Num};
use crate::structural::ratchet::Change;
use crate::structural::{Additional, Structural, Type, format};

/// The type of a value, and the format that goes with it.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) => match Num::of(number) {
            Num::Int(_) => ("integer", "int64"),
            Num::Float(_) => ("number", "float64"),
        },
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

impl Context<'_> {
    /// Checks a value. Errors are dropped if the value did not change.
    pub(super) fn node(
        &self,
        schema: &Structural,
        value: &Value,
        name: &Name<'_>,
        change: Option<Change<'_>>,
        report: &mut Report,
    ) {
        let (kept, failures) = (report.errors.len(), report.failures);
        self.check(schema, value, name, change, report);
        if report.failures > failures && change.is_some_and(|change| change.is_same()) {
            report.errors.truncate(kept);
            report.failures = failures;
        }
    }

    fn check(
        &self,
        schema: &Structural,
        value: &Value,
        name: &Name<'_>,
        change: Option<Change<'_>>,
        report: &mut Report,
    ) {
        let types = self.types(schema);
        let checks = &schema.checks;
        if value.is_null() {
            if types.is_empty() || schema.nullable {
                report.matches += 1;
            } else {
                self.wrong_type(report, name, &joined(types), "null");
            }
            self.enumeration(schema, value, name, report);
            return;
        }
        if !types.is_empty() || !checks.format.is_empty() {
            self.check_type(types, &checks.format, value, name, report);
            report.matches += 1;
        }
        self.junctors(schema, value, name, report);
        match value {
            Value::String(text) => self.string(schema, text, name, report),
            Value::Number(number) => self.number(schema, Num::of(number), name, report),
            Value::Array(elements) => self.array(schema, elements, name, change, report),
            _ => {}
        }
        self.enumeration(schema, value, name, report);
        if let Value::Object(members) = value {
            self.object(schema, members, name, change, report);
            report.matches += 1;
        }
        // For the junctors, the enumeration and the node as a whole.
        report.matches += 3;
    }

    /// The types that a node allows; none for any.
    pub(super) fn types(&self, schema: &Structural) -> &'static [Type] {
        match schema.ty {
            _ if schema.int_or_string && !self.raw => &[Type::Integer, Type::String],
            None => &[],
            Some(Type::Array) => &[Type::Array],
            Some(Type::Boolean) => &[Type::Boolean],
            Some(Type::Integer) => &[Type::Integer],
            Some(Type::Number) => &[Type::Number],
            Some(Type::Object) => &[Type::Object],
            Some(Type::String) => &[Type::String],
        }
    }

    /// Checks the type. With a format, strings and lists pass any type that is no number, as in kube-apiserver.
    fn check_type(&self, types: &[Type], format: &str, value: &Value, name: &Name<'_>, report: &mut Report) {
        let (found, found_format) = type_of(value);
        let allows = |ty: Type| types.contains(&ty);
        let whole = matches!(value, Value::Number(number)
            if matches!(Num::of(number), Num::Float(float) if super::number::is_integer(float)));
        let fits = types.iter().any(|ty| ty.as_str() == found)
            || (found == "number" && whole && allows(Type::Integer))
            || (found == "integer" && allows(Type::Number));
        let text_or_list = matches!(value, Value::String(_) | Value::Array(_));
        if !text_or_list && !format.is_empty() && !fits && found_format != format {
            return self.wrong_type(report, name, format, found_format);
        }
        let numeric = allows(Type::Number) || allows(Type::Integer);
        let skipped = !numeric && !format.is_empty() && text_or_list;
        if !skipped && !fits {
            return self.wrong_type(report, name, &joined(types), found);
        }
        report.matches += 1;
    }

    fn wrong_type(&self, report: &mut Report, name: &Name<'_>, wanted: &str, found: &str) {
        let found = quote(found);
        let body = format!("Invalid value: {found}: {name} in body must be of type {wanted}: {found}");
        self.fail(report, "FieldValueTypeInvalid", name, body);
    }

    fn string(&self, schema: &Structural, text: &str, name: &Name<'_>, report: &mut Report) {
        let checks = &schema.checks;
        report.matches += 1;
        self.text(schema, text, name, report);
        if !checks.format.is_empty() && !matches!(checks.format.as_str(), "int32" | "int64" | "float" | "double") {
            report.matches += 1;
            if !format::has(&checks.format, text) {
                self.wrong_type(report, name, &checks.format, text);
            }
        }
    }

    /// Length and pattern; the first thing that is wrong.
    fn text(&self, schema: &Structural, text: &str, name: &Name<'_>, report: &mut Report) {
        let checks = &schema.checks;
        if checks.max_length.is_some() || checks.min_length.is_some() {
            let length = size(text.chars().count());
            if let Some(most) = checks.max_length.filter(|most| length > *most) {
                let body = format!("Too long: may not be more than {most} bytes");
                return self.fail(report, "FieldValueTooLong", name, body);
            }
            if let Some(least) = checks.min_length.filter(|least| length < *least) {
                return self.invalid(report, name, &quote(text), &format!("should be at least {least} chars long"));
            }
        }
        if checks.pattern.is_empty() {
            return;
        }
        let pattern = checks.pattern.as_str();
        match checks.pattern.is_match(text) {
            Ok(true) => {}
            Ok(false) => self.invalid(report, name, &quote(text), &format!("should match '{pattern}'")),
            Err(why) => {
                let detail = format!("should match '{pattern}, but pattern is invalid: {why}'");
                self.invalid(report, name, &quote(text), &detail);
            }
        }
    }

    fn array(
        &self,
        schema: &Structural,
        elements: &[Value],
        name: &Name<'_>,
        change: Option<Change<'_>>,
        report: &mut Report,
    ) {
        if let Some(items) = &schema.items {
            let keyed = change.and_then(|change| change.keyed());
            for (index, element) in elements.iter().enumerate() {
                let change = keyed.as_ref().and_then(|keyed| keyed.find(element));
                self.node(items, element, &Name::Element(name, index), change, report);
            }
        }
        let length = size(elements.len());
        if let Some(least) = schema.checks.min_items.filter(|least| length < *least) {
            self.invalid(report, name, &length.to_string(), &format!("should have at least {least} items"));
        }
        if let Some(most) = schema.checks.max_items.filter(|most| length > *most) {
            self.too_many(report, name, length, most);
        }
        report.matches += 2;
    }

    fn too_many(&self, report: &mut Report, name: &Name<'_>, have: i64, most: i64) {
        let unit = if most == 1 { "item" } else { "items" };
        self.fail(report, "FieldValueTooMany", name, format!("Too many: {have}: must have at most {most} {unit}"));
    }

    fn enumeration(&self, schema: &Structural, value: &Value, name: &Name<'_>, report: &mut Report) {
        let values = &schema.checks.enumeration;
        if values.is_empty() || values.iter().any(|allowed| is_enum_value(value, allowed)) {
            return;
        }
        let text = |value: &Value| quote(&value.as_str().map_or_else(|| go::json(value), str::to_owned));
        let list: Vec<String> = values.iter().map(text).collect();
        let body = format!("Unsupported value: {}: supported values: {}", go::shown(value), list.join(", "));
        self.fail(report, "FieldValueNotSupported", name, body);
    }

    fn object(
        &self,
        schema: &Structural,
        members: &Map<String, Value>,
        name: &Name<'_>,
        change: Option<Change<'_>>,
        report: &mut Report,
    ) {
        let (checks, count) = (&schema.checks, size(members.len()));
        if let Some(least) = checks.min_properties.filter(|least| count < *least) {
            self.invalid(report, name, &count.to_string(), &format!("should have at least {least} properties"));
        }
        if let Some(most) = checks.max_properties.filter(|most| count > *most) {
            self.too_many(report, name, count, most);
        }
        self.further(schema, members, name, change, report);
        // The kind of an object does not change, so the old one gives no information about it.
        let root = matches!(name, Name::Root);
        let change_of = |property: &str| {
            let changed = change.filter(|_| !root || !matches!(property, "kind" | "apiVersion"));
            changed.and_then(|change| change.member(property))
        };
        for (property, known) in &schema.properties {
            if let Some(member) = members.get(&**property) {
                self.node(known, member, &Name::Property(name, property), change_of(property), report);
            }
        }
        for required in &checks.required {
            if !members.contains_key(&**required) {
                let name = Name::Further(name, required);
                self.fail(report, "FieldValueRequired", &name, "Required value".to_owned());
            }
        }
    }

    /// Members that are no properties.
    fn further(
        &self,
        schema: &Structural,
        members: &Map<String, Value>,
        name: &Name<'_>,
        change: Option<Change<'_>>,
        report: &mut Report,
    ) {
        let closed = schema.checks.closed;
        let known = match &schema.additional {
            Additional::Schema(known) => Some(known),
            Additional::None | Additional::Any if closed => None,
            Additional::None | Additional::Any => return,
        };
        for (property, member) in members {
            if schema.properties.contains_key(property.as_str()) {
                continue;
            }
            if let Some(known) = known {
                let change = change.and_then(|change| change.member(property));
                self.node(known, member, &Name::Further(name, property), change, report);
            } else {
                let detail =
                    format!("Invalid value: {}: {name}.{property} in body is a forbidden property", quote(property));
                self.fail(report, "FieldValueInvalid", name, detail);
            }
        }
    }
}

fn size(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn joined(types: &[Type]) -> String {
    types.iter().map(|ty| ty.as_str()).collect::<Vec<_>>().join(",")
}

/// Whether a value is one of an enumeration, after the conversion to its type that Go would do: numbers lose their
/// fraction or become characters. Null is never one.
fn is_enum_value(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Number(value), Value::Number(allowed)) => match (Num::of(value), Num::of(allowed)) {
            (Num::Float(value), Num::Int(allowed)) => go::to_int(value) == allowed,
            (value @ Num::Int(_), Num::Float(allowed)) => value.as_f64() == allowed,
            (value, allowed) => value == allowed,
        },
        (Value::Number(value), Value::String(allowed)) => {
            let Num::Int(value) = Num::of(value) else { return false };
            let c = u32::try_from(value).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
            allowed.chars().eq([c])
        }
        (value, allowed) => value == allowed,
    }
}
