//! `waypost label` and `waypost annotate`. The two differ only in the field that they change.
//!
//! In: objects, and `KEY=VALUE` to set or `KEY-` to remove. Out: a line for each object. Existing values are replaced only with
//! `--overwrite`.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use api::value::ValueExt as _;
use clap::Args;
use serde_json::{Value, json};

use super::apply::DryRun;
use super::client::{Client, MANAGER, MERGE, Query};
use super::connect::Connection;
use super::target::{self, Choice, Object};
use crate::terminal;

/// The field of metadata, and the messages for changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetadataField {
    field: &'static str,
    set: &'static str,
    removed: &'static str,
}

pub(super) const LABELS: MetadataField = MetadataField { field: "labels", set: "labeled", removed: "unlabeled" };
pub(super) const ANNOTATIONS: MetadataField =
    MetadataField { field: "annotations", set: "annotated", removed: "annotated" };

/// Settings of the verbs.
#[derive(Args, Debug)]
pub struct Arguments {
    /// KIND NAME… or KIND/NAME …, then KEY=VALUE to set and KEY- to remove
    #[arg(value_name = "KIND[/NAME] KEY=VALUE", required = true)]
    words: Vec<String>,
    /// Replace existing values
    #[arg(long)]
    overwrite: bool,
    /// Those with these labels
    #[arg(short = 'l', long, default_value = "", value_name = "LABELS")]
    selector: String,
    /// All of the kind
    #[arg(long)]
    all: bool,
    /// The objects in this file or directory; - is standard input
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<String>,
    /// List the current ones, and change nothing
    #[arg(long)]
    list: bool,
    /// Change nothing, and print what would be changed
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "server")]
    dry_run: DryRun,
    #[command(flatten)]
    connection: Connection,
}

/// Changes by key: a value to set, or none to remove.
type Changes = BTreeMap<String, Option<String>>;

/// Runs the verb.
pub(super) async fn exec(words: MetadataField, arguments: Arguments) -> anyhow::Result<()> {
    let (names, changes) = split(&arguments.words)?;
    ensure!(
        arguments.list || !changes.is_empty(),
        "what should be changed? say KEY=VALUE to set one, KEY- to remove one, or --list to see them"
    );
    let mut client = arguments.connection.client()?;
    let choice = Choice {
        words: &names,
        files: &arguments.filename,
        selector: &arguments.selector,
        all: arguments.all,
        ..Choice::default()
    };
    for object in target::objects(&mut client, &choice).await? {
        if arguments.list {
            terminal::print(&listed(words, &object))?;
        } else {
            change(&mut client, words, &arguments, &object, &changes).await?;
        }
    }
    Ok(())
}

/// Splits arguments into names and changes: names have no equals sign and do not end in a dash.
fn split(words: &[String]) -> anyhow::Result<(Vec<String>, Changes)> {
    let (mut names, mut changes) = (Vec::new(), Changes::new());
    for word in words {
        let change = match (word.split_once('='), word.strip_suffix('-')) {
            (Some((key, value)), _) => (key, Some(value.to_owned())),
            (None, Some(key)) => (key, None),
            (None, None) => {
                ensure!(changes.is_empty(), "{word:?} is neither KEY=VALUE nor KEY-; names come before them");
                names.push(word.clone());
                continue;
            }
        };
        ensure!(!change.0.is_empty(), "{word:?} has no key");
        if changes.insert(change.0.to_owned(), change.1).is_some() {
            bail!("duplicate key {:?}", change.0);
        }
    }
    Ok((names, changes))
}

fn listed(words: MetadataField, object: &Object) -> String {
    let all = object.value.at("metadata").get(words.field).and_then(Value::as_object);
    all.into_iter().flatten().map(|(key, value)| format!("{key}={}\n", value.as_str().unwrap_or_default())).collect()
}

async fn change(
    client: &mut Client,
    words: MetadataField,
    arguments: &Arguments,
    object: &Object,
    changes: &Changes,
) -> anyhow::Result<()> {
    let have = object.value.at("metadata").get(words.field).cloned().unwrap_or_default();
    let text = |key: &str| have.get(key).and_then(Value::as_str);
    for (key, value) in changes {
        if let (Some(new), Some(old)) = (value, text(key))
            && new != old
            && !arguments.overwrite
        {
            bail!("{} has {key}={old} already; --overwrite replaces it", object.named());
        }
    }
    let differs = changes.iter().any(|(key, value)| text(key) != value.as_deref());
    let verb = match (differs, changes.values().all(Option::is_none)) {
        (false, _) => format!("not {}", words.set),
        (true, true) => words.removed.to_owned(),
        (true, false) => words.set.to_owned(),
    };
    if differs {
        let query = Query::new().add("fieldManager", MANAGER).add("dryRun", arguments.dry_run.query());
        let patch = json!({"metadata": {words.field: changes}});
        client.patch(&query.on(&object.path()), MERGE, &patch).await?;
    }
    terminal::print(&format!("{} {verb}{}\n", object.named(), arguments.dry_run.remark()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_line(line: &str) -> anyhow::Result<(Vec<String>, Changes)> {
        split(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn names_come_first_then_changes() {
        let (names, changes) = split_line("pods a b app=web old- url=a=b").expect("words");
        assert_eq!(names, ["pods", "a", "b"]);
        assert_eq!(changes.get("app"), Some(&Some("web".to_owned())));
        assert_eq!(changes.get("old"), Some(&None));
        assert_eq!(changes.get("url"), Some(&Some("a=b".to_owned())));
    }

    #[test]
    fn invalid_changes_are_rejected() {
        for line in ["pods app=web a", "pods a=1 a=2", "pods =x", "pods a=1 a-"] {
            assert!(split_line(line).is_err(), "{line}");
        }
    }
}
