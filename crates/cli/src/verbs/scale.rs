//! `waypost scale`: sets the number of replicas.

use anyhow::{Context as _, ensure};
use api::value::ValueExt as _;
use clap::Args;
use serde_json::json;

use super::client::{MANAGER, MERGE, Query};
use super::connect::Connection;
use super::target::{self, Choice};
use crate::terminal;

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// What to scale: KIND NAME… or KIND/NAME …
    #[arg(value_name = "KIND/NAME")]
    words: Vec<String>,
    /// The number of replicas
    #[arg(long, value_name = "N")]
    replicas: u32,
    /// Only if this is the current number of replicas
    #[arg(long, value_name = "N")]
    current_replicas: Option<u32>,
    /// Only if this is the current resource version
    #[arg(long, value_name = "VERSION")]
    resource_version: Option<String>,
    /// Those with these labels
    #[arg(short = 'l', long, default_value = "", value_name = "LABELS")]
    selector: String,
    /// All of the kind
    #[arg(long)]
    all: bool,
    /// The objects in this file or directory; - is standard input
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let mut client = arguments.connection.client()?;
    let choice = Choice {
        words: &arguments.words,
        files: &arguments.filename,
        selector: &arguments.selector,
        all: arguments.all,
        ..Choice::default()
    };
    for object in target::objects(&mut client, &choice).await? {
        ensure!(
            object.kind.has("scale"),
            "{} cannot be scaled; a Deployment, ReplicaSet or StatefulSet can",
            object.named()
        );
        let path = format!("{}/scale", object.path());
        let mut patch = json!({"spec": {"replicas": arguments.replicas}});
        if let Some(expected) = arguments.current_replicas {
            let scale = client.get(&path).await?;
            let now = scale.int("spec.replicas");
            ensure!(
                now == i64::from(expected),
                "{} is to have {now} Pods, not {expected}; nothing was changed",
                object.named()
            );
            // The server detects changes from here on by the resource version.
            patch.put("metadata.resourceVersion", scale.text("metadata.resourceVersion"));
        }
        if let Some(version) = &arguments.resource_version {
            patch.put("metadata.resourceVersion", version.as_str());
        }
        let query = Query::new().add("fieldManager", MANAGER);
        let scaled = client.patch(&query.on(&path), MERGE, &patch).await;
        scaled.with_context(|| format!("scaling {}", object.named()))?;
        terminal::print(&format!("{} scaled\n", object.named()))?;
    }
    Ok(())
}
