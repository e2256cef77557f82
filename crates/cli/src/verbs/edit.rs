//! `waypost edit`: changes an object in an editor.
//!
//! The editor is `$KUBE_EDITOR`, `$EDITOR` or `vi`. A rejected change is opened again with the reason as a comment; text that could not be
//! saved is kept in a file, which is named in the error.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use clap::Args;
use serde_json::Value;

use super::client::{Client, Query, rejection};
use super::connect::Connection;
use super::output;
use super::target::{self, Object};
use crate::host::Host;
use crate::terminal;

const MANAGER: &str = "waypost-edit";
const HEADING: &str =
    "# Change what you like, save and leave. Lines that begin with # are left out; an empty file changes nothing.\n";

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// What to edit: KIND NAME or KIND/NAME
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    words: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments, host: &dyn Host) -> anyhow::Result<()> {
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
        let after = edited(&before, host)?;
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
            Err(error) if rejection(&error).is_some_and(|refused| refused.code == 409) => {
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

/// Updates the object; returns whether it changed.
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
    // The update is for the version that was read, even if that field was edited.
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

/// Text without comment lines; lines of the YAML of an object never begin with `#`.
fn uncommented(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('#')).fold(String::new(), |out, line| out + line + "\n")
}

/// Opens text in the editor; returns the result.
fn edited(text: &str, host: &dyn Host) -> anyhow::Result<String> {
    let mut file = tempfile::Builder::new()
        .prefix("waypost-edit-")
        .suffix(".yaml")
        .tempfile()
        .context("creating a temporary file")?;
    file.write_all(text.as_bytes()).and_then(|()| file.flush()).context("writing the temporary file")?;
    open_editor(file.path(), host)?;
    // Some editors replace the file.
    std::fs::read_to_string(file.path()).context("reading the edited file")
}

fn open_editor(file: &Path, host: &dyn Host) -> anyhow::Result<()> {
    let named = ["KUBE_EDITOR", "EDITOR"].iter().filter_map(std::env::var_os).find(|name| !name.is_empty());
    let editor = named.unwrap_or_else(|| "vi".into());
    let script = format!("{} \"$1\"", editor.to_string_lossy());
    let arguments = [OsStr::new("-c"), OsStr::new(&script), OsStr::new("waypost-edit"), file.as_os_str()];
    let ended = host.run_in_terminal(Path::new("/bin/sh"), &arguments);
    let succeeded = ended.with_context(|| format!("starting the editor {}", editor.display()))?;
    ensure!(succeeded, "the editor {} failed; name another one in $EDITOR", editor.display());
    Ok(())
}

/// Writes text that could not be saved to a file that is kept.
fn keep(text: &str) -> anyhow::Result<String> {
    let mut file = tempfile::Builder::new()
        .prefix("waypost-edit-")
        .suffix(".yaml")
        .tempfile()
        .context("creating a temporary file")?;
    file.write_all(text.as_bytes()).context("keeping the edited text")?;
    let (_, path) = file.keep().context("keeping the edited text")?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_added_and_removed_as_a_comment() {
        let text = format!("{HEADING}{}a: 1\nb: '# no comment'\n", commented("first\nsecond"));
        assert!(text.contains("# second\n"));
        assert_eq!(uncommented(&text), "a: 1\nb: '# no comment'\n");
        assert_eq!(commented(""), "");
    }
}
