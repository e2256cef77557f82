//! Requests of the agent about its Pods.

use client::requests::{Api, ApiError, Verb};
use serde_json::json;

/// The path of a Pod.
#[must_use]
pub fn pod_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// Deletes a Pod that has ended, for good; one of the same name that came after it stays.
///
/// # Errors
/// When the API does not; that it is gone already is no error.
pub async fn forget_pod(api: &dyn Api, namespace: &str, name: &str, uid: &str) -> Result<(), ApiError> {
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
    });
    match api.request(Verb::Delete, &pod_path(namespace, name), Some(&options)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}
