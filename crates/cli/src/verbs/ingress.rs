//! `waypost ingress convert`: Ingresses as objects of the Gateway API.
//!
//! In: manifests, or the Ingresses and Services of a server. Out: YAML documents or a JSON List on standard output, and on
//! standard error what has no equivalent. Nothing is written to the server.

use anyhow::Context as _;
use api::value::ValueExt as _;
use api::view::{Ingress, Service};
use clap::{Args, Subcommand, ValueEnum};
use routing::ingress::convert::{Conversion, convert};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::client::Query;
use super::connect::Connection;
use super::manifest;
use crate::terminal;

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Subject {
    /// Print the objects of the Gateway API that are equivalent to Ingresses
    Convert(Arguments),
}

/// Settings of `convert`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Files or folders with Ingresses, and Services if they name ports; - for standard input [default: those of the server]
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<String>,
    /// All namespaces of the server
    #[arg(short = 'A', long, conflicts_with = "filename")]
    all_namespaces: bool,
    /// The class of the Gateways
    #[arg(long, default_value = "waypost", value_name = "NAME")]
    gateway_class: String,
    /// Output format
    #[arg(short, long, default_value = "yaml", value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    connection: Connection,
}

/// Output format.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// Documents, with what has no equivalent as comments.
    Yaml,
    /// A List.
    Json,
}

/// Runs the verb.
pub(super) async fn exec(subject: Subject) -> anyhow::Result<()> {
    let Subject::Convert(arguments) = subject;
    let objects = match arguments.filename.is_empty() {
        true => from_server(&arguments).await?,
        false => from_files(&arguments)?,
    };
    let (ingresses, services) = (read::<Ingress>(&objects, "Ingress")?, read::<Service>(&objects, "Service")?);
    if ingresses.is_empty() {
        terminal::note("No Ingresses found");
        return Ok(());
    }
    let conversion = convert(&ingresses, &services, &arguments.gateway_class);
    terminal::print(&render(&conversion, arguments.output)?)?;
    for note in &conversion.notes {
        terminal::warn(&format!("Ingress {}: {}", note.ingress, note.message));
    }
    Ok(())
}

/// The objects of manifests. Those without a namespace are in the one of `-n`, or in `default`.
fn from_files(arguments: &Arguments) -> anyhow::Result<Vec<Value>> {
    let namespace = arguments.connection.namespace().unwrap_or("default");
    let documents = manifest::read(&arguments.filename)?;
    let located = |mut object: Value| {
        if object.text("metadata.namespace").is_empty() {
            object.put("metadata.namespace", namespace);
        }
        object
    };
    Ok(documents.into_iter().map(|document| located(document.object)).collect())
}

async fn from_server(arguments: &Arguments) -> anyhow::Result<Vec<Value>> {
    let mut client = arguments.connection.client()?;
    let mut all = Vec::new();
    for name in ["ingresses.networking.k8s.io", "services"] {
        let kind = client.kind(name).await?;
        let namespace = (!arguments.all_namespaces).then(|| client.namespace.clone());
        let list = client.list(&kind.path(namespace.as_deref(), None), &Query::default(), "application/json").await?;
        all.extend(list.items("items").iter().map(|item| {
            let mut item = item.clone();
            kind.set_type(&mut item);
            item
        }));
    }
    Ok(all)
}

/// The objects of a kind.
fn read<T: DeserializeOwned>(objects: &[Value], kind: &str) -> anyhow::Result<Vec<T>> {
    let of_kind = objects.iter().filter(|object| object.text("kind") == kind);
    let parse = |object: &Value| {
        let place = || format!("{kind} {}/{}", object.text("metadata.namespace"), object.text("metadata.name"));
        serde_json::from_value(object.clone()).with_context(place)
    };
    of_kind.map(parse).collect()
}

/// The objects as text.
fn render(conversion: &Conversion, format: Format) -> anyhow::Result<String> {
    if format == Format::Json {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": conversion.objects});
        return Ok(format!("{}\n", serde_json::to_string_pretty(&list)?));
    }
    let mut text = String::new();
    for note in &conversion.notes {
        text.push_str(&format!("# Ingress {}: {}\n", note.ingress, note.message.replace('\n', " ")));
    }
    for (number, object) in conversion.objects.iter().enumerate() {
        if number > 0 || !text.is_empty() {
            text.push_str("---\n");
        }
        text.push_str(&api::yaml::to_yaml(object));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> Vec<Value> {
        vec![
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
                "metadata": {
                    "name": "shop", "namespace": "web",
                    "annotations": {"nginx.ingress.kubernetes.io/server-snippet": "x"},
                },
                "spec": {"rules": [{"host": "shop.example", "http": {"paths": [{
                    "path": "/", "pathType": "Prefix", "backend": {"service": {"name": "shop", "port": {"name": "web"}}},
                }]}}]},
            }),
            json!({"kind": "Service", "metadata": {"name": "shop", "namespace": "web"}, "spec": {"ports": [{"name": "web", "port": 8080}]}}),
            json!({"kind": "ConfigMap", "metadata": {"name": "other"}}),
        ]
    }

    #[test]
    fn documents_can_be_read_again() {
        let (ingresses, services) = (read(&objects(), "Ingress").unwrap(), read(&objects(), "Service").unwrap());
        let conversion = convert(&ingresses, &services, "waypost");
        let yaml = render(&conversion, Format::Yaml).unwrap();
        assert!(
            yaml.starts_with(
                "# Ingress web/shop: annotation nginx.ingress.kubernetes.io/server-snippet is not honoured"
            )
        );
        let documents: Vec<Value> =
            yaml.split("---\n").skip(1).map(|part| api::yaml::from_yaml(part.as_bytes()).unwrap().0).collect();
        assert_eq!(documents, conversion.objects);
        assert_eq!(documents.iter().map(|object| object.text("kind")).collect::<Vec<_>>(), ["Gateway", "HTTPRoute"]);
        let list: Value = serde_json::from_str(&render(&conversion, Format::Json).unwrap()).unwrap();
        assert_eq!(list["items"], json!(conversion.objects));
    }

    #[test]
    fn objects_of_another_shape_are_errors() {
        let broken = [json!({"kind": "Ingress", "metadata": {"name": "x", "namespace": "y"}, "spec": "text"})];
        let error = read::<Ingress>(&broken, "Ingress").unwrap_err();
        assert_eq!(error.to_string(), "Ingress y/x");
    }
}
