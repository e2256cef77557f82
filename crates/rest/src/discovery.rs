//! Discovery: the table of kinds in, discovery documents out.
//!
//! There are two forms. The legacy one is a tree of small documents (groups, then the resources of each version); the aggregated one is
//! a single document for all of `/api` or `/apis`, with an ETag. Both are made from the same [`Kind`]s. Nothing here depends on
//! HTTP: the caller sets the headers in the constants.

use std::fmt::Write as _;

use api::kind::{FOREIGN_KINDS, Kind, Subresource};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use ring::digest::{SHA256, SHA512, digest};
use serde_json::{Map, Value, json};

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

/// The content type of an aggregated document; clients compare its parameters.
pub(crate) const AGGREGATED_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The `Cache-Control` of an aggregated document.
pub(crate) const AGGREGATED_CACHE_CONTROL: &str = "public";

/// Groups in the order in which clients resolve ambiguous names; other groups follow.
const GROUP_ORDER: &[&str] = &[
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];

/// Served paths besides those of the groups.
const OTHER_PATHS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
];

/// An aggregated document.
#[derive(Clone, Debug)]
pub(crate) struct Aggregated {
    /// The JSON.
    pub(crate) body: Bytes,
    /// The ETag, quoted. An equal `If-None-Match` gets 304.
    pub(crate) etag: String,
}

/// `/`: all served paths.
pub(crate) fn root(kinds: &[&'static Kind]) -> Value {
    let mut paths: Vec<String> = OTHER_PATHS.iter().map(|path| (*path).to_owned()).collect();
    paths.extend(["/api".to_owned(), "/apis".to_owned(), "/apis/".to_owned()]);
    paths.extend(groups(kinds).into_iter().map(|group| format!("/apis/{group}")));
    paths.extend(group_versions(kinds).into_iter().map(|(group, version)| format!("/{}", path(group, version))));
    paths.sort_unstable();
    json!({ "paths": paths })
}

/// `/api`. `address` is that of this server (`host:port`).
pub(crate) fn core_versions(kinds: &[&'static Kind], address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": versions(kinds, ""),
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": address }],
    })
}

/// `/apis`. The core group is not listed.
pub(crate) fn group_list(kinds: &[&'static Kind]) -> Value {
    let groups: Vec<Value> = groups(kinds).into_iter().map(|group| group_members(kinds, group)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `/apis/{group}`, if it exists.
pub(crate) fn group(kinds: &[&'static Kind], name: &str) -> Option<Value> {
    let name = groups(kinds).into_iter().find(|group| *group == name)?;
    let mut document = group_members(kinds, name);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    Some(document)
}

/// `/api/v1` and `/apis/{group}/{version}`, if it exists.
pub(crate) fn resources(kinds: &[&'static Kind], group: &str, version: &str) -> Option<Value> {
    let here = kinds_of(kinds, group, version);
    let first = here.first()?;
    let mut list = Vec::new();
    for kind in &here {
        list.push(resource(kinds, kind));
        list.extend(kind.subresources.iter().map(|sub| subresource(kind, sub)));
    }
    let mut document = json!({ "kind": "APIResourceList", "groupVersion": first.api_version(), "resources": list });
    // kube-apiserver omits the version in the core document.
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    Some(document)
}

/// All of `/api` in one document.
pub(crate) fn aggregated_core(kinds: &[&'static Kind]) -> Aggregated {
    aggregated(kinds, &[""])
}

/// All of `/apis` in one document.
pub(crate) fn aggregated_groups(kinds: &[&'static Kind]) -> Aggregated {
    aggregated(kinds, &groups(kinds))
}

/// The group version of a subresource's kind, if it differs from its parent's.
pub(crate) fn foreign(kind: &str) -> Option<(&'static str, &'static str)> {
    FOREIGN_KINDS.iter().find(|(name, _, _)| *name == kind).map(|(_, group, version)| (*group, *version))
}

/// `api/v1` or `apis/{group}/{version}`: the path of a group version without its slash.
pub(crate) fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Every group version, the core group first.
pub(crate) fn group_versions(kinds: &[&'static Kind]) -> Vec<(&'static str, &'static str)> {
    let mut out = Vec::new();
    for group in std::iter::once("").chain(groups(kinds)) {
        out.extend(versions(kinds, group).into_iter().map(|version| (group, version)));
    }
    out
}

/// The kinds of a group version, by name.
pub(crate) fn kinds_of(kinds: &[&'static Kind], group: &str, version: &str) -> Vec<&'static Kind> {
    let mut here: Vec<_> =
        kinds.iter().copied().filter(|kind| kind.group == group && kind.version == version).collect();
    here.sort_unstable_by_key(|kind| kind.plural);
    here
}

/// Upper-case hexadecimal SHA-512, the form of every entity tag here.
pub(crate) fn hash(bytes: &[u8]) -> String {
    digest(&SHA512, bytes).as_ref().iter().fold(String::with_capacity(128), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

fn groups(kinds: &[&'static Kind]) -> Vec<&'static str> {
    let mut out: Vec<&'static str> = Vec::new();
    for kind in kinds.iter().filter(|kind| !kind.group.is_empty()) {
        if !out.contains(&kind.group) {
            out.push(kind.group);
        }
    }
    out.sort_by_key(|group| GROUP_ORDER.iter().position(|known| known == group).unwrap_or(GROUP_ORDER.len()));
    out
}

fn versions(kinds: &[&'static Kind], group: &str) -> Vec<&'static str> {
    let mut out: Vec<&'static str> = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.group == group) {
        if !out.contains(&kind.version) {
            out.push(kind.version);
        }
    }
    out
}

fn group_members(kinds: &[&'static Kind], group: &str) -> Value {
    let versions: Vec<Value> = versions(kinds, group)
        .into_iter()
        .map(|version| json!({ "groupVersion": format!("{group}/{version}"), "version": version }))
        .collect();
    let preferred = versions.first().cloned();
    json!({ "name": group, "versions": versions, "preferredVersion": preferred })
}

fn resource(kinds: &[&'static Kind], kind: &Kind) -> Value {
    let mut entry = json!({
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": kind.verbs,
    });
    put_names(&mut entry, kind);
    if let Some(hash) = storage_version_hash(kinds, kind) {
        entry["storageVersionHash"] = hash.into();
    }
    entry
}

fn subresource(kind: &Kind, sub: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", kind.plural, sub.name),
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": sub.kind,
        "verbs": sub.verbs,
    });
    if let Some((group, version)) = foreign(sub.kind) {
        entry["group"] = group.into();
        entry["version"] = version.into();
    }
    entry
}

fn put_names(entry: &mut Value, kind: &Kind) {
    if !kind.short_names.is_empty() {
        entry["shortNames"] = kind.short_names.into();
    }
    if !kind.categories.is_empty() {
        entry["categories"] = kind.categories.into();
    }
}

/// The hash of the storage version. Kinds that share a table are stored as the core kind among them, or as the first version.
fn storage_version_hash(kinds: &[&'static Kind], kind: &Kind) -> Option<String> {
    if kind.table.is_empty() {
        return None;
    }
    let mut sharing = kinds.iter().copied().filter(|other| other.table == kind.table);
    let first = sharing.clone().find(|other| other.group == kind.group);
    let stored = sharing.find(|other| other.group.is_empty()).or(first).unwrap_or(kind);
    let name = format!("{}/{}/{}", stored.group, stored.version, stored.kind);
    Some(BASE64_STANDARD.encode(&digest(&SHA256, name.as_bytes()).as_ref()[..8]))
}

fn aggregated(kinds: &[&'static Kind], groups: &[&str]) -> Aggregated {
    let items: Vec<Value> = groups.iter().map(|group| aggregated_group(kinds, group)).collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    let body = list.to_string();
    let etag = format!("\"{}\"", hash(body.as_bytes()));
    Aggregated { body: body.into(), etag }
}

fn aggregated_group(kinds: &[&'static Kind], group: &str) -> Value {
    let mut metadata = Map::new();
    if !group.is_empty() {
        metadata.insert("name".to_owned(), group.into());
    }
    let versions: Vec<Value> = versions(kinds, group)
        .into_iter()
        .map(|version| {
            let resources: Vec<Value> = kinds_of(kinds, group, version).into_iter().map(aggregated_resource).collect();
            json!({ "version": version, "resources": resources, "freshness": "Current" })
        })
        .collect();
    json!({ "metadata": metadata, "versions": versions })
}

fn aggregated_resource(kind: &Kind) -> Value {
    let (group, version) = response_group_version(kind);
    let mut entry = json!({
        "resource": kind.plural,
        "responseKind": { "group": group, "version": version, "kind": kind.kind },
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": kind.verbs,
    });
    put_names(&mut entry, kind);
    if !kind.subresources.is_empty() {
        let parts: Vec<Value> = kind.subresources.iter().map(|sub| aggregated_subresource(kind, sub)).collect();
        entry["subresources"] = parts.into();
    }
    entry
}

/// Group and version of a response; empty: those of the document. Custom resources name them.
fn response_group_version(kind: &Kind) -> (&'static str, &'static str) {
    if !kind.is_custom() { ("", "") } else { (kind.group, kind.version) }
}

fn aggregated_subresource(kind: &Kind, sub: &Subresource) -> Value {
    let (group, version) = foreign(sub.kind).unwrap_or_else(|| response_group_version(kind));
    json!({
        "subresource": sub.name,
        "responseKind": { "group": group, "version": version, "kind": sub.kind },
        "verbs": sub.verbs,
    })
}
