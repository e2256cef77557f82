//! `waypost describe`: the fields of objects, and their Events.
//!
//! In: objects, and related ones (slices of a Service, Pods of a Node, ReplicaSets of a Deployment, Events of all). Out: a
//! [`Sheet`] for each. The description of a kind is one file and one line in [`describe`]; other kinds are described by
//! their fields.

mod certificate;
mod containers;
mod generic;
mod node;
mod pod;
mod service;
mod sheet;
mod workload;

use anyhow::ensure;
use api::value::ValueExt as _;
use api::view::labels::SERVICE_NAME;
use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::client::{Client, Query};
use super::connect::Connection;
use super::output::table::Table;
use super::target::{self, Choice, Object};
use crate::terminal;
use sheet::Sheet;

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// What to describe: KIND[,KIND…] [NAME…], or KIND/NAME …
    #[arg(value_name = "KIND[/NAME]")]
    words: Vec<String>,
    /// Those with these labels
    #[arg(short = 'l', long, default_value = "", value_name = "LABELS")]
    selector: String,
    /// In all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// The objects in this file or directory; - is standard input
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<String>,
    /// Whether to show Events
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    show_events: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let mut client = arguments.connection.client()?;
    ensure!(
        !arguments.words.is_empty() || !arguments.filename.is_empty(),
        "what should be described? name it, as in `waypost describe service web`"
    );
    let choice = Choice {
        words: &arguments.words,
        files: &arguments.filename,
        selector: &arguments.selector,
        all: true,
        all_namespaces: arguments.all_namespaces,
        ..Choice::default()
    };
    let objects = target::objects(&mut client, &choice).await?;
    if objects.is_empty() {
        terminal::note(&format!("No resources found in {} namespace.", client.namespace));
    }
    for (number, object) in objects.iter().enumerate() {
        let mut sheet = describe(&mut client, object).await?;
        if arguments.show_events {
            events(&mut client, object, &mut sheet).await?;
        }
        let separator = if number > 0 { "\n\n" } else { "" };
        terminal::print(&format!("{separator}{}", sheet.text()))?;
    }
    Ok(())
}

async fn describe(client: &mut Client, object: &Object) -> anyhow::Result<Sheet> {
    let mut sheet = Sheet::default();
    match (object.kind.group.as_str(), object.kind.plural.as_str()) {
        ("", "services") => {
            let label = format!("{SERVICE_NAME}={}", object.name);
            let slices = related(client, "endpointslices", object, &label).await?;
            service::describe(&object.value, &slices, &mut sheet);
        }
        ("", "pods") => pod::describe(&object.value, &mut sheet),
        ("", "nodes") => {
            let query = Query::new().add("fieldSelector", &format!("spec.nodeName={}", object.name));
            let path = client.kind("pods").await?.path(None, None);
            let pods = client.list(&path, &query, "application/json").await?;
            node::describe(&object.value, pods.items("items"), &mut sheet);
        }
        ("apps", "deployments") => {
            let selector = super::pods::selector(&object.value).unwrap_or_default();
            let sets = related(client, "replicasets", object, &selector).await?;
            workload::describe(&object.value, &sets, &mut sheet);
        }
        ("apps", "daemonsets" | "replicasets" | "statefulsets") | ("", "replicationcontrollers") => {
            let selector = super::pods::selector(&object.value).unwrap_or_default();
            let pods = related(client, "pods", object, &selector).await?;
            workload::describe(&object.value, &pods, &mut sheet);
        }
        ("certificates.k8s.io", "certificatesigningrequests") => certificate::describe(&object.value, &mut sheet),
        _ => generic::describe(&object.value, &mut sheet),
    }
    Ok(sheet)
}

/// Objects of the same namespace with these labels; none if the user may not list them.
async fn related(client: &mut Client, kind: &str, object: &Object, selector: &str) -> anyhow::Result<Vec<Value>> {
    let kind = client.kind(kind).await?;
    let query = Query::new().add("labelSelector", selector);
    let path = kind.path(Some(&object.namespace), None);
    let list = client.list(&path, &query, "application/json").await.unwrap_or_default();
    Ok(list.items("items").to_vec())
}

/// The Events of an object.
async fn events(client: &mut Client, object: &Object, sheet: &mut Sheet) -> anyhow::Result<()> {
    let kind = client.kind("events").await?;
    let mut fields = format!("involvedObject.name={},involvedObject.kind={}", object.name, object.kind.kind);
    // Events about Nodes have the name of the Node as uid.
    if object.kind.namespaced {
        fields.push_str(&format!(",involvedObject.uid={}", object.value.text("metadata.uid")));
    }
    let namespace = object.kind.namespaced.then_some(object.namespace.as_str());
    let query = Query::new().add("fieldSelector", &fields);
    let list = client.list(&kind.path(namespace, None), &query, "application/json").await.unwrap_or_default();
    let mut events = list.items("items").to_vec();
    events.sort_by_key(|event| last_seen(event).to_owned());
    if events.is_empty() {
        sheet.field("Events", "<none>");
        return Ok(());
    }
    let mut table = Table::default();
    table.row(["Type", "Reason", "Age", "From", "Message"].map(str::to_owned));
    table.row(["----", "------", "----", "----", "-------"].map(str::to_owned));
    let now = Timestamp::now();
    for event in &events {
        table.row(event_row(event, now));
    }
    sheet.heading("Events");
    sheet.block(2, &table.text(false));
    Ok(())
}

/// When an event was last seen.
fn last_seen(event: &Value) -> &str {
    let fields = ["series.lastObservedTime", "lastTimestamp", "eventTime", "metadata.creationTimestamp"];
    fields.iter().map(|field| event.text(field)).find(|text| !text.is_empty()).unwrap_or_default()
}

fn event_row(event: &Value, now: Timestamp) -> [String; 5] {
    let since = |text: &str| api::table::since(&Value::from(text), now);
    let count = event.int("count").max(event.int("series.count"));
    let first = ["firstTimestamp", "eventTime"].iter().map(|field| event.text(field)).find(|text| !text.is_empty());
    let age = match count {
        2.. => format!("{} (x{count} over {})", since(last_seen(event)), since(first.unwrap_or_default())),
        _ => since(last_seen(event)),
    };
    let from = match event.text("source.component") {
        "" => event.text("reportingComponent"),
        component => component,
    };
    let own = |text: &str| text.trim().replace('\n', " ");
    [own(event.text("type")), own(event.text("reason")), age, own(from), own(event.text("message"))]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_have_a_count_and_an_age() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().expect("a time");
        let event = json!({"type": "Warning", "reason": "BackOff", "message": "again\n", "count": 4,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:09:30Z", "source": {"component": "kubelet"}});
        assert_eq!(event_row(&event, now), ["Warning", "BackOff", "30s (x4 over 10m)", "kubelet", "again"]);
    }
}
