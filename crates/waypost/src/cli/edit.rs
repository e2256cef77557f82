//! `waypost edit`: an object in an editor, and back.
//!
//! The editor is `$KUBE_EDITOR`, `$EDITOR` or `vi`. What the server refuses is opened again with the reason on top; nothing that was
//! typed is lost: what could not be saved stays in a file that is named.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use clap::Args;
use serde_json::Value;

use super::client::{Client, Query, refusal};
use super::connect::Connection;
use super::target::{self, Object};
use super::{output, terminal};

const MANAGER: &str = "waypost-edit";
const HEADING: &str =
    "# Change what you like, save and leave. Lines that begin with # are left out; an empty file changes nothing.\n";

/// Settings of the verb.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// What to edit: KIND NAME or KIND/NAME
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    words: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let mut client = arguments.connection.client()?;
    let kinds = client.kinds().await?;
    let one = target::parse_one(&kinds, &arguments.words, None)?;
    let object = target::one(&mut client, &one).await?;
    let mut shown = object.value.clone();
    output::without_managed_fields(&mut shown);
    let original = api::yaml::to_yaml(&shown);
    let (mut text, mut reason) = (original.clone(), String::new());
    loop {
        let before = format!("{HEADING}{}{text}", commented(&reason));
        let after = edited(&before)?;
        let plain = uncommented(&after);
        if plain.trim().is_empty() || plain == original {
            terminal::note("Edit cancelled, no changes made.");
            return Ok(());
        }
        if after == before && !reason.is_empty() {
            let kept = keep(&plain)?;
            bail!("{reason}; what you typed is in {kept}: `waypost apply -f {kept}` tries it again");
        }
        match save(&mut client, &object, &plain).await {
            Ok(true) => return terminal::print(&format!("{} edited\n", object.named())),
            Ok(false) => return terminal::print(&format!("{} unchanged\n", object.named())),
            Err(error) if refusal(&error).is_some_and(|refused| refused.code == 409) => {
                let kept = keep(&plain)?;
                bail!("{} was changed meanwhile; what you typed is in {kept}; edit it again", object.named());
            }
            Err(error) => {
                reason = format!("{error:#}");
                text = plain;
            }
        }
    }
}

/// Puts the object; says whether that changed it.
async fn save(client: &mut Client, object: &Object, text: &str) -> anyhow::Result<bool> {
    let (mut value, repeated) = api::yaml::from_yaml(text.as_bytes())?;
    if let Some(first) = repeated.first() {
        bail!("{first}");
    }
    for field in ["metadata.name", "metadata.namespace", "kind", "apiVersion"] {
        let (old, new) = (object.value.text(field), value.text(field));
        ensure!(old == new, "{field} cannot be changed from {old:?} to {new:?}: that would be another object");
    }
    let version = |object: &Value| object.text("metadata.resourceVersion").to_owned();
    // What was edited is what was read, whatever was done to the line that says so.
    value.put("metadata.resourceVersion", version(&object.value));
    let query = Query::new().add("fieldManager", MANAGER).add("fieldValidation", "Strict");
    let saved = client.put(&query.on(&object.path()), &value).await?;
    Ok(version(&saved) != version(&object.value))
}

fn commented(reason: &str) -> String {
    if reason.is_empty() {
        return String::new();
    }
    reason.lines().fold("#\n".to_owned(), |out, line| format!("{out}# {line}\n")) + "#\n"
}

/// A text without the lines that are only for people; those of the object itself never begin with a sign of comments.
fn uncommented(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('#')).fold(String::new(), |out, line| out + line + "\n")
}

/// Lets somebody change a text.
fn edited(text: &str) -> anyhow::Result<String> {
    let mut file =
        tempfile::Builder::new().prefix("waypost-edit-").suffix(".yaml").tempfile().context("making a file")?;
    file.write_all(text.as_bytes()).and_then(|()| file.flush()).context("writing what to edit")?;
    open_editor(file.path())?;
    // Some editors put another file in its place.
    std::fs::read_to_string(file.path()).context("reading what was edited")
}

fn open_editor(file: &Path) -> anyhow::Result<()> {
    let named = ["KUBE_EDITOR", "EDITOR"].iter().filter_map(std::env::var_os).find(|name| !name.is_empty());
    let editor = named.unwrap_or_else(|| "vi".into());
    let script = format!("{} \"$1\"", editor.to_string_lossy());
    let arguments = [OsStr::new("-c"), OsStr::new(&script), OsStr::new("waypost-edit"), file.as_os_str()];
    let streams = [
        std::io::stdin().as_fd().try_clone_to_owned()?,
        std::io::stdout().as_fd().try_clone_to_owned()?,
        std::io::stderr().as_fd().try_clone_to_owned()?,
    ];
    let ended = kernel::process::run_with_streams(Path::new("/bin/sh"), &arguments, streams, None);
    let well = ended.with_context(|| format!("starting the editor {}", editor.display()))?;
    ensure!(well, "the editor {} failed; name another one in $EDITOR", editor.display());
    Ok(())
}

/// Keeps a text that could not be saved.
fn keep(text: &str) -> anyhow::Result<String> {
    let mut file =
        tempfile::Builder::new().prefix("waypost-edit-").suffix(".yaml").tempfile().context("making a file")?;
    file.write_all(text.as_bytes()).context("keeping what was typed")?;
    let (_, path) = file.keep().context("keeping what was typed")?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_come_and_go_as_comments() {
        let text = format!("{HEADING}{}a: 1\nb: '# no comment'\n", commented("first\nsecond"));
        assert!(text.contains("# second\n"));
        assert_eq!(uncommented(&text), "a: 1\nb: '# no comment'\n");
        assert_eq!(commented(""), "");
    }
}
