//! Policies and webhooks for objects that controllers create. The API server implements it; controllers call it.

use std::fmt;
use std::sync::Arc;

use api::status::Status;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::Request;

/// Runs policies and webhooks on new objects.
pub trait AdmitNew: Send + Sync {
    /// Whether there are any.
    fn is_needed(&self) -> bool;

    /// Runs mutating webhooks on an object, before its name is generated.
    ///
    /// # Errors
    /// The refusal of a webhook, or a failed call.
    fn mutate<'a>(&'a self, request: Request<'a>, object: &'a mut Value) -> BoxFuture<'a, Result<(), Status>>;

    /// Runs validation on an object as it would be stored.
    ///
    /// # Errors
    /// The refusal of a policy or webhook, or a failed call.
    fn validate<'a>(&'a self, request: Request<'a>, object: &'a Value) -> BoxFuture<'a, Result<(), Status>>;
}

/// Policies and webhooks as a setting.
#[derive(Clone)]
pub struct Dynamic(pub Arc<dyn AdmitNew>);

impl fmt::Debug for Dynamic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dynamic")
    }
}

impl PartialEq for Dynamic {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Dynamic {}
