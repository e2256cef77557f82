//! ValidatingAdmissionPolicies in force: what they decide about a request.
//!
//! ```text
//! policies, bindings ─▶ match the request ─▶ parameters ─▶ match conditions ─▶ validations ─▶ deny, warn, audit
//! ```
//! In: policies and bindings that were read once ([`Policy`], [`Binding`]), a request, and what the cluster knows
//! ([`Cluster`]). Out: a [`Verdict`]. Policies are evaluated in the order of their names, so the result does not depend
//! on anything else; of several denials the first is returned.

mod annotations;
mod evaluate;
mod params;

use serde_json::Value;

use super::evaluation::{Compiled, Context};
use super::expression::{self, Authorize, Compiler, Environment, Expressions, Gives};
use super::matching::{Criteria, NamespaceLabels, labels};
use super::request::Request;
use crate::kinds;
use crate::status::Status;
use crate::value::ValueExt as _;

use annotations::{Collected, Failure};
use evaluate::Decision;
pub use params::ParamKind;

/// A policy whose expressions are compiled.
pub struct Policy {
    name: String,
    criteria: Option<Criteria>,
    param_kind: Option<ParamKind>,
    /// Errors let requests pass.
    ignores_failure: bool,
    expressions: Box<dyn Expressions>,
    conditions: Vec<(String, Compiled)>,
    validations: Vec<Validation>,
    annotations: Vec<Annotation>,
}

struct Validation {
    text: String,
    compiled: Compiled,
    message: String,
    message_expression: Option<(String, Compiled)>,
    /// `Forbidden`, `Invalid`, `RequestEntityTooLarge`; empty: `Invalid`.
    reason: String,
}

struct Annotation {
    key: String,
    text: String,
    compiled: Compiled,
}

/// A binding, as far as deciding needs it.
#[derive(Clone, PartialEq, Debug)]
pub struct Binding {
    name: String,
    policy: String,
    criteria: Option<Criteria>,
    /// The `paramRef`, or null.
    reference: Value,
    actions: Vec<String>,
}

/// The state of the cluster.
pub trait Cluster {
    /// A Namespace.
    fn namespace(&self, name: &str) -> Option<Value>;

    /// The objects of a kind that may be parameters: all of them, of one namespace, or one by name. None when there is no
    /// such kind.
    fn params(&self, kind: &ParamKind) -> Option<Box<dyn Params + '_>>;
}

/// Objects of one kind.
pub trait Params {
    /// Whether they live in namespaces.
    fn namespaced(&self) -> bool;

    /// One of them, with `kind` and `apiVersion`.
    fn get(&self, namespace: &str, name: &str) -> Option<Value>;

    /// All of a namespace (empty for kinds without), in the order of their names, with `kind` and `apiVersion`.
    fn list(&self, namespace: &str) -> Vec<Value>;
}

/// What policies decide.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Verdict {
    /// The refusal, if there is one.
    pub refusal: Option<Status>,
    /// Texts of Warning headers.
    pub warnings: Vec<String>,
    /// Annotations of the audit event.
    pub annotations: Vec<(String, String)>,
}

impl Policy {
    /// Reads a stored policy and compiles its expressions.
    #[must_use]
    pub fn read(object: &Value, compiler: &dyn Compiler) -> Self {
        let spec = object.at("spec");
        let param_kind = ParamKind::read(spec.at("paramKind"));
        let all = Environment { params: param_kind.is_some(), authorizer: true, stored: true };
        let of_message = Environment { authorizer: false, ..all };
        let mut expressions = compiler.expressions(true);
        for variable in spec.items("variables") {
            // One that does not compile fails where it is used.
            let (name, text) = (variable.text("name"), variable.text("expression"));
            let _ = expressions.declare(name, text, all);
        }
        let mut compile = |text: &str, environment, gives| {
            expression::compile(expressions.as_mut(), text, environment, gives)
                .map_err(|why| format!("compilation error: {why}"))
        };
        let conditions = spec.items("matchConditions").iter().map(|condition| {
            let text = condition.text("expression");
            (text.to_owned(), compile(text, all, Gives::Bool))
        });
        let conditions = conditions.collect();
        let validations = spec.items("validations").iter().map(|validation| {
            let (text, message) = (validation.text("expression"), validation.text("messageExpression"));
            let message_expression =
                (!message.is_empty()).then(|| (message.to_owned(), compile(message, of_message, Gives::Text)));
            Validation {
                text: text.to_owned(),
                compiled: compile(text, all, Gives::Bool),
                message: validation.text("message").to_owned(),
                message_expression,
                reason: validation.text("reason").to_owned(),
            }
        });
        let validations = validations.collect();
        let annotations = spec.items("auditAnnotations").iter().map(|annotation| {
            let (key, text) = (annotation.text("key").to_owned(), annotation.text("valueExpression"));
            Annotation { key, text: text.to_owned(), compiled: compile(text, all, Gives::TextOrNull) }
        });
        let annotations = annotations.collect();
        Self {
            name: object.text("metadata.name").to_owned(),
            criteria: spec.has("matchConstraints").then(|| Criteria::of_resources(spec.at("matchConstraints"))),
            param_kind,
            ignores_failure: spec.text("failurePolicy") == "Ignore",
            expressions,
            conditions,
            validations,
            annotations,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Binding {
    /// Reads a stored binding.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let spec = object.at("spec");
        Self {
            name: object.text("metadata.name").to_owned(),
            policy: spec.text("policyName").to_owned(),
            criteria: spec.has("matchResources").then(|| Criteria::of_resources(spec.at("matchResources"))),
            reference: spec.at("paramRef").clone(),
            actions: spec.texts("validationActions").into_iter().map(str::to_owned).collect(),
        }
    }

    /// The name of the policy that it puts into force.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy
    }
}

/// Evaluates all policies for a request. Each comes with its bindings; both are in the order of their names.
///
/// # Errors
/// 404, when the namespace of the request does not exist.
pub fn decide<'p>(
    policies: impl IntoIterator<Item = (&'p Policy, Vec<&'p Binding>)>,
    request: &Request<'_>,
    cluster: &dyn Cluster,
    authorizer: &dyn Authorize,
) -> Result<Verdict, Status> {
    let mut dispatch = Dispatch { request, cluster, authorizer, verdict: Verdict::default(), failures: Vec::new() };
    if !request.is_exempt() {
        for (policy, bindings) in policies {
            dispatch.policy(policy, &bindings)?;
        }
    }
    Ok(dispatch.finish())
}

/// One request on its way through the policies.
struct Dispatch<'a> {
    request: &'a Request<'a>,
    cluster: &'a dyn Cluster,
    authorizer: &'a dyn Authorize,
    verdict: Verdict,
    /// For the audit log.
    failures: Vec<Failure>,
}

impl Dispatch<'_> {
    fn policy(&mut self, policy: &Policy, bindings: &[&Binding]) -> Result<(), Status> {
        let matched = match &policy.criteria {
            Some(criteria) => self.matches(criteria).map_err(|status| status.message),
            None => Err("policy contained no match constraints, a required field".to_owned()),
        };
        let form = match matched {
            Ok(None) => return Ok(()),
            Ok(Some(form)) => form,
            Err(why) => {
                self.misconfigured(policy, None, &why);
                return Ok(());
            }
        };
        let params = policy.param_kind.as_ref().map(|kind| (kind, self.cluster.params(kind)));
        if let Some((kind, None)) = &params {
            let why = format!("failed to find resource referenced by paramKind: '{}'", kind.described());
            self.misconfigured(policy, None, &why);
            return Ok(());
        }
        let mut collected = Collected::default();
        for binding in bindings {
            match binding.criteria.as_ref().map(|criteria| self.matches(criteria)) {
                Some(Ok(None)) => continue,
                Some(Err(status)) => {
                    self.misconfigured(policy, Some(binding), &status.message);
                    continue;
                }
                None | Some(Ok(Some(_))) => {}
            }
            let source = params.as_ref().and_then(|(_, source)| source.as_deref());
            let found = match params::collect(source, &binding.reference, self.request.namespace) {
                Ok(found) => found,
                Err(why) => {
                    self.misconfigured(policy, Some(binding), &why);
                    continue;
                }
            };
            let namespace = self.namespace_object()?;
            for param in &found {
                let context = Context::new(self.request, &form, &namespace, param, self.authorizer);
                let outcome = policy.evaluate(&context);
                self.take(policy, binding, outcome.decisions);
                for (key, value) in outcome.annotations {
                    match value {
                        Ok(value) => collected.add(key, value),
                        Err(why) => self.deny(policy, Some(binding), &why, ""),
                    }
                }
            }
        }
        collected.publish(&policy.name, &mut self.verdict.annotations);
        Ok(())
    }

    fn matches(&self, criteria: &Criteria) -> Result<Option<super::request::Form>, Status> {
        let namespaces: &NamespaceLabels<'_> = &|name| self.cluster.namespace(name).map(|object| labels(&object));
        criteria.matches(self.request, namespaces)
    }

    /// `namespaceObject`: null for objects without namespace, and for Namespaces.
    fn namespace_object(&self) -> Result<Value, Status> {
        let (kind, name) = (self.request.kind, self.request.namespace);
        if name.is_empty() || std::ptr::eq(kind, &kinds::namespace::KIND) {
            return Ok(Value::Null);
        }
        let missing = || Status::not_found(kinds::namespace::KIND.resource(), name);
        let mut object = self.cluster.namespace(name).ok_or_else(missing)?;
        for path in ["kind", "apiVersion", "metadata.managedFields", "metadata.ownerReferences", "metadata.selfLink"] {
            object.drop_path(path);
        }
        Ok(object)
    }

    /// A policy that cannot be evaluated denies the request, unless it ignores failures.
    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        if !policy.ignores_failure {
            self.deny(policy, binding, &format!("failed to configure {what}: {why}"), "");
        }
    }

    /// Applies the actions of a binding to the validations that failed.
    fn take(&mut self, policy: &Policy, binding: &Binding, decisions: Vec<Decision>) {
        for (index, decision) in decisions.into_iter().enumerate() {
            let Decision::Deny { message, reason } = decision else { continue };
            for action in &binding.actions {
                match action.as_str() {
                    "Deny" => self.deny(policy, Some(binding), &message, &reason),
                    "Warn" => self.verdict.warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                        policy.name, binding.name
                    )),
                    "Audit" => self.failures.push(Failure {
                        message: message.clone(),
                        policy: binding.policy.clone(),
                        binding: binding.name.clone(),
                        index,
                        actions: binding.actions.clone(),
                    }),
                    _ => {}
                }
            }
        }
    }

    /// Refuses the request, if nothing refused it yet.
    fn deny(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str, reason: &str) {
        if self.verdict.refusal.is_some() {
            return;
        }
        let name = &policy.name;
        let message = match binding {
            Some(binding) => {
                format!("ValidatingAdmissionPolicy '{name}' with binding '{}' denied request: {why}", binding.name)
            }
            None => format!("ValidatingAdmissionPolicy '{name}' denied request: {why}"),
        };
        let (code, reason) = match reason {
            "Forbidden" => (403, "Forbidden"),
            "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
            _ => (422, "Invalid"),
        };
        let status = self.request.refuse(&message).with_cause("", &message, "");
        self.verdict.refusal = Some(Status { code, reason: Some(reason), ..status });
    }

    fn finish(mut self) -> Verdict {
        annotations::publish_failures(&self.failures, &mut self.verdict.annotations);
        self.verdict
    }
}

#[cfg(test)]
mod tests;
