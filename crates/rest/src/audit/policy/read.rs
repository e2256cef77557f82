//! A policy file becomes a [`Policy`]: YAML or JSON, decoded by field and validated as kube-apiserver does.
//!
//! All problems are reported at once, each with the path of its field (`rules[2].omitStages[0]`). Unknown fields and duplicate keys
//! are warnings, as in kube-apiserver; a field of the wrong type is an error.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use api::field::{Errors, Path as Field, quote};
use api::names;
use api::yaml::YamlError;
use serde_json::{Map, Value};

use super::{GroupResources, Policy, Rule};
use crate::audit::level::{Level, Stage, Stages};

const API_VERSION: &str = "audit.k8s.io/v1";
const KIND: &str = "Policy";

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("failed to read file path {:?}: {source}", path.display().to_string())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is not a valid policy.
    #[error("{source}: from file {}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Every problem that was found.
        source: InvalidPolicy,
    },
}

/// What is wrong with a policy, with the messages of kube-apiserver where it has them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPolicy {
    /// It is neither YAML nor JSON.
    #[error("failed decoding: {0}")]
    Syntax(#[from] YamlError),
    /// It is a list or a scalar.
    #[error("failed decoding: the document is not an object")]
    NoObject,
    /// It is an object of another type.
    #[error(
        "failed decoding: apiVersion {} and kind {} are not supported, expected {} and {}",
        quote(.api_version), quote(.kind), quote(API_VERSION), quote(KIND)
    )]
    Type {
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// Fields have wrong types or values.
    #[error("{}", .0.summary())]
    Fields(Errors),
    /// It has no rules.
    #[error("loaded illegal policy with 0 rules")]
    NoRules,
}

impl Policy {
    /// Reads a policy from a file, and logs warnings.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a valid policy.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        let bytes = std::fs::read(path).map_err(|source| PolicyError::Read { path: path.to_owned(), source })?;
        let invalid = |source| PolicyError::Invalid { path: path.to_owned(), source };
        let (policy, warnings) = Self::parse(&bytes).map_err(invalid)?;
        if !warnings.is_empty() {
            let problem = warnings.join(", ");
            tracing::warn!(file = %path.display(), problem, "audit policy contains errors, ignoring unknown fields");
        }
        Ok(policy)
    }

    /// Reads a policy from the bytes of a file; the second part lists what was ignored.
    ///
    /// # Errors
    /// All problems, with the messages of kube-apiserver where it has them.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Vec<String>), InvalidPolicy> {
        let (value, mut warnings) = api::yaml::from_yaml(bytes)?;
        let Value::Object(document) = value else { return Err(InvalidPolicy::NoObject) };
        check_type(&document)?;
        let mut reader = Reader { errors: Errors::default(), unknown: Vec::new() };
        let policy = reader.policy(&document);
        if !reader.errors.is_empty() {
            return Err(InvalidPolicy::Fields(reader.errors));
        }
        if policy.rules.is_empty() {
            return Err(InvalidPolicy::NoRules);
        }
        warnings.append(&mut reader.unknown);
        Ok((policy, warnings))
    }
}

/// The document must name its version; the kind may be absent.
fn check_type(document: &Map<String, Value>) -> Result<(), InvalidPolicy> {
    let text = |name| document.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version == API_VERSION && matches!(kind, "" | KIND) {
        return Ok(());
    }
    Err(InvalidPolicy::Type { api_version: version.to_owned(), kind: kind.to_owned() })
}

/// Decodes and validates, and collects problems on the way.
struct Reader {
    errors: Errors,
    /// `unknown field "rules[0].usres"`.
    unknown: Vec<String>,
}

impl Reader {
    fn policy(&mut self, document: &Map<String, Value>) -> Policy {
        const KNOWN: [&str; 6] = ["apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"];
        self.check_known(None, document, &KNOWN);
        let omit_stages = self.stages(&Field::Root("omitStages"), document.get("omitStages"));
        let omit_managed_fields = self.flag(&Field::Root("omitManagedFields"), document.get("omitManagedFields"));
        let path = Field::Root("rules");
        let mut rules = Vec::new();
        for (index, value) in self.list(&path, document.get("rules")).iter().enumerate() {
            rules.extend(self.rule(&path.index(index), value));
        }
        Policy { rules, omit_stages, omit_managed_fields: omit_managed_fields.unwrap_or_default() }
    }

    fn rule(&mut self, path: &Field<'_>, value: &Value) -> Option<Rule> {
        const KNOWN: [&str; 9] = [
            "level",
            "users",
            "userGroups",
            "verbs",
            "resources",
            "namespaces",
            "nonResourceURLs",
            "omitStages",
            "omitManagedFields",
        ];
        let map = &self.map(path, value)?;
        self.check_known(Some(path), map, &KNOWN);
        let level = self.level(&path.child("level"), map.get("level"));
        let (urls_path, resources_path) = (path.child("nonResourceURLs"), path.child("resources"));
        let non_resource_urls = self.urls(&urls_path, map.get("nonResourceURLs"));
        let mut resources = Vec::new();
        for (index, value) in self.list(&resources_path, map.get("resources")).iter().enumerate() {
            resources.extend(self.group_resources(&resources_path, &resources_path.index(index), value));
        }
        let omit_stages = self.stages(&path.child("omitStages"), map.get("omitStages"));
        let namespaces = self.texts(&path.child("namespaces"), map.get("namespaces"));
        if !non_resource_urls.is_empty() && (!resources.is_empty() || !namespaces.is_empty()) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            self.errors.invalid(&urls_path, Value::from(non_resource_urls.clone()), why);
        }
        Some(Rule {
            level: level?,
            users: self.texts(&path.child("users"), map.get("users")),
            user_groups: self.texts(&path.child("userGroups"), map.get("userGroups")),
            verbs: self.texts(&path.child("verbs"), map.get("verbs")),
            resources,
            namespaces,
            non_resource_urls,
            omit_stages,
            omit_managed_fields: self.flag(&path.child("omitManagedFields"), map.get("omitManagedFields")),
        })
    }

    fn level(&mut self, path: &Field<'_>, value: Option<&Value>) -> Option<Level> {
        let name = self.text(path, value)?;
        if name.is_empty() {
            self.errors.required(path, "");
            return None;
        }
        let level = Level::named(&name);
        if level.is_none() {
            self.errors.not_supported(path, name, &Level::ALL.map(Level::name));
        }
        level
    }

    fn urls(&mut self, path: &Field<'_>, value: Option<&Value>) -> Vec<String> {
        let urls = self.texts(path, value);
        for (index, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            let path = path.index(index);
            if !url.starts_with('/') {
                self.errors.invalid(&path, url.as_str(), "non-resource URL rules must begin with a '/' character");
            }
            if url.strip_suffix('*').unwrap_or(url).contains('*') {
                let why = "non-resource URL wildcards '*' must be the final character of the rule";
                self.errors.invalid(&path, url.as_str(), why);
            }
        }
        urls
    }

    /// `list` is the path that kube-apiserver names in errors: without an index.
    fn group_resources(&mut self, list: &Field<'_>, path: &Field<'_>, value: &Value) -> Option<GroupResources> {
        let map = &self.map(path, value)?;
        self.check_known(Some(path), map, &["group", "resources", "resourceNames"]);
        let group = self.text(&path.child("group"), map.get("group")).unwrap_or_default();
        let resources = self.texts(&path.child("resources"), map.get("resources"));
        let resource_names = self.texts(&path.child("resourceNames"), map.get("resourceNames"));
        if !matches!(group.as_str(), "" | "*") {
            let wrong = names::name_is_subdomain(&group, false);
            if !wrong.is_empty() {
                self.errors.invalid(&list.child("group"), group.as_str(), &wrong.join(","));
            }
        }
        if resources.is_empty() && !resource_names.is_empty() {
            let why = "using resourceNames requires at least one resource";
            self.errors.invalid(&list.child("resourceNames"), Value::from(resource_names.clone()), why);
        }
        Some(GroupResources { group, resources, resource_names })
    }

    fn stages(&mut self, path: &Field<'_>, value: Option<&Value>) -> Stages {
        let mut stages = Vec::new();
        for (index, name) in self.texts(path, value).into_iter().enumerate() {
            match Stage::named(&name) {
                Some(stage) => stages.push(stage),
                None => {
                    let why = format!("allowed stages are {}", Stage::ALL.map(Stage::name).join(","));
                    self.errors.invalid(&path.index(index), name, &why);
                }
            }
        }
        stages.into_iter().collect()
    }

    /// A string; absent and null read as empty.
    fn text(&mut self, path: &Field<'_>, value: Option<&Value>) -> Option<String> {
        match value {
            None | Some(Value::Null) => Some(String::new()),
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => {
                self.errors.invalid(path, other, "must be a string");
                None
            }
        }
    }

    fn texts(&mut self, path: &Field<'_>, value: Option<&Value>) -> Vec<String> {
        let items = self.list(path, value).iter().enumerate();
        items.filter_map(|(index, item)| self.text(&path.index(index), Some(item))).collect()
    }

    fn flag(&mut self, path: &Field<'_>, value: Option<&Value>) -> Option<bool> {
        match value {
            None | Some(Value::Null) => None,
            Some(Value::Bool(flag)) => Some(*flag),
            Some(other) => {
                self.errors.invalid(path, other, "must be a boolean");
                None
            }
        }
    }

    fn list<'v>(&mut self, path: &Field<'_>, value: Option<&'v Value>) -> &'v [Value] {
        match value {
            None | Some(Value::Null) => &[],
            Some(Value::Array(items)) => items,
            Some(other) => {
                self.errors.invalid(path, other, "must be a list");
                &[]
            }
        }
    }

    /// An object; null reads as empty.
    fn map<'v>(&mut self, path: &Field<'_>, value: &'v Value) -> Option<Cow<'v, Map<String, Value>>> {
        match value {
            Value::Object(map) => Some(Cow::Borrowed(map)),
            Value::Null => Some(Cow::default()),
            other => {
                self.errors.invalid(path, other, "must be an object");
                None
            }
        }
    }

    fn check_known(&mut self, path: Option<&Field<'_>>, map: &Map<String, Value>, known: &[&str]) {
        for name in map.keys().filter(|name| !known.contains(&name.as_str())) {
            let field = path.map_or_else(|| name.clone(), |path| path.child(name).to_string());
            self.unknown.push(format!("unknown field {}", quote(&field)));
        }
    }
}
