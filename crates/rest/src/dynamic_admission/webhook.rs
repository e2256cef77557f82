//! One webhook of a configuration, parsed once.

use std::sync::Arc;
use std::time::Duration;

use api::dynamic_admission::evaluation::{MatchConditions, MatchResult};
use api::dynamic_admission::expression::{Authorize, Compiler};
use api::dynamic_admission::matching::{Criteria, NamespaceLabels};
use api::dynamic_admission::request::{Form, Request};
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::Value;

use crate::webhooks::target::Target;

/// A webhook.
pub(super) struct Webhook {
    /// The configuration that it is in.
    pub(super) configuration: String,
    /// Its name.
    pub(super) name: String,
    /// A unique id.
    pub(super) id: String,
    /// Its URL.
    pub(super) target: Target,
    /// The timeout of a call.
    pub(super) timeout: Duration,
    /// `failurePolicy: Ignore`.
    pub(super) ignores_failure: bool,
    /// Whether it may be called for dry runs.
    pub(super) takes_dry_run: bool,
    /// `reinvocationPolicy: IfNeeded`.
    pub(super) reinvoked: bool,
    /// The first version of reviews that it and we support; `None` without one.
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

    /// The form of the review for a request, if the webhook matches it.
    ///
    /// # Errors
    /// When that cannot be determined: the namespace does not exist, or a condition fails.
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
