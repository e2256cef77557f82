//! One webhook of a configuration, read once.

use std::sync::Arc;
use std::time::Duration;

use api::dynamic_admission::evaluation::{MatchConditions, MatchResult};
use api::dynamic_admission::expression::{Authorize, Compiler};
use api::dynamic_admission::matching::{Criteria, NamespaceLabels};
use api::dynamic_admission::request::{Form, Request};
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::Value;

use super::target::Target;

/// A webhook.
pub(super) struct Webhook {
    /// The configuration that it is in.
    pub(super) configuration: String,
    /// Its name.
    pub(super) name: String,
    /// Tells it apart from all others.
    pub(super) id: String,
    /// Where it listens.
    pub(super) target: Target,
    /// How long an answer may take.
    pub(super) timeout: Duration,
    /// Requests pass when it cannot be asked.
    pub(super) ignores_failure: bool,
    /// It may be asked about requests that store nothing.
    pub(super) takes_dry_run: bool,
    /// It wants to see what later webhooks changed.
    pub(super) reinvoked: bool,
    /// The first version of reviews that it and we know; none when there is none.
    pub(super) review_version: Option<&'static str>,
    criteria: Criteria,
    conditions: MatchConditions,
}

impl Webhook {
    /// The webhooks of a configuration, in its order.
    pub(super) fn read_all(configuration: &Value, compiler: &dyn Compiler) -> Vec<Arc<Self>> {
        let name = configuration.text("metadata.name");
        let webhooks = configuration.items("webhooks").iter().enumerate();
        webhooks.map(|(index, webhook)| Arc::new(Self::read(name, index, webhook, compiler))).collect()
    }

    fn read(configuration: &str, index: usize, webhook: &Value, compiler: &dyn Compiler) -> Self {
        let name = webhook.text("name");
        let ignores_failure = webhook.text("failurePolicy") == "Ignore";
        let known = |version: &str| ["v1", "v1beta1"].into_iter().find(|known| *known == version);
        Self {
            configuration: configuration.to_owned(),
            name: name.to_owned(),
            id: format!("{configuration}/{name}/{index}"),
            target: Target::read(webhook.at("clientConfig")),
            timeout: Duration::from_secs(u64::try_from(webhook.int("timeoutSeconds")).unwrap_or_default().max(1)),
            ignores_failure,
            takes_dry_run: matches!(webhook.text("sideEffects"), "None" | "NoneOnDryRun"),
            reinvoked: webhook.text("reinvocationPolicy") == "IfNeeded",
            review_version: webhook.texts("admissionReviewVersions").into_iter().find_map(known),
            criteria: Criteria::of_webhook(webhook),
            conditions: MatchConditions::read(webhook.items("matchConditions"), ignores_failure, compiler),
        }
    }

    /// The form in which it is to be asked about a request, if it is.
    ///
    /// # Errors
    /// When that cannot be told: the namespace is gone, or a condition fails.
    pub(super) fn applies(
        &self,
        request: &Request<'_>,
        namespaces: &NamespaceLabels<'_>,
        authorizer: &dyn Authorize,
    ) -> Result<Option<Form>, Status> {
        let Some(form) = self.criteria.matches(request, namespaces)? else { return Ok(None) };
        match self.conditions.check(request, &form, authorizer) {
            MatchResult::Hold => Ok(Some(form)),
            MatchResult::Skip => Ok(None),
            MatchResult::Failed(why) => Err(Status::forbidden(request.kind.resource(), request.name, &why)),
        }
    }
}
