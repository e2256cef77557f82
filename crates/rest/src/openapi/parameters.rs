//! The parameters of operations, in one table for both versions of OpenAPI.

use serde_json::{Value, json};

use super::exchange::Dialect;

/// One parameter.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Parameter {
    name: &'static str,
    /// `string`, `integer` or `boolean`.
    kind: &'static str,
    /// Part of the path; otherwise of the query.
    in_path: bool,
    text: &'static str,
}

const fn query(name: &'static str, kind: &'static str, text: &'static str) -> Parameter {
    Parameter { name, kind, in_path: false, text }
}

const fn path(name: &'static str, text: &'static str) -> Parameter {
    Parameter { name, kind: "string", in_path: true, text }
}

pub(super) static NAME: Parameter = path("name", "The name of the object.");
pub(super) static NAMESPACE: Parameter = path("namespace", "The namespace of the object.");
pub(super) static PROXY_PATH: Parameter = path("path", "The path of the proxied request.");
pub(super) static PRETTY: Parameter = query("pretty", "string", "If 'true', the answer is indented.");

static PROXY_QUERY: Parameter = query("path", "string", "The path of the proxied request.");

static DRY_RUN: Parameter =
    query("dryRun", "string", "'All': the request is processed in all its stages but nothing is stored.");
static FIELD_MANAGER: Parameter =
    query("fieldManager", "string", "The name under which changed fields are recorded. Apply requests must give it.");
static FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "What happens to unknown and duplicate fields: 'Ignore' drops them silently, 'Warn' (the default) drops them with a \
     warning, 'Strict' refuses the request.",
);
static FORCE: Parameter = query("force", "boolean", "Apply requests only: take over fields that other managers own.");

static GRACE_PERIOD: Parameter =
    query("gracePeriodSeconds", "integer", "Seconds before the object is removed; zero means at once.");
static IGNORE_READ_ERROR: Parameter = query(
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "boolean",
    "Delete an object that cannot be read from the store, without regard to finalizers and preconditions.",
);
static ORPHAN: Parameter = query("orphanDependents", "boolean", "Deprecated: use propagationPolicy.");
static PROPAGATION: Parameter = query(
    "propagationPolicy",
    "string",
    "What happens to dependents: 'Orphan', 'Background' or 'Foreground'. Not together with orphanDependents.",
);

static BOOKMARKS: Parameter =
    query("allowWatchBookmarks", "boolean", "Send events that only have a resource version (bookmarks).");
static CONTINUE: Parameter =
    query("continue", "string", "The token of the page before, to get the next page of a list.");
static FIELD_SELECTOR: Parameter = query("fieldSelector", "string", "Restricts the objects by their fields.");
static LABEL_SELECTOR: Parameter = query("labelSelector", "string", "Restricts the objects by their labels.");
static LIMIT: Parameter = query("limit", "integer", "The largest number of objects in one page of a list.");
static RESOURCE_VERSION: Parameter =
    query("resourceVersion", "string", "The version a list must have, or after which a watch begins.");
static RESOURCE_VERSION_MATCH: Parameter =
    query("resourceVersionMatch", "string", "How resourceVersion applies to a list: 'Exact' or 'NotOlderThan'.");
static SEND_INITIAL: Parameter =
    query("sendInitialEvents", "boolean", "Start a watch with the existing objects, followed by a bookmark.");
static TIMEOUT: Parameter = query("timeoutSeconds", "integer", "How long a list or watch may last.");
static WATCH: Parameter = query("watch", "boolean", "Stream changes instead of returning a list.");

/// Of a proxied request.
pub(super) static PROXY: &[&Parameter] = &[&PROXY_QUERY];
/// Of a create or an update.
pub(super) static WRITE: &[&Parameter] = &[&DRY_RUN, &FIELD_MANAGER, &FIELD_VALIDATION];
/// Of a patch.
pub(super) static PATCH: &[&Parameter] = &[&DRY_RUN, &FIELD_MANAGER, &FIELD_VALIDATION, &FORCE];
/// Of the deletion of one object.
pub(super) static DELETE: &[&Parameter] = &[&DRY_RUN, &GRACE_PERIOD, &IGNORE_READ_ERROR, &ORPHAN, &PROPAGATION];
/// Of a list or watch.
pub(super) static LIST: &[&Parameter] = &[
    &BOOKMARKS,
    &CONTINUE,
    &FIELD_SELECTOR,
    &LABEL_SELECTOR,
    &LIMIT,
    &RESOURCE_VERSION,
    &RESOURCE_VERSION_MATCH,
    &SEND_INITIAL,
    &TIMEOUT,
    &WATCH,
];
/// Of the deletion of a collection.
pub(super) static DELETE_COLLECTION: &[&Parameter] = &[
    &CONTINUE,
    &DRY_RUN,
    &FIELD_SELECTOR,
    &GRACE_PERIOD,
    &IGNORE_READ_ERROR,
    &LABEL_SELECTOR,
    &LIMIT,
    &ORPHAN,
    &PROPAGATION,
    &RESOURCE_VERSION,
    &RESOURCE_VERSION_MATCH,
    &SEND_INITIAL,
    &TIMEOUT,
];

impl Parameter {
    /// The parameter in a document.
    pub(super) fn render(&self, dialect: Dialect) -> Value {
        let place = if self.in_path { "path" } else { "query" };
        let mut value = json!({ "name": self.name, "in": place, "description": self.text });
        match dialect {
            Dialect::V2 => {
                value["type"] = self.kind.into();
                value["uniqueItems"] = true.into();
            }
            Dialect::V3 => value["schema"] = json!({ "type": self.kind, "uniqueItems": true }),
        }
        if self.in_path {
            value["required"] = true.into();
        }
        value
    }
}
