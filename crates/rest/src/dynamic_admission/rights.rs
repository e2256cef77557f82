//! The authorizer as expressions see it (`authorizer`).

use std::fmt;

use api::dynamic_admission::expression::{Asset, Authorize, Decision, Question, Target};
use api::dynamic_admission::request::Request;
use api::selector;

use crate::auth::{User, service_account};
use crate::authz::{Attributes, Authorizer};

/// What the user of a request may do.
pub(super) struct Rights<'a> {
    authorizer: &'a Authorizer,
    user: &'a User,
    request: Asset,
}

impl<'a> Rights<'a> {
    pub(super) fn new(authorizer: &'a Authorizer, user: &'a User, request: &Request<'_>) -> Self {
        let request = Asset {
            group: request.kind.group.to_owned(),
            resource: request.kind.plural.to_owned(),
            subresource: request.subresource.map_or("", |part| part.name).to_owned(),
            namespace: request.namespace.to_owned(),
            name: request.name.to_owned(),
            ..Asset::default()
        };
        Self { authorizer, user, request }
    }
}

impl fmt::Debug for Rights<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rights").field("user", &self.user.name).finish_non_exhaustive()
    }
}

impl Authorize for Rights<'_> {
    fn decide(&self, question: &Question) -> Decision {
        let account = question.service_account.as_ref().map(|(namespace, name)| User {
            name: service_account::username(namespace, name),
            groups: service_account::groups(namespace),
            ..User::default()
        });
        let user = account.as_ref().unwrap_or(self.user);
        let decision = match &question.target {
            Target::Path(path) => self.authorizer.authorize(&Attributes::path(user, &question.verb, path)),
            Target::Resource(asset) => {
                let fields = selector::field_terms(&asset.field_selector);
                self.authorizer.authorize(&Attributes {
                    user,
                    verb: &question.verb,
                    group: &asset.group,
                    resource: &asset.resource,
                    subresource: &asset.subresource,
                    name: &asset.name,
                    namespace: &asset.namespace,
                    fields: &fields,
                    path: None,
                })
            }
        };
        Decision { allowed: decision.allowed, reason: decision.reason, error: None }
    }

    fn request_resource(&self) -> Asset {
        self.request.clone()
    }
}
