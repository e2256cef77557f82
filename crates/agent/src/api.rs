//! API requests about Pods.

use client::requests::{Api, ApiError, Verb};
use serde_json::json;

/// The path of a Pod.
#[must_use]
pub fn pod_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// Deletes a terminated Pod with grace period 0; a newer Pod with the same name is not deleted.
///
/// # Errors
/// When the request fails; that the Pod is gone already is no error.
pub async fn delete_pod(api: &dyn Api, namespace: &str, name: &str, uid: &str) -> Result<(), ApiError> {
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
    });
    match api.request(Verb::Delete, &pod_path(namespace, name), Some(&options)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}
