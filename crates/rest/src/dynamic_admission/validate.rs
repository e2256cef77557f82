//! Validation: policies, then all validating webhooks in parallel.

use std::sync::Arc;

use api::dynamic_admission::policy;
use api::dynamic_admission::request::{Form, Request};
use api::status::Status;
use futures_util::future::join_all;

use super::cluster::ConvertedParams;
use super::configuration::Configuration;
use super::exchange::{ask, settle};
use super::rights::Rights;
use super::webhook::Webhook;
use super::{DynamicAdmission, Notes};
use crate::auth::User;

impl DynamicAdmission {
    /// Runs policies and webhooks on a request as it would be stored.
    ///
    /// # Errors
    /// The first refusal in the order of names.
    pub(crate) async fn validate(&self, request: &Request<'_>, user: &User, notes: &mut Notes) -> Result<(), Status> {
        if request.is_exempt() {
            return Ok(());
        }
        let configuration = self.configuration();
        self.ask_policies(&configuration, request, user, notes).await?;
        let webhooks = self.applicable(&configuration, request, user)?;
        let asked = webhooks.iter().enumerate().map(|(index, (webhook, form))| async move {
            let mut notes = Notes::default();
            let answered = ask(&*self.caller, webhook, request, form, false, &mut notes).await;
            let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
            let settled = settle(webhook, request, answered, &key, &mut notes);
            (settled.map(drop), notes)
        });
        let mut refusal = Ok(());
        for (settled, own) in join_all(asked).await {
            notes.warnings.extend(own.warnings);
            notes.annotations.extend(own.annotations);
            refusal = refusal.and(settled);
        }
        refusal
    }

    async fn ask_policies(
        &self,
        configuration: &Configuration,
        request: &Request<'_>,
        user: &User,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let bound = configuration.bound();
        if bound.is_empty() || !self.asks_policies {
            return Ok(());
        }
        let mut params = ConvertedParams::default();
        let verdict = loop {
            let verdict = {
                let rights = Rights::new(&self.authorizer, user, request);
                policy::decide(bound.clone(), request, &self.cluster(&params), &rights)?
            };
            if !params.complete(&*self.store, &self.conversion).await {
                break verdict;
            }
        };
        notes.warnings.extend(verdict.warnings);
        notes.annotations.extend(verdict.annotations);
        verdict.refusal.map_or(Ok(()), Err)
    }

    fn applicable(
        &self,
        configuration: &Configuration,
        request: &Request<'_>,
        user: &User,
    ) -> Result<Vec<(Arc<Webhook>, Form)>, Status> {
        if !self.asks_validating {
            return Ok(Vec::new());
        }
        let rights = Rights::new(&self.authorizer, user, request);
        let mut out = Vec::new();
        for webhook in configuration.validating.values().flatten() {
            if let Some(form) = webhook.applies(request, &|name| self.namespace_labels(name), &rights)? {
                out.push((webhook.clone(), form));
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests;
