//! The checks of Pod Security by subject, and helpers for their messages.
//!
//! In: a Pod. Out: the reason and detail of a violation. Levels and versions are assigned to the functions in [`super::evaluate`].

pub(super) mod host;
pub(super) mod kernel;
pub(super) mod privileges;
pub(super) mod profiles;
pub(super) mod users;
pub(super) mod volumes;

use serde_json::Value;

use crate::value::ValueExt as _;

/// A check; none when the Pod passes.
pub(super) type CheckFn = fn(&Pod<'_>) -> Option<Forbidden>;

/// What is checked: a Pod or a Pod template.
pub(super) struct Pod<'a> {
    pub(super) metadata: &'a Value,
    pub(super) spec: &'a Value,
}

/// Why a Pod does not pass.
#[derive(Debug)]
pub(super) struct Forbidden {
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

impl<'a> Pod<'a> {
    /// Init containers, containers and ephemeral containers.
    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| spec.items(list))
    }

    /// The names of the containers that satisfy a predicate.
    fn containers_that(&self, predicate: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| predicate(container)).map(|container| container.text("name")).collect()
    }

    /// A field of the security context of the Pod (null where it is not set), and that of each container with the name of the container.
    fn own_and_containers(&self, field: &'static str) -> (&'a Value, impl Iterator<Item = (&'a str, &'a Value)>) {
        let context = |holder: &'a Value| holder.at("securityContext").at(field);
        (context(self.spec), self.containers().map(move |container| (container.text("name"), context(container))))
    }
}

/// `container "a"` or `containers "a", "b"`.
fn containers(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names))
}

/// `pod`, `container "a"` or `pod and container "a"`; none when neither the Pod nor a container is meant.
fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names) {
        (false, []) => None,
        (true, []) => Some("pod".to_owned()),
        (false, names) => Some(containers(names)),
        (true, names) => Some(format!("pod and {}", containers(names))),
    }
}

/// `"a", "b"`. Quotes in the values are not escaped.
fn quoted<'w>(words: impl IntoIterator<Item = &'w &'w str>) -> String {
    words.into_iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

fn plural(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}
