//! `--add-context`: a context in the kubeconfig of the user, so that `kubectl` works without further settings.
//!
//! In: our kubeconfig, and the name of the context. Out: the user's file with the context, and a record in the data directory by which
//! `waypost down` removes it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use api::value::ValueExt as _;
use client::kubeconfig::contexts;
use rest::kubeconfig;
use serde_json::{Value, json};

/// The record of the added context.
const NOTE: &str = "context.json";

/// Adds a context.
///
/// # Errors
/// When the file cannot be read or written, or is not a kubeconfig.
pub(in crate::commands) fn add(data_dir: &Path, ours: &Path, name: &str) -> anyhow::Result<()> {
    let theirs = own_kubeconfig(|name| std::env::var_os(name).map(PathBuf::from), ours)?;
    let put = || -> anyhow::Result<()> {
        let config = contexts::with_context(read(&theirs)?, &read(ours)?, name)?;
        let made = theirs.parent().is_some_and(|folder| !folder.exists()) || read(&data_dir.join(NOTE))?.flag("made");
        // Recorded first: after a crash `waypost down` must know of the context.
        let note = json!({"file": std::path::absolute(&theirs)?, "name": name, "made": made});
        std::fs::write(data_dir.join(NOTE), note.to_string()).context("recording it for `waypost down`")?;
        if let Some(folder) = theirs.parent() {
            std::fs::create_dir_all(folder)?;
        }
        kubeconfig::write(&theirs, &config)?;
        Ok(())
    };
    put().with_context(|| format!("--add-context: adding the context {name} to {}", theirs.display()))
}

/// Removes the context, if one was added; returns its name.
///
/// # Errors
/// When the file cannot be read or written.
pub(in crate::commands) fn remove(data_dir: &Path) -> anyhow::Result<Option<String>> {
    let path = data_dir.join(NOTE);
    let note = read(&path)?;
    if note.is_null() {
        return Ok(None);
    }
    let (file, name) = (PathBuf::from(note.text("file")), note.text("name").to_owned());
    let theirs = read(&file)?;
    if !theirs.is_null() {
        let left = contexts::without_context(theirs, &name).map_err(|why| anyhow!("{}: {why}", file.display()))?;
        match contexts::is_empty(&left) {
            true => std::fs::remove_file(&file)?,
            false => kubeconfig::write(&file, &left)?,
        }
    }
    if let Some(folder) = file.parent().filter(|_| note.flag("made")) {
        // Unless other entries were added.
        let _ = std::fs::remove_dir(folder);
    }
    std::fs::remove_file(path)?;
    Ok(Some(name))
}

/// The kubeconfig of the user: the first of `$KUBECONFIG` that is not ours, or the one in the home directory.
fn own_kubeconfig(variable: impl Fn(&str) -> Option<PathBuf>, ours: &Path) -> anyhow::Result<PathBuf> {
    let said = variable("KUBECONFIG")
        .and_then(|paths| std::env::split_paths(&paths).find(|path| !path.as_os_str().is_empty() && path != ours));
    let home = || variable("HOME").map(|home| home.join(".kube/config"));
    said.or_else(home).context("--add-context: neither $KUBECONFIG nor $HOME says where your kubeconfig is")
}

/// The content of a file; null if it does not exist.
fn read(path: &Path) -> anyhow::Result<Value> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Value::Null),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    let (value, _) = api::yaml::from_yaml(&bytes).with_context(|| format!("reading {}", path.display()))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_kubeconfig_that_is_not_ours_is_the_users() {
        let ours = Path::new("/var/lib/waypost/kubeconfig");
        let of = |known: &[(&str, &str)]| {
            let find = |name: &str| known.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value));
            own_kubeconfig(find, ours)
        };
        let both = of(&[("KUBECONFIG", "/var/lib/waypost/kubeconfig:/a"), ("HOME", "/h")]).expect("found");
        assert_eq!(both, Path::new("/a"));
        let only = of(&[("KUBECONFIG", "/var/lib/waypost/kubeconfig"), ("HOME", "/h")]).expect("found");
        assert_eq!(only, Path::new("/h/.kube/config"));
        assert!(of(&[]).is_err());
    }
}
