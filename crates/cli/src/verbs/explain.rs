//! `waypost explain KIND[.FIELD…]`: documentation of a kind from the OpenAPI document of the server; `waypost explain svc/NAME`: the
//! endpoints of a Service and the reasons ([`crate::why::explain`]); `waypost explain route/NAME`: where the traffic of a Gateway, a
//! route or an Ingress goes, and why not ([`crate::why::routes`]).
//!
//! An argument that is not a kind is the name of a Service.

use anyhow::{Context as _, bail};
use api::value::ValueExt as _;
use clap::Args;
use serde_json::Value;

use super::connect::Connection;
use super::kinds::{Resource, nearest};
use crate::host::Host;
use crate::terminal;
use crate::why::explain::Question;
use crate::why::{self, Output};

/// Line width.
const WIDTH: usize = 80;

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// A kind, optionally with a field, as in pod.spec.containers; or a Service, a Gateway, a route or an Ingress, as in svc/web, gateway/web, route/web
    #[arg(value_name = "KIND[.FIELD]|KIND/NAME", required = true, num_args = 1..=2)]
    subject: Vec<String>,
    /// A Service as this node sees it [default: this machine, or the first node there is]
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Output format for a Service, a Gateway, a route or an Ingress
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
    /// Show fields recursively
    #[arg(long)]
    recursive: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments, host: &dyn Host) -> anyhow::Result<()> {
    let mut client = arguments.connection.client()?;
    if let Some((kinds, name)) = why::routes::subject(&arguments.subject) {
        let namespace = client.namespace.clone();
        return why::routes::answer(&mut client.api(), kinds, (&namespace, name), arguments.output).await;
    }
    let kinds = client.kinds().await?;
    let service = match &arguments.subject[..] {
        [kind, name] if kinds.find(kind).is_ok_and(|kind| kind.kind == "Service") => name,
        [one] if one.contains('/') || kinds.find(first_word(one)).is_err() => one,
        [one] => {
            let (kind, fields) = (kinds.find(first_word(one))?, one.split('.').skip(1).collect::<Vec<_>>());
            let document = client.get(&format!("/openapi/v3{}", root(kind))).await?;
            return terminal::print(&page(&document, kind, &fields, arguments.recursive)?);
        }
        words => {
            bail!("{:?} is no Service; write `waypost explain svc/NAME` or `waypost explain KIND`", words.join(" "))
        }
    };
    let (namespace, node) = (client.namespace.clone(), arguments.node.as_deref());
    let question = Question { service, namespace: &namespace, node, output: arguments.output };
    why::explain::answer(&mut client.api(), &question, host).await
}

/// The kind, without fields.
fn first_word(subject: &str) -> &str {
    subject.split('.').next().unwrap_or_default()
}

fn root(kind: &Resource) -> String {
    let version = kind.api_version();
    if kind.group.is_empty() { format!("/api/{version}") } else { format!("/apis/{version}") }
}

/// The documentation of a kind or field.
fn page(document: &Value, kind: &Resource, fields: &[&str], recursive: bool) -> anyhow::Result<String> {
    let schemas = document.at("components.schemas").as_object().context("the server describes no kinds")?;
    let is_it = |schema: &&Value| {
        schema.items("x-kubernetes-group-version-kind").iter().any(|one| {
            one.text("group") == kind.group && one.text("version") == kind.version && one.text("kind") == kind.kind
        })
    };
    let all = Schemas(schemas);
    let top = schemas.values().find(is_it).with_context(|| format!("the server does not describe {}", kind.kind))?;
    let (mut here, mut description, mut name) = (top, top.text("description"), String::new());
    let mut shown_type = String::new();
    for field in fields {
        let inside = all.inside(here);
        let properties = inside.at("properties").as_object();
        let found = properties.and_then(|properties| properties.get(*field));
        let found = found.with_context(|| {
            let names = properties.into_iter().flatten().map(|(name, _)| name.as_str());
            let near = nearest(field, names).map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
            let place = if name.is_empty() { kind.kind.clone() } else { name.clone() };
            format!("{place} has no field {field:?}{near}")
        })?;
        description = found.text("description");
        if description.is_empty() {
            description = all.inside(found).text("description");
        }
        shown_type = all.type_name(found);
        (here, name) = (found, (*field).to_owned());
    }
    let mut out = String::new();
    if !kind.group.is_empty() {
        out.push_str(&format!("GROUP:      {}\n", kind.group));
    }
    out.push_str(&format!("KIND:       {}\nVERSION:    {}\n\n", kind.kind, kind.version));
    if !name.is_empty() {
        out.push_str(&format!("FIELD: {name} <{shown_type}>\n\n"));
    }
    let description = if description.is_empty() { "<empty>" } else { description };
    out.push_str(&format!("DESCRIPTION:\n{}\n", wrapped(description, 4)));
    let inside = all.inside(here);
    if inside.at("properties").is_object() {
        out.push_str("FIELDS:\n");
        all.fields(inside, 2, recursive, &mut Vec::new(), &mut out);
    }
    Ok(out)
}

/// The schemas of a document, by name.
struct Schemas<'d>(&'d serde_json::Map<String, Value>);

impl<'d> Schemas<'d> {
    /// The schema itself, after references, lists and maps.
    fn inside(&self, schema: &'d Value) -> &'d Value {
        if let Some(name) = reference(schema) {
            return self.0.get(name).map_or(schema, |found| self.inside(found));
        }
        for key in ["items", "additionalProperties"] {
            if schema.at(key).is_object() {
                return self.inside(schema.at(key));
            }
        }
        schema
    }

    /// `string`, `[]Container`, `map[string]string`.
    fn type_name(&self, schema: &Value) -> String {
        if let Some(name) = reference(schema) {
            let short = name.rsplit('.').next().unwrap_or(name);
            let target = self.0.get(name);
            return match target.map(|target| (target.text("type"), target.has("properties"))) {
                Some((plain, false)) if !plain.is_empty() && plain != "object" => plain.to_owned(),
                _ => short.to_owned(),
            };
        }
        match schema.text("type") {
            "array" => format!("[]{}", self.type_name(schema.at("items"))),
            "object" if schema.at("additionalProperties").is_object() => {
                format!("map[string]{}", self.type_name(schema.at("additionalProperties")))
            }
            "object" => "Object".to_owned(),
            "" => "string".to_owned(),
            plain => plain.to_owned(),
        }
    }

    /// Lines for the fields of a schema; recursive schemas are expanded once.
    fn fields(&self, schema: &'d Value, indent: usize, deep: bool, open: &mut Vec<*const Value>, out: &mut String) {
        let required = schema.texts("required");
        open.push(schema);
        for (name, field) in schema.at("properties").as_object().into_iter().flatten() {
            let mark = if required.contains(&name.as_str()) { " -required-" } else { "" };
            out.push_str(&format!("{}{name}\t<{}>{mark}\n", " ".repeat(indent), self.type_name(field)));
            let inside = self.inside(field);
            if deep {
                if !open.contains(&std::ptr::from_ref(inside)) {
                    self.fields(inside, indent + 2, deep, open, out);
                }
                continue;
            }
            let own = field.text("description");
            let text = if own.is_empty() { inside.text("description") } else { own };
            out.push_str(&wrapped(text, indent + 2));
            out.push('\n');
        }
        open.pop();
    }
}

/// The name of a reference.
fn reference(schema: &Value) -> Option<&str> {
    let own = schema.get("$ref").and_then(Value::as_str);
    let only = || schema.items("allOf").first().and_then(|first| first.get("$ref")).and_then(Value::as_str);
    own.or_else(only).map(|path| path.rsplit('/').next().unwrap_or(path))
}

/// Text in lines of bounded length.
fn wrapped(text: &str, indent: usize) -> String {
    let pad = " ".repeat(indent);
    let mut out = String::new();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && pad.len() + line.len() + 1 + word.len() > WIDTH {
                out.push_str(&format!("{pad}{line}\n"));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        out.push_str(if line.is_empty() { "" } else { &pad });
        out.push_str(&line);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_broken_at_words() {
        let text = wrapped(&"word ".repeat(40), 4);
        assert!(text.lines().all(|line| line.len() <= WIDTH && line.starts_with("    word")), "{text}");
        assert_eq!(wrapped("a\n\nb", 2), "  a\n\n  b\n");
    }
}
