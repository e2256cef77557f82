//! The kinds of a server at one moment, and how definitions become kinds.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::{CustomRules, Definition};
use crate::crd;
use crate::facts::Facts;
use crate::kind::{Kind, Selectable, Subresource, labels_of, scale, status_of};
use crate::kinds::KINDS;
use crate::value::ValueExt as _;
use crate::{object, table};

/// The verbs of custom resources, in the order in which discovery lists them.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// All kinds of a server: those of the static table, and those of established definitions.
#[derive(Clone)]
pub struct Kinds {
    /// Served kinds, in the order of discovery.
    served: Vec<&'static Kind>,
    /// By group, version and plural.
    by_path: HashMap<(&'static str, &'static str, &'static str), &'static Kind>,
    /// Groups, and versions of groups, that are served.
    groups: HashSet<&'static str>,
    versions: HashSet<(&'static str, &'static str)>,
    /// The kind in whose form a table is stored, for definitions.
    by_table: HashMap<&'static str, &'static Kind>,
    /// Increases with every change.
    generation: u64,
}

impl Kinds {
    /// The kinds of the static table.
    #[must_use]
    pub fn fixed() -> &'static Self {
        static FIXED: LazyLock<Kinds> = LazyLock::new(|| Kinds::new(&BTreeMap::new(), 0));
        &FIXED
    }

    /// The kinds of the static table and of these definitions, by name.
    #[must_use]
    pub fn new(defined: &BTreeMap<String, Defined>, generation: u64) -> Self {
        let mut custom: Vec<&'static Kind> =
            defined.values().flat_map(|defined| defined.served.iter().copied()).collect();
        custom.sort_by(|a, b| {
            a.group.cmp(b.group).then_with(|| crd::compare_versions(a.version, b.version)).then(a.plural.cmp(b.plural))
        });
        let served: Vec<&'static Kind> = KINDS.iter().copied().chain(custom).collect();
        let by_path = served.iter().map(|kind| ((kind.group, kind.version, kind.plural), *kind)).collect();
        let by_table = defined.values().filter_map(|defined| Some((defined.stored?.table, defined.stored?))).collect();
        let groups = served.iter().map(|kind| kind.group).collect();
        let versions = served.iter().map(|kind| (kind.group, kind.version)).collect();
        Self { served, by_path, groups, versions, by_table, generation }
    }

    /// Increases with every change of a definition.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// All served kinds, in the order of discovery.
    #[must_use]
    pub fn served(&self) -> &[&'static Kind] {
        &self.served
    }

    /// The stored kinds of definitions, each table once.
    pub fn custom_tables(&self) -> impl Iterator<Item = &'static Kind> + '_ {
        self.by_table.values().copied()
    }

    /// The kind behind a URL.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        self.by_path.get(&(group, version, plural)).copied()
    }

    /// The kind of an object.
    #[must_use]
    pub fn find_kind(&self, group: &str, version: &str, name: &str) -> Option<&'static Kind> {
        self.served.iter().copied().find(|kind| kind.kind == name && kind.group == group && kind.version == version)
    }

    /// The kind in whose form objects of a table are stored.
    #[must_use]
    pub fn by_table(&self, table: &str) -> Option<&'static Kind> {
        crate::kinds::by_table(table).or_else(|| self.by_table.get(table).copied())
    }

    /// Whether a group has no kinds of the static table.
    #[must_use]
    pub fn is_custom_group(&self, group: &str) -> bool {
        !KINDS.iter().any(|kind| kind.group == group)
    }

    /// Whether a group is served.
    #[must_use]
    pub fn has_group(&self, group: &str) -> bool {
        self.groups.contains(group)
    }

    /// Whether a version of a group is served.
    #[must_use]
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.versions.contains(&(group, version))
    }
}

/// The kinds of one definition.
#[derive(Clone, Default)]
pub struct Defined {
    /// One for each served version; none before the definition is established.
    served: Vec<&'static Kind>,
    /// The version in which objects are stored; also while the definition is not served, so that controllers delete objects
    /// with their namespaces and owners.
    stored: Option<&'static Kind>,
    /// The rules of all versions.
    rules: Vec<&'static CustomRules>,
}

impl Defined {
    /// Frees what the definition compiled to, after it was deleted.
    pub fn release(self) {
        let empty = Arc::new(Definition::empty());
        for rules in self.rules {
            rules.replace(empty.clone());
        }
    }
}

/// The names of a kind: what is leaked, once for each distinct value.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Names {
    group: String,
    version: String,
    plural: String,
    singular: String,
    kind: String,
    short_names: Vec<String>,
    categories: Vec<String>,
    selectable: Vec<String>,
    namespaced: bool,
    has_status: bool,
    has_scale: bool,
}

/// Leaks names and keeps what was leaked for the next definition with equal names.
#[derive(Default)]
pub struct Interner {
    texts: HashSet<&'static str>,
    kinds: HashMap<Names, (&'static Kind, &'static CustomRules)>,
}

impl Interner {
    /// The kinds of a definition that was stored at a revision. Their rules follow the definition from now on.
    pub fn define(&mut self, definition: &Value, revision: u64) -> Defined {
        let is_served = crd::names::is_served(definition);
        let mut defined = Defined::default();
        let compiled = Definition::all(definition, revision);
        for (version, compiled) in definition.items("spec.versions").iter().zip(compiled) {
            let (kind, rules) = self.kind(definition, version, compiled);
            defined.rules.push(rules);
            if is_served && version.flag("served") {
                defined.served.push(kind);
            }
            if version.flag("storage") {
                defined.stored = Some(kind);
            }
        }
        defined
    }

    fn kind(
        &mut self,
        definition: &Value,
        version: &Value,
        compiled: Definition,
    ) -> (&'static Kind, &'static CustomRules) {
        let names = Names::new(definition, version);
        let compiled = Arc::new(compiled);
        if let Some((kind, rules)) = self.kinds.get(&names) {
            rules.replace(compiled);
            return (kind, rules);
        }
        let rules: &'static CustomRules = Box::leak(Box::new(CustomRules::new(names.namespaced, compiled)));
        let kind: &'static Kind = Box::leak(Box::new(self.leak(&names, rules)));
        self.kinds.insert(names, (kind, rules));
        (kind, rules)
    }

    fn leak(&mut self, names: &Names, rules: &'static CustomRules) -> Kind {
        let kind = self.text(&names.kind);
        let mut subresources: Vec<Subresource> = Vec::new();
        if names.has_status {
            subresources.push(status_of(kind));
        }
        if names.has_scale {
            subresources.push(scale());
        }
        let selectable = names.selectable.iter();
        // The values of a custom kind come from its definition.
        let selectable: Vec<Selectable> =
            selectable.map(|label| Selectable { label: self.text(label), value: |_| String::new() }).collect();
        Kind {
            group: self.text(&names.group),
            version: self.text(&names.version),
            kind,
            plural: self.text(&names.plural),
            singular: self.text(&names.singular),
            short_names: self.list(&names.short_names),
            categories: self.list(&names.categories),
            namespaced: names.namespaced,
            table: self.text(&format!("{}/{}", names.group, names.plural)),
            verbs: VERBS,
            subresources: Box::leak(subresources.into_boxed_slice()),
            unconditional_update: false,
            generation: true,
            selectable: Box::leak(selectable.into_boxed_slice()),
            table_view: &table::PLAIN,
            ..Kind::common(rules)
        }
    }

    fn text(&mut self, text: &str) -> &'static str {
        if let Some(known) = self.texts.get(text) {
            return known;
        }
        let leaked: &'static str = Box::leak(text.into());
        self.texts.insert(leaked);
        leaked
    }

    fn list(&mut self, texts: &[String]) -> &'static [&'static str] {
        let texts: Vec<&'static str> = texts.iter().map(|text| self.text(text)).collect();
        Box::leak(texts.into_boxed_slice())
    }
}

impl Names {
    fn new(definition: &Value, version: &Value) -> Self {
        let accepted = definition.at("status.acceptedNames");
        let names = if accepted.text("plural").is_empty() { definition.at("spec.names") } else { accepted };
        let texts = |path: &str| names.texts(path).into_iter().map(str::to_owned).collect();
        let selectable = version.items("selectableFields").iter();
        let label = |field: &Value| field.text("jsonPath").trim_start_matches('.').to_owned();
        Self {
            group: definition.text("spec.group").to_owned(),
            version: version.text("name").to_owned(),
            // The name of the definition begins with it: it cannot change.
            plural: definition.text("spec.names.plural").to_owned(),
            singular: names.text("singular").to_owned(),
            kind: names.text("kind").to_owned(),
            short_names: texts("shortNames"),
            categories: texts("categories"),
            selectable: selectable.map(label).collect(),
            namespaced: definition.text("spec.scope") == "Namespaced",
            has_status: version.has("subresources.status"),
            has_scale: version.has("subresources.scale"),
        }
    }
}

/// Group and plural of the custom resources in a table of the store; `None` for other tables.
#[must_use]
pub fn resource_of_table(table: &str) -> Option<(&str, &str)> {
    table.split_once('/').filter(|(group, _)| group.contains('.') && crate::kinds::by_table(table).is_none())
}

/// The facts of a stored object that selectors match on, given its table. Fields of custom resources are not included: the
/// selectable ones can change, so they are read when a selector uses them.
#[must_use]
pub fn facts_of(table: &str, value: &[u8]) -> Facts {
    match crate::kinds::by_table(table) {
        Some(kind) => kind.facts(&object::decode_light(value)),
        None if resource_of_table(table).is_some() => labels_of(&object::decode_light(value)),
        None => Facts::default(),
    }
}
