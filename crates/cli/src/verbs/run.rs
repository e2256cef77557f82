//! `waypost run`: a command of this machine, or an image, as a Pod.
//!
//! Without `--image` the image is `host`: the command is a program of this machine, starts in the current directory, and has its own
//! network and process namespaces. `-it` attaches to it; `--rm` deletes it afterwards; `--expose` creates a Service.

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use clap::Args;
use serde_json::{Value, json};

use super::apply::DryRun;
use super::client::{Client, MANAGER, Query};
use super::connect::Connection;
use super::exec::{self, Streams};
use super::kinds::Resource;
use super::output::{self, OutputFormat};
use super::target::Object;
use super::wait::{self, AwaitedState};
use crate::terminal::{self, Progress};

/// The image that is this machine.
const HOST: &str = "host";

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The name of the Pod
    name: String,
    /// The image; `host` is this machine
    #[arg(long, default_value = HOST, value_name = "IMAGE")]
    image: String,
    /// The port on which it listens
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Create a Service of the same name for the port
    #[arg(long, requires = "port")]
    expose: bool,
    /// Its labels [default: run=NAME]
    #[arg(short = 'l', long, value_delimiter = ',', value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// An environment variable; may be repeated
    #[arg(short, long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// The working directory [default: the current directory for the image host]
    #[arg(long, value_name = "DIR")]
    workdir: Option<String>,
    /// The restart policy
    #[arg(long, default_value = "Always", ignore_case = true, value_name = "POLICY")]
    restart: Restart,
    /// The arguments after -- are the command, not its arguments, also for images
    #[arg(long)]
    command: bool,
    /// Pass standard input to the command
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Allocate a terminal
    #[arg(short, long)]
    tty: bool,
    /// Delete the Pod when the session ends
    #[arg(long, requires = "stdin")]
    rm: bool,
    /// Change nothing, and print what would be created
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "server")]
    dry_run: DryRun,
    /// Print the Pod: yaml, json, name, …
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,
    /// The command and its arguments, after --
    #[arg(last = true, value_name = "COMMAND")]
    words: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Restart {
    #[value(name = "Always")]
    Always,
    #[value(name = "OnFailure")]
    OnFailure,
    #[value(name = "Never")]
    Never,
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let folder = std::env::current_dir().ok().map(|folder| folder.to_string_lossy().into_owned());
    let pod = pod(&arguments, folder)?;
    let mut client = arguments.connection.client()?;
    let kind = client.kind("pods").await?;
    let made = create(&mut client, &arguments, &kind, &pod).await?;
    if arguments.expose {
        let service = service(&arguments, &pod);
        let services = client.kind("services").await?;
        create(&mut client, &arguments, &services, &service).await?;
    }
    if !arguments.stdin || arguments.dry_run == DryRun::Server {
        return Ok(());
    }
    let namespace = made.text("metadata.namespace").to_owned();
    let object = Object { kind, namespace, name: arguments.name.clone(), value: made };
    let talked = attach_to(&mut client, &arguments, &object).await;
    if arguments.rm {
        client.delete(&object.path(), &json!({})).await?;
        terminal::note(&format!("{} deleted", object.kind.quoted(&object.name)));
    }
    talked
}

async fn create(client: &mut Client, arguments: &Arguments, kind: &Resource, object: &Value) -> anyhow::Result<Value> {
    let query = Query::new().add("fieldManager", MANAGER).add("dryRun", arguments.dry_run.query());
    let path = query.on(&client.path(kind, None));
    let made = client.post(&path, object).await.with_context(|| {
        format!("making {}; `waypost delete {0}` removes one that is there already", kind.named(&arguments.name))
    })?;
    match &arguments.output {
        Some(form) => {
            let mut shown = made.clone();
            output::without_managed_fields(&mut shown);
            let kinds = client.kinds().await?;
            terminal::print(&output::objects(form, &kinds, vec![shown], true))?;
        }
        // With an attached terminal nothing else is printed.
        None if arguments.stdin => {}
        None => terminal::print(&format!("{} created{}\n", kind.named(&arguments.name), arguments.dry_run.remark()))?,
    }
    Ok(made)
}

/// Waits until the Pod runs, and attaches to it.
async fn attach_to(client: &mut Client, arguments: &Arguments, object: &Object) -> anyhow::Result<()> {
    let progress = Progress::begin(format!("waiting for {} to run", object.named()));
    let started: AwaitedState = "jsonpath={.status.containerStatuses[0].state.running.startedAt}".parse()?;
    let ended: AwaitedState = "jsonpath={.status.containerStatuses[0].state.terminated.finishedAt}".parse()?;
    let mut other = client.another();
    tokio::select! {
        begun = wait::until(client, object, &started) => drop(begun?),
        over = wait::until(&mut other, object, &ended) => drop(over?),
    }
    drop(progress);
    let mut streams = Streams { stdin: true, tty: arguments.tty };
    if streams.tty && !terminal::is_typed() {
        terminal::note("no terminal: -t needs a terminal on standard input");
        streams.tty = false;
    }
    let path = exec::query(&arguments.name, streams).on(&format!("{}/attach", object.path()));
    exec::attach(client, &path, streams).await
}

/// The Pod.
fn pod(arguments: &Arguments, folder: Option<String>) -> anyhow::Result<Value> {
    let host = arguments.image == HOST;
    ensure!(
        !host || !arguments.words.is_empty(),
        "what should run? name a command behind --, as in `waypost run {} -- python3 -m http.server 8080`, or an image with --image",
        arguments.name
    );
    let mut container = json!({"name": arguments.name, "image": arguments.image});
    if !arguments.words.is_empty() {
        // The image `host` has no entrypoint that could take arguments.
        container.put(if host || arguments.command { "command" } else { "args" }, arguments.words.as_slice());
    }
    let folder = arguments.workdir.clone().or(folder.filter(|_| host));
    if let Some(folder) = folder {
        container.put("workingDir", folder);
    }
    if let Some(port) = arguments.port {
        container.put("ports", json!([{"containerPort": port}]));
    }
    let mut variables = Vec::new();
    for text in &arguments.env {
        let (name, value) = pair(text, "--env")?;
        variables.push(json!({"name": name, "value": value}));
    }
    if !variables.is_empty() {
        container.put("env", variables);
    }
    if arguments.stdin {
        container.put("stdin", true);
        container.put("stdinOnce", true);
        container.put("tty", arguments.tty && terminal::is_typed());
    }
    let restart = match arguments.restart {
        // An interactive command is not restarted.
        Restart::Always if arguments.stdin => "Never",
        Restart::Always => "Always",
        Restart::OnFailure => "OnFailure",
        Restart::Never => "Never",
    };
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": arguments.name, "labels": labels(arguments)?},
        "spec": {"containers": [container], "restartPolicy": restart},
    }))
}

fn labels(arguments: &Arguments) -> anyhow::Result<Value> {
    if arguments.labels.is_empty() {
        return Ok(json!({"run": arguments.name}));
    }
    let mut out = json!({});
    for text in &arguments.labels {
        let (key, value) = pair(text, "--labels")?;
        out[key] = value.into();
    }
    Ok(out)
}

/// `KEY=VALUE`.
pub(super) fn pair<'t>(text: &'t str, flag: &str) -> anyhow::Result<(&'t str, &'t str)> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key, value)),
        _ => bail!("{flag}: {text:?} is not of the form KEY=VALUE"),
    }
}

fn service(arguments: &Arguments, pod: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": arguments.name},
        "spec": {
            "selector": pod.at("metadata.labels"),
            "ports": [{"port": arguments.port, "targetPort": arguments.port}],
        },
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn made(line: &str) -> anyhow::Result<Value> {
        let words = std::iter::once("run").chain(line.split_whitespace());
        pod(&Line::parse_from(words).arguments, Some("/here".to_owned()))
    }

    #[test]
    fn a_command_of_the_host_image_starts_in_the_current_directory() {
        let pod = made("web --port 8080 --env A=b=c -- ./server --config x").expect("a Pod");
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["command"], json!(["./server", "--config", "x"]));
        assert_eq!((container.text("image"), container.text("workingDir")), ("host", "/here"));
        assert_eq!(container["env"], json!([{"name": "A", "value": "b=c"}]));
        assert_eq!(container["ports"], json!([{"containerPort": 8080}]));
        assert_eq!(pod["metadata"]["labels"], json!({"run": "web"}));
        assert_eq!(pod.text("spec.restartPolicy"), "Always");
    }

    #[test]
    fn an_image_gets_arguments_and_keeps_its_directory() {
        let pod = made("web --image nginx -l app=web,tier=x --restart never -- -g x").expect("a Pod");
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["args"], json!(["-g", "x"]));
        assert!(!container.has("workingDir") && !container.has("command"));
        assert_eq!(pod["metadata"]["labels"], json!({"app": "web", "tier": "x"}));
        assert_eq!(pod.text("spec.restartPolicy"), "Never");
    }

    #[test]
    fn the_host_image_needs_a_command() {
        let message = made("web").expect_err("nothing to run").to_string();
        assert!(message.contains("waypost run web -- "), "{message}");
        assert!(made("web --env A -- x").is_err());
    }
}
