//! A request for admission: the operation, the object and the user.
//!
//! In: a [`Request`], made by the API server. Out: its description for webhooks and expressions (`AdmissionRequest` without
//! uid and objects), and its objects in the version that a rule requires.

use serde_json::{Value, json};

use super::EXCLUDED;
use crate::kind::{Kind, Subresource};
use crate::kinds;
use crate::status::Status;
use crate::value::ValueExt as _;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// An object, or a part of one, is created.
    Create,
    /// An object or a part of it is changed.
    Update,
    /// An object is deleted.
    Delete,
    /// A connection is opened (`exec`, `proxy`).
    Connect,
}

impl Operation {
    /// The name in rules and reviews.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A request that is to be admitted.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// What is done.
    pub operation: Operation,
    /// The kind that the URL names.
    pub kind: &'static Kind,
    /// The part that the URL names.
    pub subresource: Option<&'static Subresource>,
    /// Empty for objects without namespace; the name of a Namespace for itself.
    pub namespace: &'a str,
    /// Empty while the name is still to be generated.
    pub name: &'a str,
    /// The object as it will be; null on DELETE.
    pub object: &'a Value,
    /// The object as it is; null on CREATE.
    pub old_object: &'a Value,
    /// CreateOptions, UpdateOptions, PatchOptions or DeleteOptions, or null.
    pub options: &'a Value,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// A UserInfo: `username`, `uid`, `groups`, `extra`.
    pub user: &'a Value,
}

/// Kind and resource, by group, version and name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// The kind whose version a rule named: that of the request, or an equivalent one.
    pub kind: &'static str,
    /// Its group.
    pub kind_group: &'static str,
    /// Its version.
    pub kind_version: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// Its group.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
}

impl Form {
    /// The form of a kind, or of a part of it.
    #[must_use]
    pub fn of(kind: &'static Kind, subresource: Option<&'static Subresource>) -> Self {
        let (kind_group, kind_version, name) = kind.exchanged(subresource);
        Self { kind: name, kind_group, kind_version, resource: kind.plural, group: kind.group, version: kind.version }
    }
}

impl<'a> Request<'a> {
    /// Whether it is exempt from webhooks and policies: configurations of admission, and access reviews.
    #[must_use]
    pub fn is_exempt(&self) -> bool {
        self.kind.group == super::GROUP || EXCLUDED.contains(&(self.kind.group, self.kind.plural))
    }

    /// Its form as it was sent.
    #[must_use]
    pub fn form(&self) -> Form {
        Form::of(self.kind, self.subresource)
    }

    /// An `AdmissionRequest` without uid, objects and empty fields, in the form that a rule requests.
    #[must_use]
    pub fn describe(&self, form: &Form) -> Value {
        let kind = |form: &Form| json!({"group": form.kind_group, "version": form.kind_version, "kind": form.kind});
        let resource = |form: &Form| json!({"group": form.group, "version": form.version, "resource": form.resource});
        let sent = self.form();
        let mut out = json!({
            "kind": kind(form), "resource": resource(form),
            "requestKind": kind(&sent), "requestResource": resource(&sent),
            "operation": self.operation.name(), "userInfo": self.user, "dryRun": self.dry_run, "options": self.options,
        });
        let part = self.subresource.map_or("", |part| part.name);
        let texts =
            [("subResource", part), ("requestSubResource", part), ("name", self.name), ("namespace", self.namespace)];
        for (field, text) in texts {
            if !text.is_empty() {
                out.put(field, text);
            }
        }
        out
    }

    /// The 403 that refuses it, with the best name there is.
    #[must_use]
    pub fn refuse(&self, why: &str) -> Status {
        let named = |path| Some(self.object.text(path)).filter(|name| !name.is_empty());
        let name = match self.name {
            "" => named("metadata.name").or_else(|| named("metadata.generateName")).unwrap_or("Unknown"),
            name => name,
        };
        Status::forbidden(self.kind.resource(), name, why)
    }

    /// Its objects, new and old, in the form that a rule requests.
    #[must_use]
    pub fn objects(&self, form: &Form) -> (Value, Value) {
        (self.convert(self.object, form), self.convert(self.old_object, form))
    }

    fn convert(&self, object: &Value, form: &Form) -> Value {
        let wanted = kinds::find(form.group, form.version, form.resource);
        match wanted {
            Some(wanted) if !std::ptr::eq(wanted, self.kind) && self.subresource.is_none() && object.is_object() => {
                let mut out = wanted.rules.stored_to_shown(self.kind.rules.shown_to_stored(object.clone()));
                out.put("kind", wanted.kind);
                out.put("apiVersion", wanted.api_version());
                out
            }
            _ => object.clone(),
        }
    }
}
