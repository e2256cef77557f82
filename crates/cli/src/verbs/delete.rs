//! `waypost delete`.
//!
//! In: names, files, a selector or `--all`. Out: a line for each deleted object. Waits until they are gone, unless `--wait=false`.

use std::time::Duration;

use anyhow::{Context as _, bail};
use api::value::ValueExt as _;
use clap::Args;
use serde_json::{Value, json};

use super::apply::DryRun;
use super::client::{Client, is_not_found};
use super::connect::Connection;
use super::target::{self, Choice, Object};
use super::wait::{self, AwaitedState};
use super::{Ended, manifest};
use crate::terminal::{self, Progress};

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// What to delete: KIND[,KIND…] [NAME…], or KIND/NAME …
    #[arg(value_name = "KIND[/NAME]")]
    words: Vec<String>,
    /// Delete the objects in this file or directory; - is standard input
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<String>,
    /// Those with these labels, as in app=web
    #[arg(short = 'l', long, default_value = "", value_name = "LABELS")]
    selector: String,
    /// Those with these fields, as in status.phase=Failed
    #[arg(long, default_value = "", value_name = "FIELDS")]
    field_selector: String,
    /// All of the kind
    #[arg(long)]
    all: bool,
    /// In all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Whether to wait until they are deleted
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    wait: bool,
    /// Timeout, such as 30s; 0s: no timeout
    #[arg(long, default_value = "0s", value_parser = wait::duration, value_name = "DURATION")]
    timeout: Duration,
    /// Grace period of Pods in seconds [default: that of the Pod]
    #[arg(long, value_name = "SECONDS")]
    grace_period: Option<i64>,
    /// Delete at once, without a grace period
    #[arg(long)]
    force: bool,
    /// As --grace-period=1
    #[arg(long, conflicts_with = "grace_period")]
    now: bool,
    /// Propagation to dependents: background, foreground or orphan
    #[arg(long, default_value = "background", value_name = "HOW")]
    cascade: Cascade,
    /// Change nothing, and print what would be deleted
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "server")]
    dry_run: DryRun,
    /// Ignore objects that do not exist
    #[arg(long)]
    ignore_not_found: bool,
    /// Output format: name
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputName>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Cascade {
    Background,
    Foreground,
    Orphan,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum OutputName {
    Name,
}

impl Arguments {
    fn options(&self) -> Value {
        let mut out = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": match self.cascade {
            Cascade::Background => "Background",
            Cascade::Foreground => "Foreground",
            Cascade::Orphan => "Orphan",
        }});
        let grace = match (self.grace_period, self.force, self.now) {
            (Some(seconds), ..) => Some(seconds),
            (None, true, _) => Some(0),
            (None, false, true) => Some(1),
            _ => None,
        };
        if let Some(seconds) = grace {
            out.put("gracePeriodSeconds", seconds);
        }
        // Options are in the body; the server then ignores the query.
        if self.dry_run == DryRun::Server {
            out.put("dryRun", vec![self.dry_run.query()]);
        }
        out
    }
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    if arguments.grace_period == Some(0) && !arguments.force {
        bail!("--grace-period=0 ends Pods at once, which loses what they hold: say --force as well, or use --now");
    }
    let mut client = arguments.connection.client()?;
    let (objects, mut failed) = chosen(&mut client, &arguments).await?;
    if objects.is_empty() && !failed && !arguments.ignore_not_found {
        terminal::note("No resources found");
    }
    if arguments.force {
        terminal::warn("forced deletion does not wait: the processes may still run for a while");
    }
    let mut deleted = Vec::new();
    for object in objects {
        match client.delete(&object.path(), &arguments.options()).await {
            Ok(_) => {
                let verb = if arguments.force { "force deleted" } else { "deleted" };
                terminal::print(&match arguments.output {
                    Some(OutputName::Name) => format!("{}\n", object.named()),
                    None => {
                        format!("{} {verb}{}\n", object.kind.quoted(&object.name), arguments.dry_run.remark())
                    }
                })?;
                deleted.push(object);
            }
            Err(error) if is_not_found(&error) && arguments.ignore_not_found => {}
            Err(error) => {
                failed = true;
                terminal::note(&format!("waypost: deleting {}: {error:#}", object.named()));
            }
        }
    }
    if arguments.wait && arguments.dry_run == DryRun::None {
        gone(&mut client, &deleted, arguments.timeout).await?;
    }
    if failed { Err(Ended(1).into()) } else { Ok(()) }
}

/// The objects to delete. Missing ones are reported at once; the others are still deleted.
async fn chosen(client: &mut Client, arguments: &Arguments) -> anyhow::Result<(Vec<Object>, bool)> {
    let kinds = client.kinds().await?;
    let (mut out, mut failed) = (Vec::new(), false);
    let mut keep = |found: anyhow::Result<Object>| match found {
        Ok(object) => out.push(object),
        Err(error) if arguments.ignore_not_found && error.to_string().contains("not found") => {}
        Err(error) => {
            failed = true;
            terminal::note(&format!("waypost: {error:#}"));
        }
    };
    if !arguments.filename.is_empty() {
        for document in manifest::read(&arguments.filename)? {
            let kind = kinds.of(&document.object).with_context(|| document.origin.clone())?.clone();
            let namespace = manifest::namespace(&document, &kind, client)?;
            let name = document.object.text("metadata.name").to_owned();
            let found = client.find(&kind.path(Some(&namespace), Some(&name))).await?;
            keep(match found {
                Some(value) => Ok(Object { kind, namespace, name, value }),
                None => Err(target::missing(client, &kind, &name).await),
            });
        }
        return Ok((out, failed));
    }
    let names = target::parse(&kinds, &arguments.words)?;
    if !names.is_empty() && names.iter().all(|name| name.name.is_some()) {
        for name in &names {
            keep(target::one(client, name).await);
        }
        return Ok((out, failed));
    }
    let choice = Choice {
        words: &arguments.words,
        selector: &arguments.selector,
        fields: &arguments.field_selector,
        all: arguments.all,
        all_namespaces: arguments.all_namespaces,
        ..Choice::default()
    };
    Ok((target::objects(client, &choice).await?, false))
}

/// Waits until objects are gone.
async fn gone(client: &mut Client, objects: &[Object], timeout: Duration) -> anyhow::Result<()> {
    let progress = Progress::begin("");
    let waiting = async {
        for (number, object) in objects.iter().enumerate() {
            let more = match objects.len() - number {
                1 => String::new(),
                left => format!(" and {} more", left - 1),
            };
            progress.say(format!("waiting for {} to be gone{more}", object.named()));
            wait::until(client, object, &AwaitedState::Delete).await?;
        }
        anyhow::Ok(())
    };
    if timeout.is_zero() {
        return waiting.await;
    }
    let late = "it was not deleted before the timeout; `waypost describe` shows what it waits for, `waypost get … -o yaml` shows its finalizers";
    tokio::time::timeout(timeout, waiting).await.context(late)?
}
