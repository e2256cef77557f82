//! Finding the server: which kubeconfig, which context, as whom, in which namespace.
//!
//! In: flags, `$KUBECONFIG`, the home of the user, the data directory of `waypost up`. Out: a [`Client`], or an error that says where
//! was looked and what to type. Files named in `$KUBECONFIG` are merged as kubectl does: the first to say something is right.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use api::value::ValueExt as _;
use clap::Args;
use rest::kubeconfig::Access;
use serde_json::{Value, json};

use super::client::Client;
use crate::config::Place;

/// Entries of a kubeconfig that name files beside it.
const FILES: [(&str, &str, &[&str]); 2] = [
    ("clusters", "cluster", &["certificate-authority"]),
    ("users", "user", &["client-certificate", "client-key", "tokenFile"]),
];

/// How to reach the API.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Reaching the API")]
pub(super) struct Connection {
    /// The namespace [default: that of the context, else default]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The kubeconfig [default: ~/.kube/config, else `kubeconfig` in the data directory]
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<OsString>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Act as this user
    #[arg(long = "as", value_name = "USER")]
    as_user: Option<String>,
    /// Act as a member of this group; may be repeated
    #[arg(long, value_name = "GROUP", requires = "as_user")]
    as_group: Vec<String>,
    #[command(flatten)]
    place: Place,
}

impl Connection {
    /// Reads the kubeconfig. Nothing is asked yet.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let files = self.files()?;
        let origin = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(":");
        let mut config = merged(&files)?;
        if let Some(context) = &self.context {
            config.put("current-context", context.as_str());
        }
        let current = config.text("current-context").to_owned();
        let context = entry(&config, "contexts", &current, "context").cloned();
        if context.is_none() && !current.is_empty() {
            let names: Vec<&str> = config.items("contexts").iter().map(|one| one.text("name")).collect();
            bail!("{origin} has no context {current:?}; it has: {}", names.join(", "));
        }
        let context = context.unwrap_or_default();
        if let Some(user) = &self.as_user {
            act_as(&mut config, &current, &context, user, &self.as_group);
        }
        let access = Access::from_value(&config, &origin)?;
        let own = Some(context.text("namespace")).filter(|name| !name.is_empty());
        let namespace = self.namespace.as_deref().or(own).unwrap_or("default").to_owned();
        Ok(Client::new(Arc::new(access), origin, namespace, self.namespace.is_some()))
    }

    /// The files to read: those that were named, or the first of the usual places that has one.
    fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        if let Some(named) = self.kubeconfig.as_ref().filter(|path| !path.is_empty()) {
            return Ok(std::env::split_paths(named).filter(|path| !path.as_os_str().is_empty()).collect());
        }
        let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config"));
        let usual = home.into_iter().chain([self.place.data_dir.join("kubeconfig")]);
        let usual: Vec<PathBuf> = usual.collect();
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
                    format!("reading the kubeconfig {}; `waypost up` writes one when it starts", file.display())
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

/// Adds to the user of a context whom to be.
fn act_as(config: &mut Value, name: &str, context: &Value, user: &str, groups: &[String]) {
    let who = context.text("user").to_owned();
    if who.is_empty() {
        // A context without a user gets one.
        let named = format!("{name}/as");
        let mut users = config.items("users").to_vec();
        users.push(json!({"name": named, "user": {"as": user, "as-groups": groups}}));
        config.put("users", users);
        for item in config.items_mut("contexts").iter_mut().filter(|item| item.text("name") == name) {
            item.put("context.user", named.as_str());
        }
        return;
    }
    for item in config.items_mut("users").iter_mut().filter(|item| item.text("name") == who) {
        item.put("user.as", user);
        item.put("user.as-groups", groups);
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

    #[test]
    fn somebody_else_can_be_acted_as_with_and_without_a_user() {
        for user in ["u", ""] {
            let mut config = json!({"contexts": [{"name": "c", "context": {"cluster": "k", "user": user}}],
                                    "users": [{"name": "u", "user": {"token": "t"}}]});
            let context = json!({"cluster": "k", "user": user});
            act_as(&mut config, "c", &context, "jane", &["devs".to_owned()]);
            let who = entry(&config, "contexts", "c", "context").expect("it is there").text("user").to_owned();
            let acting = entry(&config, "users", &who, "user").expect("it is there");
            assert_eq!((acting.text("as"), acting.texts("as-groups")), ("jane", vec!["devs"]));
        }
    }
}
