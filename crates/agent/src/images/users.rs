//! The images that Pods of this node use.
//!
//! In: the data directory. Out: per Pod the image names of its spec and the digests of its containers. Read from disk, because `waypost image` is
//! another process than the agent.

use std::path::Path;

use api::value::ValueExt as _;
use serde_json::Value;

use super::name::{full, is_host_image};
use crate::data_dir::AgentDir;
use crate::files;

/// A Pod and its images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct User {
    /// `namespace/name`
    pub(super) pod: String,
    /// Canonical image names.
    pub(super) names: Vec<String>,
    /// Image digests of its containers.
    pub(super) digests: Vec<String>,
}

/// All Pods that have a directory.
pub(super) fn users(data_dir: &Path) -> Vec<User> {
    let home = AgentDir::new(data_dir);
    home.uids().iter().map(|uid| user(&home, uid)).collect()
}

fn user(home: &AgentDir, uid: &str) -> User {
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
        names: names.filter(|name| !is_host_image(name)).map(full).collect(),
        digests: containers.iter().filter_map(digest).collect(),
    }
}
