//! The authorizer as expressions see it (`authorizer`).

use std::fmt;

use api::dynamic_admission::expression::{self, Authorize, Decision, Resource, Subject, Target};
use api::dynamic_admission::request::Request;
use api::selector;

use crate::auth::{User, service_account};
use crate::authz::{Attributes, Authorizer};

/// The permissions of the user of a request.
pub(super) struct Rights<'a> {
    authorizer: &'a Authorizer,
    user: &'a User,
    request: Resource,
}

impl<'a> Rights<'a> {
    pub(super) fn new(authorizer: &'a Authorizer, user: &'a User, request: &Request<'_>) -> Self {
        let request = Resource {
            group: request.kind.group.to_owned(),
            resource: request.kind.plural.to_owned(),
            subresource: request.subresource.map_or("", |part| part.name).to_owned(),
            namespace: request.namespace.to_owned(),
            name: request.name.to_owned(),
            ..Resource::default()
        };
        Self { authorizer, user, request }
    }
}

impl fmt::Debug for Rights<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rights").field("user", &self.user.name).finish_non_exhaustive()
    }
}

impl expression::Authorizer for Rights<'_> {
    fn authorize(&self, request: &expression::Request) -> Decision {
        let account = match &request.subject {
            Subject::Requester => None,
            Subject::ServiceAccount { namespace, name } => Some(User {
                name: service_account::username(namespace, name),
                groups: service_account::groups(namespace),
                ..User::default()
            }),
        };
        let user = account.as_ref().unwrap_or(self.user);
        let decision = match &request.target {
            Target::Path(path) => self.authorizer.authorize(&Attributes::path(user, &request.verb, path)),
            Target::Resource(wanted) => {
                let fields = selector::field_terms(&wanted.field_selector);
                self.authorizer.authorize(&Attributes {
                    user,
                    verb: &request.verb,
                    group: &wanted.group,
                    resource: &wanted.resource,
                    subresource: &wanted.subresource,
                    name: &wanted.name,
                    namespace: &wanted.namespace,
                    fields: &fields,
                    path: None,
                })
            }
        };
        Decision { allowed: decision.allowed, reason: decision.reason, error: None }
    }
}

impl Authorize for Rights<'_> {
    fn request_resource(&self) -> Resource {
        self.request.clone()
    }
}
