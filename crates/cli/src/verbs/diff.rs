//! `waypost diff`: what `waypost apply` would change, as a unified diff. Exit codes: 0 no difference, 1 differences, 2 error.

mod lines;

use api::value::ValueExt as _;
use clap::Args;
use serde_json::Value;

use super::apply::{self, DryRun};
use super::client::Client;
use super::connect::Connection;
use super::manifest::{self, Document};
use super::{Ended, output};
use crate::terminal;

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The file or directory with the objects; - is standard input
    #[arg(short, long, value_name = "FILE", required = true)]
    filename: Vec<String>,
    /// Force conflicts: as if fields of other managers were taken over
    #[arg(long)]
    force_conflicts: bool,
    /// For compatibility with kubectl: diff is always server-side
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    server_side: Option<bool>,
    #[command(flatten)]
    connection: Connection,
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let found = compare(&arguments).await;
    match found {
        Ok(false) => Ok(()),
        Ok(true) => Err(Ended(1).into()),
        Err(error) if error.is::<Ended>() => Err(error),
        Err(error) => {
            terminal::note(&format!("waypost: {error:#}"));
            Err(Ended(2).into())
        }
    }
}

/// Prints differences; returns whether there were any.
async fn compare(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut client = arguments.connection.client()?;
    let mut different = false;
    for document in manifest::read(&arguments.filename)? {
        let text = one(&mut client, &document, arguments.force_conflicts).await?;
        different |= !text.is_empty();
        terminal::print(&if terminal::colours() { coloured(&text) } else { text })?;
    }
    Ok(different)
}

async fn one(client: &mut Client, document: &Document, force: bool) -> anyhow::Result<String> {
    let kind = client.kinds().await?.of(&document.object)?.clone();
    let before = apply::find(client, &kind, document).await?;
    let (_, after) = apply::put(client, &kind, document, DryRun::Server, force).await?;
    let name = format!("{}/{}", kind.qualified(), after.text("metadata.name"));
    let from = before.map(text).unwrap_or_default();
    Ok(lines::unified(&format!("live/{name}"), &format!("merged/{name}"), &from, &text(after)))
}

/// An object as compared text, without fields that every write changes.
fn text(mut object: Value) -> String {
    output::without_managed_fields(&mut object);
    for field in ["metadata.resourceVersion", "metadata.generation", "metadata.uid", "metadata.creationTimestamp"] {
        object.drop_path(field);
    }
    api::yaml::to_yaml(&object)
}

fn coloured(text: &str) -> String {
    let paint = |line: &str| match line.chars().next() {
        Some('+') => format!("\x1b[32m{line}\x1b[0m\n"),
        Some('-') => format!("\x1b[31m{line}\x1b[0m\n"),
        Some('@') => format!("\x1b[36m{line}\x1b[0m\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(paint).collect()
}
