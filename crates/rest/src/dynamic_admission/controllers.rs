//! Policies and webhooks for objects that controllers of this process create.

use api::admission::Notes;
use api::dynamic_admission::request::{Operation, Request};
use api::status::Status;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use store::admission::{self, AdmitNew};

use super::{DynamicAdmission, user_info};
use crate::auth::{AUTHENTICATED, User};

/// The field manager of controllers.
const MANAGER: &str = "kube-controller-manager";

impl AdmitNew for DynamicAdmission {
    fn is_needed(&self) -> bool {
        self.mutates() || self.validates()
    }

    fn mutate<'a>(
        &'a self,
        request: admission::Request<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), Status>> {
        async move {
            let asked = ControllerRequest::new(request);
            let before = asked.request(&Value::Null);
            self.mutate(&before, &asked.user, object, &|_| Ok(()), &mut Notes::default()).await
        }
        .boxed()
    }

    fn validate<'a>(&'a self, request: admission::Request<'a>, object: &'a Value) -> BoxFuture<'a, Result<(), Status>> {
        async move {
            let asked = ControllerRequest::new(request);
            self.validate(&asked.request(object), &asked.user, &mut Notes::default()).await
        }
        .boxed()
    }
}

/// A request of a controller.
struct ControllerRequest<'a> {
    about: admission::Request<'a>,
    user: User,
    info: Value,
    options: Value,
}

impl<'a> ControllerRequest<'a> {
    fn new(about: admission::Request<'a>) -> Self {
        let user = User { name: about.user.to_owned(), groups: vec![AUTHENTICATED.to_owned()], ..User::default() };
        let options = json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": MANAGER});
        Self { about, info: user_info(&user), user, options }
    }

    fn request<'r>(&'r self, object: &'r Value) -> Request<'r> {
        Request {
            operation: Operation::Create,
            kind: self.about.kind,
            subresource: None,
            namespace: self.about.namespace,
            name: self.about.name,
            object,
            old_object: &Value::Null,
            options: &self.options,
            dry_run: false,
            user: &self.info,
        }
    }
}
