//! The prelude of every verb. In: the context, target and body of a request. Out: its options with the field manager, and its decoded body.
//!
//! A verb begins with one of [`ApiRequest::create`], [`ApiRequest::update`], [`ApiRequest::patch`], [`ApiRequest::apply`] and
//! [`ApiRequest::delete_options`]. They check in the order of kube-apiserver: query options, content type, body; for a PATCH the
//! content type comes first.

use std::sync::Arc;

use api::dynamic_admission::request::Operation;
use api::kind::Kind;
use api::options::{DeleteOptions, FieldValidation, WriteOptions};
use api::patch::{Patch, PatchError, PatchKind};
use api::status::Status;
use api::value::ValueExt as _;
use api::{field, names, yaml};
use http::header;
use serde_json::Value;

use crate::handler::{RequestContext, Shared};
use crate::negotiate::Media;
use crate::registry::{About, Call, Change, Outcome, Shown, Source};
use crate::reply::Reply;
use crate::route::Target;
use crate::{body, negotiate};

/// The longest name of a field manager that is taken from a User-Agent, in bytes.
const MANAGER_LIMIT: usize = 128;

/// A request for a resource.
pub(super) struct ApiRequest<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) context: &'a RequestContext<'a>,
    pub(super) target: &'a Target<'a>,
    /// The name in the URL; empty for a collection.
    pub(super) name: &'a str,
    body: &'a [u8],
}

impl<'a> ApiRequest<'a> {
    /// Checks the name in the URL.
    ///
    /// # Errors
    /// 400 when the name cannot be a path segment.
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        context: &'a RequestContext<'a>,
        target: &'a Target<'a>,
        body: &'a [u8],
    ) -> Result<Self, Status> {
        let wrong = target.name.map(|name| names::name_is_path_segment(name, false)).unwrap_or_default();
        let name = target.name.unwrap_or_default();
        if !wrong.is_empty() {
            let name = field::quote(name);
            return Err(Status::bad_request(format!("Name parameter invalid: {name}: {}", wrong.join(", "))));
        }
        Ok(Self { shared, context, target, name, body })
    }

    /// `CreateOptions` and the object of this kind in the body.
    pub(super) fn create(&self, kind: &Kind, warnings: &mut Vec<String>) -> Result<(WriteOptions, Value), Status> {
        self.object(WriteOptions::create(&self.context.query)?, kind, warnings)
    }

    /// `UpdateOptions` and the object of this kind in the body.
    pub(super) fn update(&self, kind: &Kind, warnings: &mut Vec<String>) -> Result<(WriteOptions, Value), Status> {
        self.object(WriteOptions::update(&self.context.query)?, kind, warnings)
    }

    fn object(
        &self,
        options: WriteOptions,
        kind: &Kind,
        warnings: &mut Vec<String>,
    ) -> Result<(WriteOptions, Value), Status> {
        let object = body::object(kind, self.media()?, self.body, options.field_validation, warnings)?;
        Ok((self.with_manager(options), object))
    }

    /// `CreateOptions` of a request whose body is a [message](Self::message).
    pub(super) fn create_options(&self) -> Result<WriteOptions, Status> {
        WriteOptions::create(&self.context.query)
    }

    /// The body of a POST to a subresource: a type that is not stored, without a field manager.
    pub(super) fn message(&self, schema: &str) -> Result<Value, Status> {
        body::message(schema, self.media()?, self.body)
    }

    /// Whether a PATCH is a server-side apply.
    pub(super) fn is_apply(&self) -> bool {
        self.patch_type() == "application/apply-patch+yaml"
    }

    /// `PatchOptions` and the patch in the body, for every format but apply.
    pub(super) fn patch(&self) -> Result<(WriteOptions, Patch), Status> {
        let kind = PatchKind::of_content_type(&self.patch_type());
        let is_custom = self.target.kind.is_custom();
        let kind = match kind {
            None | Some(PatchKind::Strategic) if is_custom => return Err(Status::unsupported_custom_patch_type()),
            None => return Err(Status::unsupported_patch_type()),
            Some(kind) => kind,
        };
        let options = WriteOptions::patch(&self.context.query, false)?;
        let patch = Patch::parse(kind, self.body, options.field_validation).map_err(PatchError::into_status)?;
        Ok((self.with_manager(options), patch))
    }

    /// `PatchOptions` and the configuration of a server-side apply.
    pub(super) fn apply(&self, warnings: &mut Vec<String>) -> Result<(WriteOptions, Value), Status> {
        let options = WriteOptions::patch(&self.context.query, true)?;
        let bad = |error: &dyn std::fmt::Display| Status::bad_request(format!("error decoding YAML: {error}"));
        let (config, strict) = yaml::from_yaml(self.body).map_err(|error| bad(&error))?;
        if !config.is_object() {
            return Err(bad(&"the configuration is not an object"));
        }
        body::apply_validation(options.field_validation, &strict, warnings).map_err(|why| {
            Status::bad_request(format!("error strict decoding YAML: error converting YAML to JSON: {why}"))
        })?;
        let (api_version, kind) = (config.text("apiVersion"), config.text("kind"));
        if api_version != self.target.kind.api_version() || kind != self.target.kind.kind {
            let (group, version) = group_version(api_version);
            return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
        }
        Ok((self.with_manager(options), config))
    }

    /// `DeleteOptions`, from the body or else from the query.
    pub(super) fn delete_options(&self) -> Result<DeleteOptions, Status> {
        let body = if self.body.is_empty() { None } else { body::delete_options(self.media()?, self.body)? };
        match body {
            Some(body) => DeleteOptions::from_value(&body),
            None => DeleteOptions::from_query(&self.context.query),
        }
    }

    /// A call of the registry for the target.
    pub(super) fn call<'c>(&'c self, manager: &'c str, dry_run: bool) -> Call<'c> {
        Call {
            kind: self.target.kind,
            namespace: self.target.namespace,
            subresource: self.target.subresource,
            manager,
            dry_run,
            now: self.context.now,
            user: self.context.user,
            audit: Some(self.context.audit),
        }
    }

    /// The subject of an admission request for a message to the object of this name, or a connection to it.
    pub(super) fn about<'n>(&self, operation: Operation, name: &'n str) -> About<'n> {
        About { operation, kind: self.target.kind, subresource: self.target.subresource, name }
    }

    /// Changes the object that the URL names.
    pub(super) async fn change(
        &self,
        options: &WriteOptions,
        source: Source<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, Status> {
        let call = self.call(&options.field_manager, options.dry_run);
        self.shared.registry.update(&call, &Change { name: self.name, source }, warnings).await
    }

    /// The response to a write.
    pub(super) fn written(&self, outcome: Outcome) -> Result<Reply, Status> {
        let (view, kind) = (self.context.view, self.target.kind);
        let document = match outcome.shown {
            Shown::Entry(entry) => view.entry(kind, &entry)?,
            Shown::Object(object) => view.object(kind, object)?,
            Shown::Status(status) => view.success(&status),
        };
        Ok(Reply::document(outcome.code, document))
    }

    fn media(&self) -> Result<Media, Status> {
        negotiate::body_media(self.context.header(header::CONTENT_TYPE))
    }

    fn patch_type(&self) -> String {
        negotiate::essence(self.context.header(header::CONTENT_TYPE).unwrap_or_default())
    }

    fn with_manager(&self, options: WriteOptions) -> WriteOptions {
        if !options.field_manager.is_empty() {
            return options;
        }
        let agent = self.context.header(header::USER_AGENT).unwrap_or_default();
        WriteOptions { field_manager: manager_of(agent), ..options }
    }
}

/// The field manager of a request that does not name one: the program of its User-Agent, without version and control characters.
fn manager_of(agent: &str) -> String {
    let program = agent.split('/').next().unwrap_or_default();
    let mut out = String::new();
    for c in program.chars().filter(|c| !c.is_control()) {
        if out.len() + c.len_utf8() > MANAGER_LIMIT {
            break;
        }
        out.push(c);
    }
    if out.is_empty() { "unknown".to_owned() } else { out }
}

/// A patched object of this kind, checked and defaulted.
pub(super) fn patched(
    kind: &Kind,
    patch: &Patch,
    old: &Value,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value, Status> {
    let ty = kind.table_type();
    let mut new = patch.apply(ty, old).map_err(PatchError::into_status)?;
    if ty.is_some() && (new.text("kind") != kind.kind || new.text("apiVersion") != kind.api_version()) {
        let (group, version) = group_version(new.text("apiVersion"));
        let why = body::conversion_error(kind, group, version, new.text("kind"));
        return Err(patch.refuse(ty, old, &why));
    }
    let mut strict = patch.strict_errors().to_vec();
    strict.extend(kind.check(&mut new).map_err(|error| patch.refuse(ty, old, &error.to_string()))?);
    body::apply_validation(validation, &strict, warnings).map_err(|why| patch.refuse(ty, old, &why))?;
    kind.rules.default(&mut new);
    Ok(new)
}

/// The group and the version of an `apiVersion`; the core group is empty.
fn group_version(api_version: &str) -> (&str, &str) {
    api_version.rsplit_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_manager_is_the_program_of_the_user_agent() {
        assert_eq!(manager_of("kubectl/v1.37.0 (linux/amd64)"), "kubectl");
        assert_eq!(manager_of("a\u{7}b"), "ab");
        assert_eq!(manager_of(""), "unknown");
        assert_eq!(manager_of(&"é".repeat(100)), "é".repeat(MANAGER_LIMIT / 2));
    }
}
