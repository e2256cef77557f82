//! `waypost logs`: logs of containers, optionally followed.

use std::time::Duration;

use anyhow::ensure;
use api::value::ValueExt as _;
use clap::Args;
use futures_util::future::try_join_all;
use serde_json::Value;

use super::client::{Client, Query};
use super::connect::Connection;
use super::target::Choice;
use super::{pods, target, wait};
use crate::terminal;

/// Maximum number of Pods followed at the same time.
const MAX_FOLLOWED: usize = 20;

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// A Pod, or KIND/NAME of an owner of Pods; a container may follow
    #[arg(value_name = "POD", num_args = 0..=2)]
    words: Vec<String>,
    /// Follow: continue with new lines
    #[arg(short, long)]
    follow: bool,
    /// Number of lines from the end; -1 is all [default: all; 10 with -l]
    #[arg(long, allow_hyphen_values = true, value_name = "LINES")]
    tail: Option<i64>,
    /// Not older than this, such as 5s, 2m or 3h
    #[arg(long, value_parser = wait::duration, value_name = "DURATION")]
    since: Option<Duration>,
    /// Not older than this time, such as 2026-01-01T00:00:00Z
    #[arg(long, conflicts_with = "since", value_name = "TIME")]
    since_time: Option<String>,
    /// The previous instance, before the last restart
    #[arg(short, long)]
    previous: bool,
    /// The container
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// All containers
    #[arg(long, conflicts_with = "container")]
    all_containers: bool,
    /// Pods with these labels
    #[arg(short = 'l', long, default_value = "", value_name = "LABELS")]
    selector: String,
    /// Prefix each line with its time
    #[arg(long)]
    timestamps: bool,
    /// Prefix each line with its Pod and container
    #[arg(long)]
    prefix: bool,
    #[command(flatten)]
    connection: Connection,
}

/// One log.
struct Source {
    path: String,
    prefix: String,
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let mut client = arguments.connection.client()?;
    let sources = sources(&mut client, &arguments).await?;
    if !arguments.follow {
        for source in &sources {
            copy(&client, source).await?;
        }
        return Ok(());
    }
    ensure!(
        sources.len() <= MAX_FOLLOWED,
        "{} logs are too many to follow at once; choose fewer with -l or -c",
        sources.len()
    );
    try_join_all(sources.iter().map(|source| copy(&client, source))).await?;
    Ok(())
}

async fn sources(client: &mut Client, arguments: &Arguments) -> anyhow::Result<Vec<Source>> {
    let mut found = Vec::new();
    let mut container = arguments.container.clone();
    if arguments.selector.is_empty() {
        let mut words = arguments.words.clone();
        ensure!(!words.is_empty(), "whose log? name a Pod, or choose by -l LABEL=VALUE; `waypost get pods` lists them");
        // `logs POD CONTAINER`, as in kubectl.
        if words.len() == 2 && container.is_none() {
            container = words.pop();
        }
        let (object, pod) = pods::best(client, &words).await?;
        if object.kind.plural != "pods" {
            terminal::note(&format!("the log of Pod {}, one of {}", pod.text("metadata.name"), object.named()));
        }
        found.push(pod);
    } else {
        ensure!(arguments.words.is_empty(), "a name or -l, not both");
        let words = ["pods".to_owned()];
        let choice = Choice { words: &words, selector: &arguments.selector, ..Choice::default() };
        found.extend(target::objects(client, &choice).await?.into_iter().map(|object| object.value));
        ensure!(
            !found.is_empty(),
            "no Pod has the labels {}; `waypost get pods --show-labels` shows theirs",
            arguments.selector
        );
    }
    let mut out = Vec::new();
    for pod in &found {
        let names = if arguments.all_containers {
            pod.items("spec.initContainers")
                .iter()
                .chain(pod.items("spec.containers"))
                .map(|container| container.text("name").to_owned())
                .collect()
        } else {
            vec![pods::container(pod, container.as_deref())?]
        };
        out.extend(names.iter().map(|name| source(arguments, pod, name)));
    }
    Ok(out)
}

fn source(arguments: &Arguments, pod: &Value, container: &str) -> Source {
    let (namespace, name) = (pod.text("metadata.namespace"), pod.text("metadata.name"));
    let yes = |wanted: bool| if wanted { "true" } else { "" };
    let tail = match arguments.tail {
        Some(lines) if lines >= 0 => lines.to_string(),
        None if !arguments.selector.is_empty() => "10".to_owned(),
        _ => String::new(),
    };
    let since = arguments.since.map(|since| since.as_secs().max(1).to_string()).unwrap_or_default();
    let query = Query::new()
        .add("container", container)
        .add("follow", yes(arguments.follow))
        .add("previous", yes(arguments.previous))
        .add("timestamps", yes(arguments.timestamps))
        .add("tailLines", &tail)
        .add("sinceSeconds", &since)
        .add("sinceTime", arguments.since_time.as_deref().unwrap_or_default());
    let prefix = if arguments.prefix { format!("[pod/{name}/{container}] ") } else { String::new() };
    Source { path: query.on(&format!("/api/v1/namespaces/{namespace}/pods/{name}/log")), prefix }
}

/// Prints a log to its end. Lines of several logs are not interleaved.
async fn copy(client: &Client, source: &Source) -> anyhow::Result<()> {
    let mut pieces = client.stream(&source.path, "*/*").await?;
    let mut held: Vec<u8> = Vec::new();
    while let Some(piece) = pieces.next().await? {
        held.extend_from_slice(&piece);
        if let Some(end) = held.iter().rposition(|byte| *byte == b'\n') {
            let rest = held.split_off(end + 1);
            terminal::write(&prefixed(&held, &source.prefix))?;
            held = rest;
        }
    }
    if held.is_empty() { Ok(()) } else { terminal::write(&prefixed(&held, &source.prefix)) }
}

fn prefixed(lines: &[u8], prefix: &str) -> Vec<u8> {
    if prefix.is_empty() {
        return lines.to_vec();
    }
    lines.split_inclusive(|byte| *byte == b'\n').flat_map(|line| [prefix.as_bytes(), line].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_the_prefix() {
        assert_eq!(prefixed(b"a\nb\nc", "x "), b"x a\nx b\nx c");
        assert_eq!(prefixed(b"a\n", ""), b"a\n");
    }
}
