//! `waypost scale`: sets the number of replicas.

use anyhow::{Context as _, ensure};
use api::value::ValueExt as _;
use clap::Args;
use serde_json::json;

use super::client::{Client, MANAGER, MERGE, Query, rejection};
use super::connect::Connection;
use super::target::{self, Choice, Object};
use crate::terminal;

/// How often an object that changes all the time is read and patched.
const MAX_ATTEMPTS: u32 = 10;

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
        scale(&mut client, &object, &arguments).await.with_context(|| format!("scaling {}", object.named()))?;
        terminal::print(&format!("{} scaled\n", object.named()))?;
    }
    Ok(())
}

/// Scales an object. With an expected number of replicas, a conflict means that anything of the object changed since it
/// was read: it is read again, and scaled if the number is still the expected one.
async fn scale(client: &mut Client, object: &Object, arguments: &Arguments) -> anyhow::Result<()> {
    let path = format!("{}/scale", object.path());
    let target = Query::new().add("fieldManager", MANAGER).on(&path);
    for attempt in 1.. {
        let mut patch = json!({"spec": {"replicas": arguments.replicas}});
        if let Some(expected) = arguments.current_replicas {
            let current = client.get(&path).await?;
            let now = current.int("spec.replicas");
            ensure!(now == i64::from(expected), "it is to have {now} Pods, not {expected}; nothing was changed");
            patch.put("metadata.resourceVersion", current.text("metadata.resourceVersion"));
        }
        if let Some(version) = &arguments.resource_version {
            patch.put("metadata.resourceVersion", version.as_str());
        }
        let Err(error) = client.patch(&target, MERGE, &patch).await else { break };
        let is_conflict = rejection(&error).is_some_and(|refused| refused.code == 409);
        let may_repeat = arguments.current_replicas.is_some() && arguments.resource_version.is_none();
        if !is_conflict || !may_repeat || attempt == MAX_ATTEMPTS {
            return Err(error);
        }
    }
    Ok(())
}
