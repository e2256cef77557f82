//! The kubeconfig of commands, and its context.
//!
//! In: flags, `$KUBECONFIG`, the home directory of the user, the data directory of `waypost up`. Out: the merged files, or an error with the
//! paths that were tried and the next step. Files in `$KUBECONFIG` are merged as in kubectl: the first entry of a name wins.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use api::value::ValueExt as _;
use clap::Args;
use client::kubeconfig::Access;
use serde_json::{Value, json};

/// The default data directory.
const DATA_DIR: &str = "/var/lib/waypost";

/// Fields of a kubeconfig with paths relative to it.
const FILES: [(&str, &str, &[&str]); 2] = [
    ("clusters", "cluster", &["certificate-authority"]),
    ("users", "user", &["client-certificate", "client-key", "tokenFile"]),
];

/// Flag of the data directory.
#[derive(Args, Debug, Clone)]
pub struct DataDir {
    /// Directory of data, certificates and the admin kubeconfig
    #[arg(long, env = "WAYPOST_DATA_DIR", default_value = DATA_DIR, value_name = "DIR")]
    pub data_dir: PathBuf,
}

impl DataDir {
    /// Whether it is the default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.data_dir == Path::new(DATA_DIR)
    }
}

/// Flags that select the kubeconfig.
#[derive(Args, Debug, Clone)]
pub struct KubeconfigFlags {
    /// The kubeconfig [default: that of --data-dir if it is set, ~/.kube/config, else that of the default data directory]
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<OsString>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    #[command(flatten)]
    place: DataDir,
}

/// A kubeconfig, merged from its files.
pub struct Kubeconfig {
    /// The document, with the selected context.
    pub config: Value,
    /// Its files.
    pub origin: String,
    /// The name of the context; empty when there is none.
    pub name: String,
    /// The context; null when there is none.
    pub context: Value,
}

impl KubeconfigFlags {
    /// Reads the files; sends no request.
    ///
    /// # Errors
    /// When there is no file, or one cannot be read, or it lacks the context.
    pub fn find(&self) -> anyhow::Result<Kubeconfig> {
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
        Ok(Kubeconfig { context: context.unwrap_or_default(), config, origin, name })
    }

    /// The files to read: the named ones, or the first default path that exists. An empty variable counts as not set, as in kubectl.
    fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        if let Some(named) = self.kubeconfig.as_ref().filter(|path| !path.is_empty()) {
            return Ok(std::env::split_paths(named).filter(|path| !path.as_os_str().is_empty()).collect());
        }
        let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config"));
        let mut usual: Vec<PathBuf> = home.into_iter().chain([self.place.data_dir.join("kubeconfig")]).collect();
        // An explicit data directory takes precedence over ~/.kube/config.
        if !self.place.is_default() {
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

impl Kubeconfig {
    /// Address and credentials of the server.
    ///
    /// # Errors
    /// When they are incomplete or invalid.
    pub fn access(&self) -> anyhow::Result<Access> {
        Ok(Access::from_value(&self.config, &self.origin)?)
    }

    /// Address of the server, without credentials.
    ///
    /// # Errors
    /// When it is missing or invalid.
    pub fn anonymous_access(&self) -> anyhow::Result<Access> {
        let cluster = self.cluster();
        let config = json!({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
        });
        Ok(Access::from_value(&config, &self.origin)?)
    }

    /// The cluster of the context; null when there is none.
    #[must_use]
    pub fn cluster(&self) -> &Value {
        entry(&self.config, "clusters", self.context.text("cluster"), "cluster").unwrap_or(&Value::Null)
    }

    /// The user of the context; null when there is none.
    #[must_use]
    pub fn user(&self) -> &Value {
        entry(&self.config, "users", self.context.text("user"), "user").unwrap_or(&Value::Null)
    }
}

/// The entry of a name in a list of a kubeconfig.
fn entry<'a>(config: &'a Value, list: &str, name: &str, part: &str) -> Option<&'a Value> {
    config.items(list).iter().find(|item| item.text("name") == name).map(|item| item.at(part))
}

/// Merges kubeconfigs. Missing files are skipped, unless there is only one.
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

/// Makes paths in a kubeconfig absolute: they are relative to its folder.
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

/// Adds the entries whose names are new.
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
    fn the_first_entry_of_a_name_wins() {
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
    fn paths_are_relative_to_the_kubeconfig() {
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
