//! The audit policy: which requests are recorded, and how much of them.
//!
//! In: the attributes of a request. Out: a [`Verdict`]. The first rule that matches decides; a request that no rule matches is not
//! recorded. Evaluation is pure; reading and validating the file is in [`read`].

mod read;
#[cfg(test)]
mod tests;

use super::level::{Level, Stage, Stages};
use crate::authz::Attributes;

pub use read::{InvalidPolicy, PolicyError};

/// An `audit.k8s.io/v1` Policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    /// Stages that are omitted whatever rule matches.
    omit_stages: Stages,
    /// What rules that do not say otherwise do with `managedFields`.
    omit_managed_fields: bool,
}

/// One rule. An empty list matches everything.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    level: Level,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    non_resource_urls: Vec<String>,
    omit_stages: Stages,
    omit_managed_fields: Option<bool>,
}

/// Resources of one API group.
#[derive(Clone, PartialEq, Eq, Debug)]
struct GroupResources {
    /// Empty for the core group, `*` for all.
    group: String,
    /// `pods`, `pods/log`, `pods/*`, `*/scale` or `*`.
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// The decision of a policy about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// How much is recorded.
    pub level: Level,
    /// Stages without an event.
    pub omit_stages: Stages,
    /// Whether `managedFields` of objects are left out.
    pub omit_managed_fields: bool,
}

impl Verdict {
    /// Whether a stage generates an event.
    #[must_use]
    pub fn records(&self, stage: Stage) -> bool {
        self.level != Level::None && !self.omit_stages.contains(stage)
    }
}

impl Policy {
    /// What to record of a request. A user without a name stands for a request that could not be authenticated.
    #[must_use]
    pub fn evaluate(&self, attributes: &Attributes<'_>) -> Verdict {
        let rule = self.rules.iter().find(|rule| rule.matches(attributes));
        Verdict {
            level: rule.map_or(Level::None, |rule| rule.level),
            omit_stages: rule.map_or_else(Stages::default, |rule| rule.omit_stages).union(self.omit_stages),
            omit_managed_fields: rule.and_then(|rule| rule.omit_managed_fields).unwrap_or(self.omit_managed_fields),
        }
    }
}

impl Rule {
    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        let user = attributes.user;
        let is_known = !user.name.is_empty();
        let users = self.users.is_empty() || is_known && has(&self.users, &user.name);
        let groups = self.user_groups.is_empty() || user.groups.iter().any(|group| has(&self.user_groups, group));
        let verbs = self.verbs.is_empty() || has(&self.verbs, attributes.verb);
        users && groups && verbs && self.matches_target(attributes)
    }

    fn matches_target(&self, attributes: &Attributes<'_>) -> bool {
        let for_resources = !self.namespaces.is_empty() || !self.resources.is_empty();
        match attributes.path {
            Some(path) if !for_resources => {
                self.non_resource_urls.is_empty() || self.non_resource_urls.iter().any(|url| path_matches(url, path))
            }
            Some(_) => false,
            None if for_resources => {
                // Cluster-scoped resources have the namespace "".
                (self.namespaces.is_empty() || has(&self.namespaces, attributes.namespace))
                    && (self.resources.is_empty() || self.resources.iter().any(|group| group.matches(attributes)))
            }
            None => self.non_resource_urls.is_empty(),
        }
    }
}

impl GroupResources {
    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        if self.group != "*" && self.group != attributes.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let named = self.resource_names.is_empty() || has(&self.resource_names, attributes.name);
        named && self.resources.iter().any(|resource| resource_matches(resource, attributes))
    }
}

fn has(list: &[String], value: &str) -> bool {
    list.iter().any(|item| item == value)
}

/// `pods` is the resource without its subresources; `pods/*` includes the resource itself.
fn resource_matches(pattern: &str, attributes: &Attributes<'_>) -> bool {
    let (resource, subresource) = (attributes.resource, attributes.subresource);
    match pattern.split_once('/') {
        None => pattern == "*" || subresource.is_empty() && pattern == resource,
        Some((prefix, suffix)) => {
            let same = prefix == resource && suffix == subresource && !subresource.is_empty();
            let any_resource = prefix == "*" && suffix == subresource && !subresource.is_empty();
            let any_subresource = suffix == "*" && prefix == resource;
            same || any_resource || any_subresource
        }
    }
}

/// A path, or a prefix that ends with `*`.
fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == path || pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*'))
}
