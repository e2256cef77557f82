//! Finding the server: which kubeconfig, and which context of it. All commands look in the same places.
//!
//! In: flags, `$KUBECONFIG`, the home of the user, the data directory of `waypost up`. Out: what the files say, or an error that says
//! where was looked and what to type. Files named in `$KUBECONFIG` are merged as kubectl does: the first to say something is right.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use api::value::ValueExt as _;
use clap::Args;
use client::kubeconfig::Access;
use serde_json::{Value, json};

use crate::config::Place;

/// Entries of a kubeconfig that name files beside it.
const FILES: [(&str, &str, &[&str]); 2] = [
    ("clusters", "cluster", &["certificate-authority"]),
    ("users", "user", &["client-certificate", "client-key", "tokenFile"]),
];

/// Where to find the server.
#[derive(Args, Debug, Clone)]
pub(crate) struct Kubeconfig {
    /// The kubeconfig [default: that of --data-dir if it is said, ~/.kube/config, else that of the usual data directory]
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<OsString>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// What the files say.
pub(crate) struct Found {
    /// All of it, with the context that was chosen.
    pub(crate) config: Value,
    /// Which files those are.
    pub(crate) origin: String,
    /// The name of the context.
    pub(crate) name: String,
    /// The context; null when there is none.
    pub(crate) context: Value,
}

impl Kubeconfig {
    /// Reads the files. Nothing is asked yet.
    pub(crate) fn find(&self) -> anyhow::Result<Found> {
        let files = self.files()?;
        let origin = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(":");
        let mut config = merged(&files)?;
        if let Some(context) = &self.context {
            config.put("current-context", context.as_str());
        }
        let name = config.text("current-context").to_owned();
        let context = entry(&config, "contexts", &name, "context").cloned();
        if context.is_none() && !name.is_empty() {
            let names: Vec<&str> = config.items("contexts").iter().map(|one| one.text("name")).collect();
            bail!("{origin} has no context {name:?}; it has: {}", names.join(", "));
        }
        Ok(Found { context: context.unwrap_or_default(), config, origin, name })
    }

    /// The files to read: those that were named, or the first of the usual places that has one. A variable that is empty counts as
    /// not set, as in kubectl.
    fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        if let Some(named) = self.kubeconfig.as_ref().filter(|path| !path.is_empty()) {
            return Ok(std::env::split_paths(named).filter(|path| !path.as_os_str().is_empty()).collect());
        }
        let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config"));
        let mut usual: Vec<PathBuf> = home.into_iter().chain([self.place.data_dir.join("kubeconfig")]).collect();
        // Who names a data directory means the server that lives there.
        if !self.place.is_usual() {
            usual.reverse();
        }
        if let Some(found) = usual.iter().find(|path| std::fs::File::open(path).is_ok()) {
            return Ok(vec![found.clone()]);
        }
        let looked: Vec<String> = usual.iter().map(|path| path.display().to_string()).collect();
        bail!(
            "there is no kubeconfig that can be read: neither {}; start a server with `waypost up`, or name the file of one that \
             runs with --kubeconfig or $KUBECONFIG",
            looked.join(" nor ")
        )
    }
}

impl Found {
    /// The way to the server.
    pub(crate) fn access(&self) -> anyhow::Result<Access> {
        Ok(Access::from_value(&self.config, &self.origin)?)
    }

    /// The way to the server for somebody without credentials.
    pub(crate) fn anonymous_access(&self) -> anyhow::Result<Access> {
        let cluster = self.cluster();
        let config = json!({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
        });
        Ok(Access::from_value(&config, &self.origin)?)
    }

    /// What the files say of the server; null when they say nothing.
    pub(crate) fn cluster(&self) -> &Value {
        entry(&self.config, "clusters", self.context.text("cluster"), "cluster").unwrap_or(&Value::Null)
    }

    /// What the files say of the user; null when they say nothing.
    pub(crate) fn user(&self) -> &Value {
        entry(&self.config, "users", self.context.text("user"), "user").unwrap_or(&Value::Null)
    }
}

/// What a list of a kubeconfig has under a name.
fn entry<'a>(config: &'a Value, list: &str, name: &str, part: &str) -> Option<&'a Value> {
    config.items(list).iter().find(|item| item.text("name") == name).map(|item| item.at(part))
}

/// One kubeconfig out of several. Those that are not there are passed over, unless there is no other.
fn merged(files: &[PathBuf]) -> anyhow::Result<Value> {
    let mut out = json!({});
    for file in files {
        let bytes = match std::fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if files.len() > 1 && error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(error).with_context(|| {
                    format!(
                        "reading the kubeconfig {}; name another with --kubeconfig or $KUBECONFIG, or start `waypost up`, which writes \
                         one",
                        file.display()
                    )
                });
            }
        };
        let (mut config, _) =
            api::yaml::from_yaml(&bytes).with_context(|| format!("reading the kubeconfig {}", file.display()))?;
        make_absolute(&mut config, file.parent().unwrap_or(Path::new(".")));
        add(&mut out, &config);
    }
    Ok(out)
}

/// Files that a kubeconfig names are beside it.
fn make_absolute(config: &mut Value, folder: &Path) {
    for (list, part, keys) in FILES {
        for item in config.items_mut(list) {
            for key in keys {
                let path = format!("{part}.{key}");
                let name = item.text(&path).to_owned();
                if !name.is_empty() {
                    item.put(&path, folder.join(name).to_string_lossy().as_ref());
                }
            }
        }
    }
}

/// Adds what is not there yet.
fn add(out: &mut Value, config: &Value) {
    if out.text("current-context").is_empty() && !config.text("current-context").is_empty() {
        out.put("current-context", config.text("current-context"));
    }
    for list in ["clusters", "contexts", "users"] {
        let mut items = out.items(list).to_vec();
        for item in config.items(list) {
            if !items.iter().any(|have| have.text("name") == item.text("name")) {
                items.push(item.clone());
            }
        }
        out.put(list, items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_to_say_something_is_right() {
        let mut out = json!({});
        add(&mut out, &json!({"contexts": [{"name": "a", "context": {"cluster": "one"}}]}));
        add(
            &mut out,
            &json!({"current-context": "b", "contexts": [
            {"name": "a", "context": {"cluster": "two"}}, {"name": "b", "context": {"cluster": "three"}}]}),
        );
        assert_eq!(out.text("current-context"), "b");
        assert_eq!(entry(&out, "contexts", "a", "context"), Some(&json!({"cluster": "one"})));
        assert_eq!(entry(&out, "contexts", "b", "context"), Some(&json!({"cluster": "three"})));
    }

    #[test]
    fn files_are_beside_their_kubeconfig() {
        let mut config = json!({"clusters": [{"name": "c", "cluster": {"certificate-authority": "ca.pem"}}],
                                "users": [{"name": "u", "user": {"tokenFile": "/abs/token"}}]});
        make_absolute(&mut config, Path::new("/etc/kube"));
        assert_eq!(
            entry(&config, "clusters", "c", "cluster"),
            Some(&json!({"certificate-authority": "/etc/kube/ca.pem"}))
        );
        assert_eq!(entry(&config, "users", "u", "user"), Some(&json!({"tokenFile": "/abs/token"})));
    }
}
