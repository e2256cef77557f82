//! Authorization checks: `authorizer.group('').resource('pods').namespace('default').check('get').allowed()`.
//!
//! The library builds a question; the caller's [`Authorizer`] answers it.

use std::sync::Arc;

use super::{any, named_format, text};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, Native, member};
use crate::types::Type;
use crate::value::Value;

/// The type of the variable `authorizer`.
pub const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
/// The type of the variable `authorizer.requestResource`.
pub const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";
const PATH_CHECK: &str = "kubernetes.authorization.PathCheck";
const GROUP_CHECK: &str = "kubernetes.authorization.GroupCheck";
const DECISION: &str = "kubernetes.authorization.Decision";

/// Answers whether something is allowed.
pub trait Authorizer: std::fmt::Debug + Sync {
    /// Decides about a request.
    fn authorize(&self, request: &Request) -> Decision;
}

/// Whether a request is allowed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decision {
    /// The request is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What went wrong while deciding.
    pub error: Option<String>,
}

/// Who wants something.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Subject {
    /// The user of the request that is being admitted.
    #[default]
    Requester,
    /// A service account.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// A resource, or resources, that a check is about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty for the cluster.
    pub namespace: String,
    /// Name of the object, or empty for all.
    pub name: String,
    /// A field selector as it was written, or empty.
    pub field_selector: String,
    /// A label selector as it was written, or empty.
    pub label_selector: String,
}

/// The subject of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A path that is no resource.
    Path(String),
    /// A resource, in any version.
    Resource(Resource),
}

/// A question to an authorizer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Who.
    pub subject: Subject,
    /// What is done: an API verb, or an HTTP verb in lower case for paths.
    pub verb: String,
    /// With what.
    pub target: Target,
}

/// An authorizer for a subject, a check that is being built, or its result.
#[derive(Clone, Debug)]
pub struct Check<'a>(State<'a>);

#[derive(Clone, Debug)]
enum State<'a> {
    Authorizer(For<'a>),
    Group(For<'a>, Arc<str>),
    Path(For<'a>, Arc<str>),
    Resource(For<'a>, Arc<Resource>),
    Decision(Arc<Decision>),
}

#[derive(Clone, Debug)]
struct For<'a> {
    authorizer: &'a dyn Authorizer,
    subject: Arc<Subject>,
}

impl<'a> Check<'a> {
    /// The value of the variable `authorizer`.
    #[must_use]
    pub fn authorizer(authorizer: &'a dyn Authorizer) -> Self {
        Self(State::Authorizer(For { authorizer, subject: Arc::default() }))
    }

    /// The value of the variable `authorizer.requestResource`: a check for the resource of the request.
    #[must_use]
    pub fn request_resource(authorizer: &'a dyn Authorizer, resource: Resource) -> Self {
        Self(State::Resource(For { authorizer, subject: Arc::default() }, Arc::new(resource)))
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match &self.0 {
            State::Authorizer(_) => AUTHORIZER,
            State::Group(..) => GROUP_CHECK,
            State::Path(..) => PATH_CHECK,
            State::Resource(..) => RESOURCE_CHECK,
            State::Decision(_) => DECISION,
        }
    }
}

pub(super) fn add(all: &mut Functions) {
    use Type::{Bool, String};
    let kind = Type::object;
    all.add("path", [member("authorizer_path", &[kind(AUTHORIZER), String], kind(PATH_CHECK), path)]);
    all.add("group", [member("authorizer_group", &[kind(AUTHORIZER), String], kind(GROUP_CHECK), group)]);
    all.add(
        "serviceAccount",
        [member("authorizer_serviceaccount", &[kind(AUTHORIZER), String, String], kind(AUTHORIZER), service_account)
            .stopping_early()],
    );
    all.add("resource", [member("groupcheck_resource", &[kind(GROUP_CHECK), String], kind(RESOURCE_CHECK), resource)]);
    let parts: [(&str, &str, Native); 3] = [
        ("subresource", "resourcecheck_subresource", |_, args| with(args, |r, text| r.subresource = text)),
        ("namespace", "resourcecheck_namespace", |_, args| with(args, |r, text| r.namespace = text)),
        ("name", "resourcecheck_name", |_, args| with(args, |r, text| r.name = text)),
    ];
    for (name, id, code) in parts {
        all.add(name, [member(id, &[kind(RESOURCE_CHECK), String], kind(RESOURCE_CHECK), code)]);
    }
    all.add(
        "check",
        [
            member("pathcheck_check", &[kind(PATH_CHECK), String], kind(DECISION), check),
            member("resourcecheck_check", &[kind(RESOURCE_CHECK), String], kind(DECISION), check),
        ],
    );
    let results: [(&str, &str, Type, Native); 4] = [
        ("errored", "decision_errored", Bool, |_, args| Ok(Value::Bool(decision(args)?.error.is_some()))),
        ("error", "decision_error", String, |_, args| {
            Ok(Value::string(decision(args)?.error.clone().unwrap_or_default()))
        }),
        ("allowed", "decision_allowed", Bool, |_, args| Ok(Value::Bool(decision(args)?.allowed))),
        ("reason", "decision_reason", String, |_, args| Ok(Value::string(decision(args)?.reason.clone()))),
    ];
    for (name, id, result, code) in results {
        all.add(name, [member(id, &[kind(DECISION)], result, code)]);
    }
}

pub(super) fn add_selectors(all: &mut Functions) {
    let parts: [(&str, &str, Native); 2] = [
        ("fieldSelector", "authorizer_fieldselector", |_, args| with(args, |r, text| r.field_selector = text)),
        ("labelSelector", "authorizer_labelselector", |_, args| with(args, |r, text| r.label_selector = text)),
    ];
    for (name, id, code) in parts {
        let args = [Type::object(RESOURCE_CHECK), Type::String];
        all.add(name, [member(id, &args, Type::object(RESOURCE_CHECK), code)]);
    }
}

fn state<'v, 'a>(args: &'v [Value<'a>]) -> Result<&'v State<'a>, Stop> {
    match any(args, 0)? {
        Value::Check(check) => Ok(&check.0),
        _ => Err(Stop::no_such_overload()),
    }
}

fn value(state: State<'_>) -> Value<'_> {
    Value::Check(Check(state))
}

fn path<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let State::Authorizer(who) = state(args)? else { return Err(Stop::no_such_overload()) };
    match text(args, 1)? {
        path if path.trim().is_empty() => Err("path must not be empty".into()),
        path => Ok(value(State::Path(who.clone(), path.into()))),
    }
}

fn group<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let State::Authorizer(who) = state(args)? else { return Err(Stop::no_such_overload()) };
    Ok(value(State::Group(who.clone(), text(args, 1)?.into())))
}

fn service_account<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let State::Authorizer(who) = state(args)? else { return Err(Stop::no_such_overload()) };
    let (namespace, name) = (text(args, 1)?, text(args, 2)?);
    named_format::is_service_account(namespace, name)?;
    let subject = Subject::ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() };
    Ok(value(State::Authorizer(For { authorizer: who.authorizer, subject: Arc::new(subject) })))
}

fn resource<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let State::Group(who, group) = state(args)? else { return Err(Stop::no_such_overload()) };
    let resource = text(args, 1)?;
    if resource.trim().is_empty() {
        return Err("resource must not be empty".into());
    }
    let resource = Resource { group: group.to_string(), resource: resource.to_owned(), ..Resource::default() };
    Ok(value(State::Resource(who.clone(), Arc::new(resource))))
}

/// The check with one part of its resource changed.
fn with<'a>(args: &[Value<'a>], change: fn(&mut Resource, String)) -> Result<Value<'a>, Stop> {
    let State::Resource(who, resource) = state(args)? else { return Err(Stop::no_such_overload()) };
    let mut resource = (**resource).clone();
    change(&mut resource, text(args, 1)?.to_owned());
    Ok(value(State::Resource(who.clone(), Arc::new(resource))))
}

fn check<'a>(_: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let (who, target) = match state(args)? {
        State::Path(who, path) => (who, Target::Path(path.to_string())),
        State::Resource(who, resource) => (who, Target::Resource((**resource).clone())),
        _ => return Err(Stop::no_such_overload()),
    };
    let request = Request { subject: (*who.subject).clone(), verb: text(args, 1)?.to_owned(), target };
    Ok(value(State::Decision(Arc::new(who.authorizer.authorize(&request)))))
}

fn decision<'v>(args: &'v [Value<'_>]) -> Result<&'v Decision, Stop> {
    match state(args)? {
        State::Decision(decision) => Ok(decision),
        _ => Err(Stop::no_such_overload()),
    }
}
