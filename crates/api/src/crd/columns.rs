//! Printer columns: how objects of a defined kind are shown by `kubectl get`.
//!
//! In: a version of a definition, compiled once ([`columns`]), an object and the time of the request. Out: the cells of
//! its row. A value that is missing, or does not fit the type of its column, is a null cell.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::jsonpath::JsonPath;
use crate::decode::scalar;
use crate::table;
use crate::timestamp::{Moment, Precision};
use crate::value::ValueExt as _;

/// The columns of a version; the first is the name.
#[derive(Clone, PartialEq, Debug)]
pub struct Columns(pub Vec<Column>);

/// One column.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// `name` for the first column, else the format from the definition.
    pub format: String,
    /// What it means.
    pub description: String,
    /// 0 is always shown, more with `-o wide`.
    pub priority: i64,
    /// Where the value is; `None` for the name.
    path: Option<JsonPath>,
}

/// The columns of a version: those that it lists, or the age. Columns from the first whose path cannot be parsed on are
/// left out.
#[must_use]
pub fn columns(version: &Value) -> Columns {
    let name = Column {
        name: table::NAME.name.to_owned(),
        kind: table::NAME.kind.to_owned(),
        format: table::NAME.format.to_owned(),
        description: table::NAME.description.to_owned(),
        priority: 0,
        path: None,
    };
    let age = json!([{
        "name": table::AGE.name, "type": "date", "description": table::AGE.description,
        "jsonPath": ".metadata.creationTimestamp",
    }]);
    let listed = version.items("additionalPrinterColumns");
    let listed = if listed.is_empty() { age.as_array().map_or(&[][..], Vec::as_slice) } else { listed };
    Columns(std::iter::once(name).chain(listed.iter().map_while(column)).collect())
}

fn column(definition: &Value) -> Option<Column> {
    let path = definition.text("jsonPath");
    let description = match definition.text("description") {
        "" => format!("Custom resource definition column (in JSONPath format): {path}"),
        text => text.to_owned(),
    };
    Some(Column {
        name: definition.text("name").to_owned(),
        kind: definition.text("type").to_owned(),
        format: definition.text("format").to_owned(),
        description,
        priority: definition.int("priority"),
        path: Some(JsonPath::parse(path).ok()?),
    })
}

/// The cells of an object, one for each column.
#[must_use]
pub fn row(columns: &Columns, object: &Value, now: Timestamp) -> Vec<Value> {
    let cell = |column: &Column| match &column.path {
        None => object.text("metadata.name").into(),
        Some(path) => path.first(object).map_or(Value::Null, |value| cell(&column.kind, &value, now)),
    };
    columns.0.iter().map(cell).collect()
}

impl Columns {
    /// The columns as a Table lists them.
    #[must_use]
    pub fn definitions(&self) -> Vec<Value> {
        let definition = |column: &Column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format, "description": column.description,
                "priority": column.priority,
            })
        };
        self.0.iter().map(definition).collect()
    }
}

fn cell(kind: &str, value: &Value, now: Timestamp) -> Value {
    match (kind, value) {
        ("string", value) => text(value).into(),
        ("integer", Value::Number(number)) if number.is_f64() => {
            number.as_f64().map_or(Value::Null, |number| (number as i64).into())
        }
        ("integer" | "number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(time)) => age(time, now).into(),
        _ => Value::Null,
    }
}

/// A value as Go prints it; lists and maps as JSON.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => float(number.as_f64().unwrap_or_default()),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(_) | Value::Object(_) => {
            value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
        }
    }
}

/// A number as Go's `%v` prints it: with an exponent when it is very large or small.
fn float(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    match scalar::float(number) {
        Value::Number(whole) if whole.is_i64() => whole.to_string(),
        _ => format!("{number}"),
    }
}

fn age(time: &str, now: Timestamp) -> String {
    if matches!(time, "" | "null") {
        return table::since(&Value::Null, now);
    }
    match Moment::parse(time, Precision::Seconds) {
        Err(_) => "<invalid>".to_owned(),
        Ok(moment) if moment.is_zero() => table::since(&Value::Null, now),
        Ok(moment) => {
            let then = moment.seconds.saturating_mul(1000).saturating_add(i64::from(moment.nanos / 1_000_000));
            table::duration(now.as_millisecond().saturating_sub(then))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd;
    use crate::kinds::testing::topic;

    fn now() -> Timestamp {
        "2026-01-02T00:00:00Z".parse().expect("a time")
    }

    fn cells(columns: &[(&str, &str)], spec: &Value) -> Vec<Value> {
        let listed: Vec<Value> =
            columns.iter().map(|(kind, path)| json!({"name": "C", "type": kind, "jsonPath": path})).collect();
        let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T23:00:00Z"}, "spec": spec});
        row(&super::columns(&json!({"additionalPrinterColumns": listed})), &object, now())
    }

    #[test]
    fn cells_have_the_type_of_their_column() {
        let all = [
            ("string", ".spec.color"),
            ("integer", ".spec.size"),
            ("number", ".spec.weight"),
            ("boolean", ".spec.on"),
            ("date", ".spec.when"),
            ("date", ".metadata.creationTimestamp"),
        ];
        let spec = json!({"color": "red", "size": 3, "weight": 1.5, "on": true});
        assert_eq!(
            cells(&all, &spec),
            [json!("a"), json!("red"), json!(3), json!(1.5), json!(true), json!(null), json!("60m")]
        );
        let none = [json!("a"), json!(null), json!(null), json!(null), json!(null), json!(null), json!("60m")];
        assert_eq!(cells(&all, &json!({})), none);
    }

    #[test]
    fn values_of_another_type_are_converted_or_left_out() {
        let spec = json!({"color": "red", "size": 4, "map": {"b": [1, "<"]}, "large": 1e30, "zero": null, "old": "2020-01-01T00:00:00Z"});
        let odd = [
            ("integer", ".spec.color"),
            ("date", ".spec.color"),
            ("boolean", ".spec.color"),
            ("string", ".spec.size"),
            ("string", ".spec.map"),
            ("string", ".spec.large"),
            ("string", ".spec.zero"),
            ("integer", ".spec.zero"),
            ("date", ".spec.old"),
        ];
        assert_eq!(
            cells(&odd, &spec)[1..],
            [
                json!(null),
                json!("<invalid>"),
                json!(null),
                json!("4"),
                json!("{\"b\":[1,\"\\u003c\"]}"),
                json!("1e+30"),
                json!("<no value>"),
                json!(null),
                json!("6y3d"),
            ]
        );
    }

    /// Replays the recorded tables: the objects that a case creates, shown in the columns of its definition.
    #[test]
    fn golden_answers() {
        let topic = topic("../crds/cr-tables");
        for case in topic.items("cases") {
            let steps = case.items("steps");
            let of_kind = |kind: &'static str| {
                steps.iter().map(|step| step.at("body")).filter(move |body| body.text("kind") == kind)
            };
            let definition = of_kind("CustomResourceDefinition").next().expect("a definition");
            let is_list = |step: &&Value| step.text("expect.body.kind") == "Table";
            for step in steps.iter().filter(is_list) {
                let version = step.text("path").split('/').nth(3).expect("a version");
                let columns = columns(crd::find_version(definition, version).expect("the version"));
                let mut definitions = columns.definitions();
                definitions.iter_mut().for_each(|column| drop(column.drop_path("description")));
                assert_eq!(definitions, step.items("expect.body.columnDefinitions"), "{}", case.text("id"));
                for (object, wanted) in of_kind("Widget").zip(step.items("expect.body.rows")) {
                    let mut object = object.clone();
                    object.put("metadata.creationTimestamp", "2026-01-01T00:00:00Z");
                    let cells = row(&columns, &object, now());
                    assert_eq!(cells.len(), wanted.items("cells").len(), "{}", case.text("id"));
                    for (cell, wanted) in
                        cells.iter().zip(wanted.items("cells")).filter(|(_, wanted)| *wanted != "<age>")
                    {
                        assert_eq!(cell, wanted, "{}", case.text("id"));
                    }
                }
            }
        }
    }

    #[test]
    fn a_version_without_columns_shows_the_age() {
        let plain = columns(&json!({}));
        let headings: Vec<&str> = plain.0.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(headings, ["Name", "Age"]);
        assert_eq!(plain.definitions()[1]["type"], "date");
        let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T23:59:00Z"}});
        assert_eq!(row(&plain, &object, now()), [json!("a"), json!("60s")]);
        let broken =
            json!({"additionalPrinterColumns": [{"name": "A", "jsonPath": ".a"}, {"name": "B", "jsonPath": ".b["}]});
        assert_eq!(columns(&broken).0.len(), 2);
    }
}
