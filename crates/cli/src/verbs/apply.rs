//! `waypost apply`: server-side apply of manifests with the field manager `waypost`.
//!
//! In: documents. Out: a line for each: created, configured or unchanged. A rejected document does not stop the others.

use anyhow::Context as _;
use api::value::ValueExt as _;
use clap::Args;
use serde_json::Value;

use super::Ended;
use super::client::{APPLY, Client, MANAGER, Query, rejection};
use super::connect::Connection;
use super::kinds::Resource;
use super::manifest::{self, Document};
use super::output::{self, OutputFormat};
use crate::terminal;

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The file or directory with the objects; - is standard input
    #[arg(short, long, value_name = "FILE", required = true)]
    filename: Vec<String>,
    /// Change nothing, and print what would be changed
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "server")]
    dry_run: DryRun,
    /// Force conflicts: take over fields of other managers
    #[arg(long)]
    force_conflicts: bool,
    /// Print the objects instead of a line for each: yaml, json, name, …
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,
    /// For compatibility with kubectl: apply is always server-side
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    server_side: Option<bool>,
    #[command(flatten)]
    connection: Connection,
}

/// Whether it is only a try.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DryRun {
    /// Disabled.
    None,
    /// By the server. (Here, the mode client is the same.)
    #[value(alias = "client")]
    Server,
}

impl DryRun {
    /// The query parameter.
    pub(super) const fn query(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Server => "All",
        }
    }

    /// The suffix of messages.
    pub(super) const fn remark(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Server => " (server dry run)",
        }
    }
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let mut client = arguments.connection.client()?;
    let documents = manifest::read(&arguments.filename)?;
    let (mut failed, mut objects) = (false, Vec::new());
    for document in documents {
        match apply(&mut client, &arguments, &document).await {
            Ok((line, object)) if arguments.output.is_none() => {
                terminal::print(&format!("{line}{}\n", arguments.dry_run.remark()))?;
                drop(object);
            }
            Ok((_, object)) => objects.push(object),
            Err(error) => {
                failed = true;
                terminal::note(&format!("waypost: {}: {error:#}", document.origin));
            }
        }
    }
    if let Some(form) = &arguments.output {
        objects.iter_mut().for_each(output::without_managed_fields);
        let single = objects.len() == 1;
        let kinds = client.kinds().await?;
        terminal::print(&output::objects(form, &kinds, objects, single))?;
    }
    if failed { Err(Ended(1).into()) } else { Ok(()) }
}

async fn apply(client: &mut Client, arguments: &Arguments, document: &Document) -> anyhow::Result<(String, Value)> {
    let kind = client.kinds().await?.of(&document.object)?.clone();
    let before = find(client, &kind, document).await?;
    let (made, after) = put(client, &kind, document, arguments.dry_run, arguments.force_conflicts).await?;
    let version = |object: &Value| object.text("metadata.resourceVersion").to_owned();
    let verb = match &before {
        None => "created",
        Some(_) if made => "created",
        Some(before) if arguments.dry_run == DryRun::Server && same(before, &after) => "unchanged",
        Some(before) if version(before) == version(&after) && arguments.dry_run == DryRun::None => "unchanged",
        Some(_) => "configured",
    };
    Ok((format!("{} {verb}", kind.named(after.text("metadata.name"))), after))
}

/// Whether a dry run changed nothing but managedFields.
fn same(before: &Value, after: &Value) -> bool {
    let plain = |object: &Value| {
        let mut object = object.clone();
        for field in ["metadata.managedFields", "metadata.resourceVersion", "metadata.generation"] {
            object.drop_path(field);
        }
        object
    };
    plain(before) == plain(after)
}

/// The existing object of a document.
pub(super) async fn find(client: &mut Client, kind: &Resource, document: &Document) -> anyhow::Result<Option<Value>> {
    let namespace = manifest::namespace(document, kind, client)?;
    client.find(&kind.path(Some(&namespace), Some(document.object.text("metadata.name")))).await
}

/// Applies a document; also returns whether it was created.
pub(super) async fn put(
    client: &mut Client,
    kind: &Resource,
    document: &Document,
    dry_run: DryRun,
    force: bool,
) -> anyhow::Result<(bool, Value)> {
    let namespace = manifest::namespace(document, kind, client)?;
    let mut object = document.object.clone();
    // Files from `get -o yaml` have managedFields, which apply rejects.
    for field in ["metadata.managedFields", "metadata.resourceVersion", "metadata.uid", "metadata.creationTimestamp"] {
        object.drop_path(field);
    }
    let query = Query::new()
        .add("fieldManager", MANAGER)
        .add("fieldValidation", "Strict")
        .add("dryRun", dry_run.query())
        .add("force", if force { "true" } else { "" });
    let path = kind.path(Some(&namespace), Some(object.text("metadata.name")));
    let answer = client.patch(&query.on(&path), APPLY, &object).await;
    let conflict = answer.as_ref().err().and_then(rejection).is_some_and(|refused| refused.code == 409);
    if conflict {
        return answer.context("another field manager owns a field: --force-conflicts takes it over");
    }
    answer
}
