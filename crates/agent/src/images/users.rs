//! Which Pods of this machine use which images, as their folders say.
//!
//! In: the data directory. Out: for each Pod the names that its spec has, and what its containers were begun from. It is read from the
//! disk because people who remove images are another program than the agent.

use std::path::Path;

use api::value::ValueExt as _;
use serde_json::Value;

use super::name::full;
use crate::files;
use crate::home::Home;

/// What a Pod uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct User {
    /// `namespace/name`
    pub(super) pod: String,
    /// Full names of images.
    pub(super) names: Vec<String>,
    /// Digests in what its containers were begun from.
    pub(super) digests: Vec<String>,
}

/// All Pods that have a folder.
pub(super) fn users(data_dir: &Path) -> Vec<User> {
    let home = Home::new(data_dir);
    home.uids().iter().map(|uid| user(&home, uid)).collect()
}

fn user(home: &Home, uid: &str) -> User {
    let home = home.pod(uid);
    let pod: Value = files::get(&home.pod()).unwrap_or_default();
    let lists = ["spec.initContainers", "spec.containers"];
    let containers: Vec<&Value> = lists.iter().flat_map(|list| pod.items(list)).collect();
    let digest = |container: &&Value| {
        let kept: Value = files::get(&home.state(container.text("name")))?;
        kept.text("image").rsplit_once("sha256:").map(|(_, digest)| digest.to_owned())
    };
    let names = containers.iter().map(|container| container.text("image"));
    User {
        pod: format!("{}/{}", pod.text("metadata.namespace"), pod.text("metadata.name")),
        names: names.filter(|name| !crate::runtime::is_process(name)).map(full).collect(),
        digests: containers.iter().filter_map(digest).collect(),
    }
}
