//! The kinds of a server, by their names, short names and categories. Pure.
//!
//! In: the discovery documents, and a word such as `svc`, `services`, `Service`, `deploy.apps` or `events.v1.events.k8s.io`. Out: the
//! [`Resource`], or an error with the closest name.

use anyhow::bail;
use api::value::ValueExt as _;
use serde_json::Value;

/// One kind of one group and version, as discovery shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) plural: String,
    pub(super) singular: String,
    pub(super) short: Vec<String>,
    categories: Vec<String>,
    pub(super) namespaced: bool,
    pub(super) verbs: Vec<String>,
    pub(super) parts: Vec<String>,
}

/// All kinds, in the order in which an ambiguous name is resolved.
#[derive(Debug, Default)]
pub(super) struct Kinds(pub(super) Vec<Resource>);

impl Resource {
    /// `v1` or `apps/v1`.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of its objects; without a namespace for cluster-scoped kinds, and for all namespaces.
    pub(super) fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let mut path = format!("{root}/{}", self.api_version());
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            path.push_str(&format!("/namespaces/{}", super::client::encode(namespace)));
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            path.push('/');
            path.push_str(&super::client::encode(name));
        }
        path
    }

    /// `services` or `deployments.apps`: how messages name the kind.
    pub(super) fn qualified(&self) -> String {
        self.with_group(&self.plural)
    }

    /// `service/web` or `deployment.apps/web`.
    pub(super) fn named(&self, name: &str) -> String {
        format!("{}/{name}", self.with_group(&self.singular))
    }

    /// `service "web"` or `deployment.apps "web"`.
    pub(super) fn quoted(&self, name: &str) -> String {
        format!("{} \"{name}\"", self.with_group(&self.singular))
    }

    fn with_group(&self, word: &str) -> String {
        if self.group.is_empty() { word.to_owned() } else { format!("{word}.{}", self.group) }
    }

    pub(super) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|have| have == verb)
    }

    pub(super) fn has(&self, part: &str) -> bool {
        self.parts.iter().any(|have| have == part)
    }

    /// Sets kind and apiVersion in an item of a list, which has neither.
    pub(super) fn set_type(&self, object: &mut Value) {
        object.put("apiVersion", self.api_version());
        object.put("kind", self.kind.as_str());
    }

    fn is_called(&self, word: &str) -> bool {
        [&self.plural, &self.singular].into_iter().chain(&self.short).any(|name| name.eq_ignore_ascii_case(word))
            || self.kind.eq_ignore_ascii_case(word)
    }
}

impl Kinds {
    /// Reads aggregated discovery documents.
    pub(super) fn read(documents: &[Value]) -> Self {
        let mut out = Vec::new();
        for group in documents.iter().flat_map(|document| document.items("items")) {
            for version in group.items("versions") {
                for entry in version.items("resources") {
                    out.push(resource(group.text("metadata.name"), version.text("version"), entry));
                }
            }
        }
        Self(out)
    }

    /// The kind of a name.
    pub(super) fn find(&self, word: &str) -> anyhow::Result<&Resource> {
        if let Some(found) = self.0.iter().find(|kind| kind.is_called(word)) {
            return Ok(found);
        }
        if let Some((name, rest)) = word.split_once('.') {
            let fits = |kind: &&Resource| {
                kind.group == rest || format!("{}.{}", kind.version, kind.group).trim_end_matches('.') == rest
            };
            if let Some(found) = self.0.iter().find(|kind| kind.is_called(name) && fits(kind)) {
                return Ok(found);
            }
        }
        let names = self.0.iter().flat_map(|kind| [&kind.plural, &kind.singular].into_iter().chain(&kind.short));
        let near = nearest(word, names.map(String::as_str));
        let hint = near.map(|name| format!("did you mean {name:?}? ")).unwrap_or_default();
        bail!("the server has no kind {word:?}; {hint}`waypost api-resources` lists those it has")
    }

    /// The kinds of a name: one, or those of a category such as `all`.
    pub(super) fn find_all(&self, word: &str) -> anyhow::Result<Vec<&Resource>> {
        let of_category: Vec<&Resource> =
            self.0.iter().filter(|kind| kind.categories.iter().any(|category| category == word)).collect();
        if of_category.is_empty() { Ok(vec![self.find(word)?]) } else { Ok(of_category) }
    }

    /// The kind of an object.
    pub(super) fn of(&self, object: &Value) -> anyhow::Result<&Resource> {
        let (version, kind) = (object.text("apiVersion"), object.text("kind"));
        if let Some(found) = self.0.iter().find(|one| one.kind == kind && one.api_version() == version) {
            return Ok(found);
        }
        let same = self.0.iter().find(|one| one.kind.eq_ignore_ascii_case(kind));
        let near = same.or_else(|| {
            let name = nearest(kind, self.0.iter().map(|one| one.kind.as_str()))?;
            self.0.iter().find(|one| one.kind == name)
        });
        let hint = near.map(|one| format!("did you mean kind {} of {}? ", one.kind, one.api_version()));
        bail!(
            "the server has no kind {kind:?} in {version:?}; {}`waypost api-resources` lists those it has",
            hint.unwrap_or_default()
        )
    }
}

fn resource(group: &str, version: &str, entry: &Value) -> Resource {
    let own = |list: &str| entry.texts(list).into_iter().map(str::to_owned).collect();
    let kind = entry.text("responseKind.kind");
    let singular = match entry.text("singularResource") {
        "" => kind.to_ascii_lowercase(),
        name => name.to_owned(),
    };
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        plural: entry.text("resource").to_owned(),
        singular,
        short: own("shortNames"),
        categories: own("categories"),
        namespaced: entry.text("scope") == "Namespaced",
        verbs: own("verbs"),
        parts: entry.items("subresources").iter().map(|part| part.text("subresource").to_owned()).collect(),
    }
}

/// The closest name: at most a third of its letters differ.
pub(super) fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let allowed = word.chars().count().div_ceil(3).min(3);
    let scored = names.into_iter().map(|name| (distance(&word, &name.to_ascii_lowercase()), name));
    scored.filter(|(wrong, _)| *wrong <= allowed).min_by_key(|(wrong, _)| *wrong).map(|(_, name)| name)
}

/// Edit distance: letters added, removed, changed or swapped with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for (at, row) in rows.iter_mut().enumerate() {
        row[0] = at;
    }
    for (at, cell) in rows[0].iter_mut().enumerate() {
        *cell = at;
    }
    for left in 1..=one.len() {
        for right in 1..=other.len() {
            let changed = rows[left - 1][right - 1] + usize::from(one[left - 1] != other[right - 1]);
            let mut best = changed.min(rows[left - 1][right] + 1).min(rows[left][right - 1] + 1);
            if left > 1 && right > 1 && one[left - 1] == other[right - 2] && one[left - 2] == other[right - 1] {
                best = best.min(rows[left - 2][right - 2] + 1);
            }
            rows[left][right] = best;
        }
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kinds() -> Kinds {
        let entry = |plural: &str, kind: &str, short: &[&str], scope: &str| {
            json!({"resource": plural, "responseKind": {"kind": kind}, "scope": scope, "shortNames": short,
                   "singularResource": kind.to_lowercase(), "verbs": ["get"], "categories": ["all"],
                   "subresources": [{"subresource": "status"}]})
        };
        let core = json!({"items": [{"metadata": {}, "versions": [{"version": "v1", "resources": [
            entry("services", "Service", &["svc"], "Namespaced"), entry("nodes", "Node", &["no"], "Cluster"),
            entry("events", "Event", &["ev"], "Namespaced")]}]}]});
        let groups = json!({"items": [
            {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [
                entry("deployments", "Deployment", &["deploy"], "Namespaced")]}]},
            {"metadata": {"name": "events.k8s.io"}, "versions": [{"version": "v1", "resources": [
                entry("events", "Event", &["ev"], "Namespaced")]}]}]});
        Kinds::read(&[core, groups])
    }

    #[test]
    fn kinds_are_found_by_all_their_names() {
        let kinds = kinds();
        for word in ["svc", "services", "service", "Service", "SVC"] {
            assert_eq!(kinds.find(word).expect(word).plural, "services");
        }
        for word in ["deploy", "deployments.apps", "deployment.v1.apps", "deploy.apps"] {
            assert_eq!(kinds.find(word).expect(word).group, "apps");
        }
        assert_eq!(kinds.find("events").expect("events").group, "");
        assert_eq!(kinds.find("events.events.k8s.io").expect("events").group, "events.k8s.io");
        assert_eq!(kinds.find_all("all").expect("a category").len(), 5);
    }

    #[test]
    fn the_closest_kind_is_suggested() {
        let message = kinds().find("serivces").expect_err("no kind").to_string();
        assert!(message.contains("\"services\"") && message.contains("waypost api-resources"), "{message}");
        let message = kinds().find("zebra").expect_err("no kind").to_string();
        assert!(!message.contains("did you mean"), "{message}");
        let message = kinds().of(&json!({"apiVersion": "v1", "kind": "Deployment"})).expect_err("no kind").to_string();
        assert!(message.contains("did you mean kind Deployment of apps/v1?"), "{message}");
    }

    #[test]
    fn paths_have_group_version_namespace_and_name() {
        let kinds = kinds();
        let deploy = kinds.find("deploy").expect("it is there");
        assert_eq!(deploy.path(Some("a"), Some("web")), "/apis/apps/v1/namespaces/a/deployments/web");
        assert_eq!(deploy.path(None, None), "/apis/apps/v1/deployments");
        assert_eq!(kinds.find("no").expect("nodes").path(Some("a"), Some("n/1")), "/api/v1/nodes/n%2F1");
        assert_eq!(
            (deploy.named("w"), deploy.quoted("w")),
            ("deployment.apps/w".into(), "deployment.apps \"w\"".into())
        );
    }

    #[test]
    fn swapped_letters_count_as_one_edit() {
        assert_eq!((distance("serivce", "service"), distance("", "ab"), distance("abc", "abc")), (1, 2, 0));
    }
}
