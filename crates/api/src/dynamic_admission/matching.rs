//! Whether a policy, a binding or a webhook is about a request.
//!
//! In: its rules and selectors, read once into a [`Criteria`], and a [`Request`]. Out: the form of the request that a rule
//! names, or nothing. Policies and webhooks match in the same way; only policies exclude and name objects.

use serde_json::Value;

use super::request::{Form, Operation, Request};
use crate::facts::Facts;
use crate::kind::Kind;
use crate::kinds;
use crate::selector::{self, Selector};
use crate::status::Status;
use crate::value::ValueExt as _;

/// What a policy, a binding or a webhook is about.
#[derive(Clone, PartialEq, Debug)]
pub struct Criteria {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// Without rules everything matches.
    all: bool,
    /// Requests for the same objects in other groups or versions match too.
    equivalent: bool,
    /// None when the selector means nothing, which validation does not let pass.
    namespaces: Option<Selector>,
    objects: Option<Selector>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// Resource and part.
    resources: Vec<(String, String)>,
    scope: Scope,
    /// Empty: every name.
    names: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    All,
    Namespaced,
    Cluster,
    Unknown,
}

/// Finds the labels of a namespace; none when it does not exist.
pub type NamespaceLabels<'a> = dyn Fn(&str) -> Option<Facts> + 'a;

impl Criteria {
    /// Of a webhook.
    #[must_use]
    pub fn of_webhook(webhook: &Value) -> Self {
        Self { all: false, ..Self::read(webhook, "rules") }
    }

    /// Of `matchConstraints` or `matchResources`, which match everything without rules.
    #[must_use]
    pub fn of_resources(resources: &Value) -> Self {
        let all = resources.items("resourceRules").is_empty();
        Self { all, ..Self::read(resources, "resourceRules") }
    }

    fn read(holder: &Value, rules: &str) -> Self {
        let read = |list: &str| holder.items(list).iter().map(Rule::read).collect();
        Self {
            rules: read(rules),
            excluded: read("excludeResourceRules"),
            all: false,
            equivalent: holder.text("matchPolicy") == "Equivalent",
            namespaces: selector::from_object(holder.at("namespaceSelector")),
            objects: selector::from_object(holder.at("objectSelector")),
        }
    }

    /// The form of the request that these criteria are about.
    ///
    /// # Errors
    /// 404, when labels of a namespace matter that does not exist; 500, when a selector means nothing.
    pub fn matches(&self, request: &Request<'_>, namespaces: &NamespaceLabels<'_>) -> Result<Option<Form>, Status> {
        // An error only counts where everything else matches.
        let by_namespace = self.selects_namespace(request, namespaces);
        if matches!(by_namespace, Ok(false)) {
            return Ok(None);
        }
        let by_object = self.selects_object(request);
        if matches!(by_object, Ok(false)) || self.find(&self.excluded, request).is_some() {
            return Ok(None);
        }
        let form = if self.all { Some(request.form()) } else { self.find(&self.rules, request) };
        if form.is_some() {
            by_namespace?;
            by_object?;
        }
        Ok(form)
    }

    fn selects_namespace(&self, request: &Request<'_>, namespaces: &NamespaceLabels<'_>) -> Result<bool, Status> {
        let is_namespace = request.kind.plural == "namespaces";
        if request.namespace.is_empty() && !is_namespace {
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().ok_or_else(meaningless)?;
        if selector.is_everything() {
            return Ok(true);
        }
        // A Namespace that is being written is not stored yet as it will be.
        let is_written = matches!(request.operation, Operation::Create | Operation::Update);
        let facts = if is_namespace && request.subresource.is_none() && is_written {
            labels(request.object)
        } else {
            let missing = || Status::not_found(kinds::namespace::KIND.resource(), request.namespace);
            namespaces(request.namespace).ok_or_else(missing)?
        };
        Ok(selector.matches(&facts, "", ""))
    }

    fn selects_object(&self, request: &Request<'_>) -> Result<bool, Status> {
        let selector = self.objects.as_ref().ok_or_else(meaningless)?;
        let selects = |object: &Value| object.is_object() && selector.matches(&labels(object), "", "");
        Ok(selector.is_everything() || selects(request.object) || selects(request.old_object))
    }

    /// The first form that one of the rules names: that of the request, or an equivalent one.
    fn find(&self, rules: &[Rule], request: &Request<'_>) -> Option<Form> {
        if rules.iter().any(|rule| rule.names(request, request.kind)) {
            return Some(request.form());
        }
        if !self.equivalent {
            return None;
        }
        let others: Vec<&'static Kind> = equivalents(request).collect();
        let named = rules.iter().find_map(|rule| others.iter().find(|kind| rule.names(request, kind)))?;
        Some(Form::of(named, request.subresource))
    }
}

fn meaningless() -> Status {
    Status::internal("a label selector of the admission configuration is invalid")
}

/// Other kinds that show the same stored objects, with the same part.
fn equivalents(request: &Request<'_>) -> impl Iterator<Item = &'static Kind> {
    let (own, part) = (request.kind, request.subresource.map(|part| part.name));
    kinds::KINDS.iter().copied().filter(move |kind| {
        !own.table.is_empty()
            && kind.table == own.table
            && !std::ptr::eq(*kind, own)
            && part.is_none_or(|part| kind.subresource(part).is_some())
    })
}

/// The labels of an object.
#[must_use]
pub fn labels(object: &Value) -> Facts {
    let pairs = object.map("metadata.labels").into_iter().flatten();
    let pairs = pairs.map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into()));
    Facts { labels: pairs.collect(), fields: Box::default() }
}

impl Rule {
    fn read(rule: &Value) -> Self {
        let texts = |field: &str| rule.texts(field).into_iter().map(str::to_owned).collect();
        let split = |entry: &str| {
            let (resource, part) = entry.split_once('/').unwrap_or((entry, ""));
            (resource.to_owned(), part.to_owned())
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: rule.texts("resources").into_iter().map(split).collect(),
            scope: match rule.text("scope") {
                "" | "*" => Scope::All,
                "Namespaced" => Scope::Namespaced,
                "Cluster" => Scope::Cluster,
                _ => Scope::Unknown,
            },
            names: texts("resourceNames"),
        }
    }

    /// Whether the rule names a request, were it for this kind.
    fn names(&self, request: &Request<'_>, kind: &Kind) -> bool {
        let among = |list: &[String], word: &str| list.iter().any(|item| item == "*" || item == word);
        let part = request.subresource.map_or("", |part| part.name);
        let is = |have: &str, wanted: &str| have == "*" || have == wanted;
        // Namespaces belong to the cluster, though requests for them name a namespace.
        let cluster_wide = request.namespace.is_empty() || (kind.group.is_empty() && kind.plural == "namespaces");
        let in_scope = match self.scope {
            Scope::All => true,
            Scope::Namespaced => !cluster_wide,
            Scope::Cluster => cluster_wide,
            Scope::Unknown => false,
        };
        in_scope
            && among(&self.operations, request.operation.name())
            && among(&self.groups, kind.group)
            && among(&self.versions, kind.version)
            && self.resources.iter().any(|(resource, sub)| is(resource, kind.plural) && is(sub, part))
            && (self.names.is_empty() || self.names.iter().any(|name| name == request.name))
    }
}

#[cfg(test)]
mod tests;
