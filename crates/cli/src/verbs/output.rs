//! Output formats of objects: tables, YAML, JSON, names, single values (`-o`). Pure.
//!
//! In: objects and a format. Out: text, as kubectl prints it.

pub(super) mod table;

use std::str::FromStr;

use anyhow::bail;
use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::jsonpath::{self, Node, Path};
use super::kinds::{Kinds, Resource};
use table::Table;

/// An output format.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OutputFormat {
    /// Rows and columns, more of them when wide.
    Table {
        wide: bool,
    },
    Yaml,
    Json,
    /// `service/web`.
    Name,
    JsonPath(Vec<Node>),
    /// Headings and paths.
    Columns(Vec<(String, Path)>),
}

impl FromStr for OutputFormat {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(match text.split_once('=').unwrap_or((text, "")) {
            ("wide", "") => Self::Table { wide: true },
            ("yaml", "") => Self::Yaml,
            ("json", "") => Self::Json,
            ("name", "") => Self::Name,
            ("jsonpath", path) if !path.is_empty() => Self::JsonPath(jsonpath::template(path)?),
            ("jsonpath", _) => bail!("a template is missing, as in -o jsonpath='{{.spec.clusterIP}}'"),
            ("custom-columns", list) if !list.is_empty() => Self::Columns(columns(list)?),
            ("custom-columns", _) => bail!("columns are missing, as in -o custom-columns=NAME:.metadata.name"),
            _ => bail!(
                "{text:?} is no form of output; there are wide, yaml, json, name, jsonpath=… and custom-columns=…"
            ),
        })
    }
}

/// Parses `HEADING:path,HEADING:path`.
fn columns(list: &str) -> anyhow::Result<Vec<(String, Path)>> {
    let mut out = Vec::new();
    for column in split_columns(list) {
        let Some((heading, path)) = column.split_once(':').filter(|(heading, _)| !heading.is_empty()) else {
            bail!("{column:?} is no column; write HEADING:path, as in NAME:.metadata.name");
        };
        out.push((heading.to_owned(), jsonpath::expression(path)?));
    }
    Ok(out)
}

/// Commas inside brackets do not separate columns.
fn split_columns(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut out) = (0_usize, 0, Vec::new());
    for (at, letter) in list.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                out.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    out.push(&list[start..]);
    out
}

/// One object, or a list of them, in a format other than a table.
pub(super) fn objects(form: &OutputFormat, kinds: &Kinds, objects: Vec<Value>, single: bool) -> String {
    match form {
        OutputFormat::Name => objects.iter().map(|object| name(kinds, object) + "\n").collect(),
        OutputFormat::Columns(columns) => custom(columns, &objects, true),
        OutputFormat::Yaml => api::yaml::to_yaml(&together(objects, single)),
        OutputFormat::Json => pretty(&together(objects, single)),
        OutputFormat::JsonPath(nodes) => jsonpath::render(nodes, &together(objects, single)),
        OutputFormat::Table { .. } => String::new(),
    }
}

/// A table of custom columns.
pub(super) fn custom(columns: &[(String, Path)], objects: &[Value], headings: bool) -> String {
    let mut table = Table::default();
    if headings {
        table.row(columns.iter().map(|(heading, _)| heading.clone()));
    }
    for object in objects {
        table.row(columns.iter().map(|(_, path)| {
            let found: Vec<String> = path.of(object).into_iter().map(jsonpath::text).collect();
            if found.is_empty() { "<none>".to_owned() } else { found.join(",") }
        }));
    }
    table.text(false)
}

fn together(mut objects: Vec<Value>, single: bool) -> Value {
    match single && objects.len() == 1 {
        true => objects.swap_remove(0),
        false => json!({"apiVersion": "v1", "kind": "List", "items": objects, "metadata": {"resourceVersion": ""}}),
    }
}

/// `service/web`.
fn name(kinds: &Kinds, object: &Value) -> String {
    let name = object.text("metadata.name");
    let kind: Option<&Resource> = kinds.of(object).ok();
    kind.map_or_else(|| format!("{}/{name}", object.text("kind").to_ascii_lowercase()), |kind| kind.named(name))
}

/// JSON for people, with four spaces.
pub(super) fn pretty(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    let mut out = String::with_capacity(text.len() * 2);
    for line in text.lines() {
        // Strings in JSON have no line breaks: leading spaces are the depth.
        let depth = line.len() - line.trim_start().len();
        out.push_str(&" ".repeat(depth));
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Removes managedFields.
pub(super) fn without_managed_fields(object: &mut Value) {
    object.drop_path("metadata.managedFields");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_parsed_and_unknown_ones_rejected() {
        assert_eq!("wide".parse::<OutputFormat>().expect("a form"), OutputFormat::Table { wide: true });
        assert!(matches!("jsonpath={.a}".parse::<OutputFormat>().expect("a form"), OutputFormat::JsonPath(_)));
        for bad in ["yml", "jsonpath", "jsonpath={.a", "custom-columns=", "custom-columns=.a"] {
            assert!(bad.parse::<OutputFormat>().is_err(), "{bad}");
        }
    }

    #[test]
    fn custom_columns_have_headings_and_missing_values_are_none() {
        let OutputFormat::Columns(columns) =
            "custom-columns=NAME:.metadata.name,PORTS:.ports[0,1]".parse().expect("a form")
        else {
            panic!("other columns")
        };
        let objects =
            [json!({"metadata": {"name": "a"}, "ports": [1, 2]}), json!({"metadata": {"name": "longer-name"}})];
        assert_eq!(custom(&columns, &objects, true), "NAME          PORTS\na             1,2\nlonger-name   <none>\n");
    }

    #[test]
    fn json_has_four_spaces() {
        assert_eq!(pretty(&json!({"a": [1]})), "{\n    \"a\": [\n        1\n    ]\n}\n");
    }

    #[test]
    fn one_object_is_itself_and_several_are_a_list() {
        let kinds = Kinds::default();
        let one = json!({"kind": "Node", "metadata": {"name": "n"}});
        assert_eq!(objects(&OutputFormat::Name, &kinds, vec![one.clone()], true), "node/n\n");
        assert!(objects(&OutputFormat::Yaml, &kinds, vec![one.clone()], true).starts_with("kind: Node"));
        assert!(objects(&OutputFormat::Yaml, &kinds, vec![one], false).contains("kind: List"));
    }
}
