//! `waypost rollout`: status, history, undo, restart, pause and resume; and `canary`, which is about a Service.
//!
//! In: a Deployment, DaemonSet or StatefulSet. Out: its status, or a patch. `progress` computes the status, `history` the revisions; both are pure.

mod canary;
mod history;
mod progress;

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;

use super::client::{Client, JSON_PATCH, MANAGER, MERGE, Query, STRATEGIC};
use super::connect::Connection;
use super::output::table::Table;
use super::target::{self, Choice, Object};
use super::{pods, wait};
use crate::terminal::{self, Progress};
use history::Revision;
use progress::State;

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Subject {
    /// Show the status of a rollout until it is complete
    Status(StatusArguments),
    /// List the revisions
    History(HistoryArguments),
    /// Roll back to an earlier revision
    Undo(UndoArguments),
    /// Replace all Pods (rolling restart)
    Restart(Arguments),
    /// Pause rollouts
    Pause(Arguments),
    /// Resume rollouts
    Resume(Arguments),
    /// Move the requests of a Service to another Service by weight
    Canary(canary::Arguments),
}

/// Which objects.
#[derive(Args, Debug)]
pub struct Arguments {
    /// KIND NAME or KIND/NAME
    #[arg(value_name = "KIND/NAME", required = true)]
    words: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Settings of `status`.
#[derive(Args, Debug)]
pub struct StatusArguments {
    #[command(flatten)]
    which: Arguments,
    /// Whether to wait until it is complete
    #[arg(short, long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    watch: bool,
    /// Timeout, such as 30s; 0s: no timeout
    #[arg(long, default_value = "0s", value_parser = wait::duration, value_name = "DURATION")]
    timeout: Duration,
}

/// Settings of `history`.
#[derive(Args, Debug)]
pub struct HistoryArguments {
    #[command(flatten)]
    which: Arguments,
    /// Show this revision in detail
    #[arg(long, value_name = "N")]
    revision: Option<i64>,
}

/// Settings of `undo`.
#[derive(Args, Debug)]
pub struct UndoArguments {
    #[command(flatten)]
    which: Arguments,
    /// The revision [default: the previous one]
    #[arg(long, default_value_t = 0, value_name = "N")]
    to_revision: i64,
}

/// Runs the verb.
pub(super) async fn exec(subject: Subject) -> anyhow::Result<()> {
    match subject {
        Subject::Status(arguments) => status(arguments).await,
        Subject::History(arguments) => show_history(arguments).await,
        Subject::Undo(arguments) => undo(arguments).await,
        Subject::Restart(arguments) => each(arguments, Change::Restart).await,
        Subject::Pause(arguments) => each(arguments, Change::Pause).await,
        Subject::Resume(arguments) => each(arguments, Change::Resume).await,
        Subject::Canary(arguments) => canary::exec(arguments).await,
    }
}

impl Arguments {
    async fn objects(&self) -> anyhow::Result<(Client, Vec<Object>)> {
        let mut client = self.connection.client()?;
        let choice = Choice { words: &self.words, all: true, ..Choice::default() };
        let objects = target::objects(&mut client, &choice).await?;
        for object in &objects {
            ensure!(
                ["daemonsets", "deployments", "statefulsets"].contains(&object.kind.plural.as_str()),
                "{} has no updates; a Deployment, a DaemonSet or a StatefulSet has",
                object.named()
            );
        }
        Ok((client, objects))
    }
}

async fn status(arguments: StatusArguments) -> anyhow::Result<()> {
    let (mut client, objects) = arguments.which.objects().await?;
    for object in &objects {
        let watching = follow(&mut client, object, arguments.watch);
        if arguments.timeout.is_zero() {
            watching.await?;
        } else {
            tokio::time::timeout(arguments.timeout, watching).await.with_context(|| {
                format!(
                    "the update of {} did not complete before the timeout; `waypost describe {0}` shows what it waits for",
                    object.named()
                )
            })??;
        }
    }
    Ok(())
}

/// Prints the status of an update until it is complete.
async fn follow(client: &mut Client, object: &Object, watch: bool) -> anyhow::Result<()> {
    let progress = Progress::begin("");
    let collection = object.kind.path(Some(&object.namespace), None);
    let query = Query::new().add("fieldSelector", &format!("metadata.name={}", object.name));
    let mut last = String::new();
    loop {
        let list = client.get(&query.on(&collection)).await?;
        let mut now = list.items("items").first().cloned();
        let from = query.clone().add("resourceVersion", list.text("metadata.resourceVersion"));
        let mut events = client.watch(&collection, &from, "application/json").await?;
        loop {
            let value = now.with_context(|| format!("{} was deleted", object.named()))?;
            match progress::of(&object.kind.plural, &value) {
                State::Done(message) => return terminal::print(&format!("{message}\n")),
                State::Failed(message) => bail!("{message}; `waypost rollout undo {}` goes back", object.named()),
                State::Waiting(message) => {
                    if message != last {
                        terminal::print(&format!("{message}\n"))?;
                        progress.say(format!("waiting for the update of {}", object.named()));
                        last = message;
                    }
                }
            }
            if !watch {
                return Ok(());
            }
            now = match events.next().await? {
                Some(event) if event.kind == "DELETED" => None,
                Some(event) if event.kind == "BOOKMARK" => Some(value),
                Some(event) if event.kind != "ERROR" => Some(event.object),
                // The server closed the watch: start another.
                _ => break,
            };
        }
    }
}

async fn revisions(client: &mut Client, object: &Object) -> anyhow::Result<Vec<Revision>> {
    let owned = match object.kind.plural.as_str() {
        "deployments" => "replicasets",
        _ => "controllerrevisions",
    };
    let kind = client.kind(owned).await?;
    let query = Query::new().add("labelSelector", &pods::selector(&object.value).unwrap_or_default());
    let all = client.objects(&kind, &query).await?;
    Ok(history::read(object.value.text("metadata.uid"), &all))
}

async fn show_history(arguments: HistoryArguments) -> anyhow::Result<()> {
    let (mut client, objects) = arguments.which.objects().await?;
    for object in &objects {
        let revisions = revisions(&mut client, object).await?;
        if let Some(number) = arguments.revision {
            let one = history::find(&revisions, number, &object.named())?;
            let template = api::yaml::to_yaml(&one.shown());
            terminal::print(&format!("{} with revision #{number}\nPod Template:\n{template}", object.named()))?;
            continue;
        }
        let mut table = Table::default();
        table.heading(["REVISION", "CHANGE-CAUSE"].map(str::to_owned));
        for one in &revisions {
            table.row([one.number.to_string(), one.cause.clone()]);
        }
        terminal::print(&format!("{}\n{}\n", object.named(), table.text(terminal::colours())))?;
    }
    Ok(())
}

async fn undo(arguments: UndoArguments) -> anyhow::Result<()> {
    let (mut client, objects) = arguments.which.objects().await?;
    for object in &objects {
        ensure!(
            !object.value.flag("spec.paused"),
            "{} is paused and cannot go back; `waypost rollout resume {0}` first",
            object.named()
        );
        let revisions = revisions(&mut client, object).await?;
        let one = match arguments.to_revision {
            0 => revisions
                .iter()
                .rev()
                .nth(1)
                .with_context(|| format!("{} has nothing to go back to", object.named()))?,
            number => history::find(&revisions, number, &object.named())?,
        };
        let path = Query::new().add("fieldManager", MANAGER).on(&object.path());
        if one.template == history::without_hash(object.value.at("spec.template")) {
            terminal::print(&format!("{} skipped rollback (it is at revision {})\n", object.named(), one.number))?;
            continue;
        }
        match object.kind.plural.as_str() {
            "deployments" => {
                let patch = json!([{"op": "replace", "path": "/spec/template", "value": one.template}]);
                client.patch(&path, JSON_PATCH, &patch).await?;
            }
            _ => drop(client.patch(&path, STRATEGIC, &json!({"spec": {"template": one.template}})).await?),
        }
        terminal::print(&format!("{} rolled back\n", object.named()))?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Restart,
    Pause,
    Resume,
}

async fn each(arguments: Arguments, change: Change) -> anyhow::Result<()> {
    let (mut client, objects) = arguments.objects().await?;
    for object in &objects {
        let path = Query::new().add("fieldManager", MANAGER).on(&object.path());
        let paused = object.value.flag("spec.paused");
        let deployment = object.kind.plural == "deployments";
        let message = match change {
            Change::Restart => {
                ensure!(!paused, "{} is paused; `waypost rollout resume {0}` first", object.named());
                let now = api::lifecycle::seconds(Timestamp::now());
                let patch = json!({"spec": {"template": {"metadata": {"annotations":
                    {"kubectl.kubernetes.io/restartedAt": now}}}}});
                client.patch(&path, STRATEGIC, &patch).await?;
                "restarted"
            }
            Change::Pause | Change::Resume => {
                ensure!(deployment, "{} cannot be paused; a Deployment can", object.named());
                let wanted = change == Change::Pause;
                let word = if wanted { "paused" } else { "resumed" };
                ensure!(paused != wanted, "{} is {word} already", object.named());
                client.patch(&path, MERGE, &json!({"spec": {"paused": wanted}})).await?;
                word
            }
        };
        terminal::print(&format!("{} {message}\n", object.named()))?;
    }
    Ok(())
}
