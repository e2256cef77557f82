//! `waypost expose`: creates a Service for a Pod, or for an object that creates or selects Pods.
//!
//! Selector and labels default to those of the object, ports to those of its containers.

use anyhow::{Context as _, ensure};
use api::value::ValueExt as _;
use clap::Args;
use serde_json::{Value, json};

use super::apply::DryRun;
use super::client::{MANAGER, Query};
use super::connect::Connection;
use super::output::{self, OutputFormat};
use super::target::Object;
use super::{run, target};
use crate::terminal;

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// What to expose: KIND NAME or KIND/NAME, of a pod, deployment, rs, rc or service
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    words: Vec<String>,
    /// The port of the Service [default: the ports of the containers]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// The port of the Pods, by number or name [default: the same]
    #[arg(long, value_name = "PORT")]
    target_port: Option<String>,
    /// The name of the Service [default: the name of the object]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// TCP, UDP or SCTP [default: TCP]
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<String>,
    /// ClusterIP, NodePort, LoadBalancer or ExternalName
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// The address of the Service; None for a headless one
    #[arg(long, value_name = "IP")]
    cluster_ip: Option<String>,
    /// An additional (external) address
    #[arg(long, value_name = "IP")]
    external_ip: Option<String>,
    /// ClientIP or None
    #[arg(long, value_name = "AFFINITY")]
    session_affinity: Option<String>,
    /// The selector [default: that of the object]
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE")]
    selector: Vec<String>,
    /// Labels of the Service [default: those of the object]
    #[arg(short = 'l', long, value_delimiter = ',', value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// Change nothing, and print what would be created
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "server")]
    dry_run: DryRun,
    /// Print the Service: yaml, json, name, …
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,
    #[command(flatten)]
    connection: Connection,
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let mut client = arguments.connection.client()?;
    let kinds = client.kinds().await?;
    let one = target::parse_one(&kinds, &arguments.words, None)?;
    let object = target::one(&mut client, &one).await?;
    let service = service(&arguments, &object)?;
    let kind = client.kind("services").await?;
    let query = Query::new().add("fieldManager", MANAGER).add("dryRun", arguments.dry_run.query());
    let path = query.on(&client.path(&kind, None));
    let mut made = client
        .post(&path, &service)
        .await
        .with_context(|| format!("making service/{}; --name gives it another name", service.text("metadata.name")))?;
    let Some(form) = &arguments.output else {
        let name = kind.named(made.text("metadata.name"));
        return terminal::print(&format!("{name} exposed{}\n", arguments.dry_run.remark()));
    };
    output::without_managed_fields(&mut made);
    terminal::print(&output::objects(form, &kinds, vec![made], true))
}

/// The Service for an object.
fn service(arguments: &Arguments, object: &Object) -> anyhow::Result<Value> {
    let selector = match &arguments.selector[..] {
        [] => selector(object)?,
        given => pairs(given, "--selector")?,
    };
    let labels = match &arguments.labels[..] {
        [] => object.value.at("metadata.labels").clone(),
        given => pairs(given, "--labels")?,
    };
    let mut spec = json!({"selector": selector, "ports": ports(arguments, object)?});
    for (field, given) in [
        ("type", &arguments.kind),
        ("clusterIP", &arguments.cluster_ip),
        ("sessionAffinity", &arguments.session_affinity),
    ] {
        if let Some(given) = given {
            spec.put(field, given.as_str());
        }
    }
    if let Some(address) = &arguments.external_ip {
        spec.put("externalIPs", vec![address.as_str()]);
    }
    let mut metadata = json!({"name": arguments.name.as_ref().unwrap_or(&object.name)});
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        metadata.put("labels", labels);
    }
    Ok(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}))
}

fn pairs(given: &[String], flag: &str) -> anyhow::Result<Value> {
    let mut out = json!({});
    for text in given {
        let (key, value) = run::pair(text, flag)?;
        out[key] = value.into();
    }
    Ok(out)
}

/// The selector of an object; for a Pod, its labels.
fn selector(object: &Object) -> anyhow::Result<Value> {
    let value = &object.value;
    let found = match object.kind.plural.as_str() {
        "pods" => value.at("metadata.labels"),
        "services" | "replicationcontrollers" => value.at("spec.selector"),
        "deployments" | "replicasets" | "statefulsets" => {
            ensure!(
                value.items("spec.selector.matchExpressions").is_empty(),
                "{} selects by expressions, which a Service cannot: say --selector KEY=VALUE",
                object.named()
            );
            value.at("spec.selector.matchLabels")
        }
        _ => anyhow::bail!(
            "{} cannot be exposed; a pod, deployment, replicaset, statefulset, replicationcontroller or service can",
            object.named()
        ),
    };
    let has_labels = found.as_object().is_some_and(|labels| !labels.is_empty());
    ensure!(
        has_labels,
        "{} has no labels to select it by; `waypost label {0} app={}` gives it one, or say --selector",
        object.named(),
        object.name
    );
    Ok(found.clone())
}

fn ports(arguments: &Arguments, object: &Object) -> anyhow::Result<Vec<Value>> {
    let target =
        arguments.target_port.as_ref().map(|text| text.parse::<u16>().map_or_else(|_| json!(text), |n| json!(n)));
    if let Some(port) = arguments.port {
        let protocol = arguments.protocol.as_deref().unwrap_or("TCP");
        return Ok(vec![json!({"port": port, "protocol": protocol, "targetPort": target.unwrap_or(json!(port))})]);
    }
    let value = &object.value;
    let own: Vec<(i64, &str)> = match object.kind.plural.as_str() {
        "services" => value.items("spec.ports").iter().map(|port| (port.int("port"), port.text("protocol"))).collect(),
        kind => {
            let spec = if kind == "pods" { value.at("spec") } else { value.at("spec.template.spec") };
            let containers = spec.items("containers").iter();
            containers
                .flat_map(|container| container.items("ports"))
                .map(|port| (port.int("containerPort"), port.text("protocol")))
                .collect()
        }
    };
    ensure!(!own.is_empty(), "the port is missing: the containers of {} name none, so say --port", object.named());
    let many = own.len() > 1;
    let port = |(number, (port, protocol)): (usize, (i64, &str))| {
        let protocol = arguments.protocol.as_deref().unwrap_or(if protocol.is_empty() { "TCP" } else { protocol });
        let mut out = json!({"port": port, "protocol": protocol, "targetPort": target.clone().unwrap_or(json!(port))});
        if many {
            out.put("name", format!("port-{}", number + 1));
        }
        out
    };
    Ok(own.into_iter().enumerate().map(port).collect())
}
