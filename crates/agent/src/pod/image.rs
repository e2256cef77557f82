//! Ensures that the image of a container is present, by its `imagePullPolicy`.
//!
//! In: the Pod, the container, the images of this node. Out: success or an error for the status; Events like those of the kubelet. A name that
//! was given on this node (`waypost image import`, `tag`) refers to that image and is never pulled.

use api::value::ValueExt as _;
use client::requests::find;
use jiff::Timestamp;
use serde_json::Value;

use crate::container_error::ContainerError;
use crate::images::credentials::{Credential, for_image};
use crate::images::is_host_image;
use crate::images::pull::PullError;
use crate::images::{Image, Reference};
use crate::machine::Machine;

/// What a pull policy requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Use the local image.
    Use,
    /// Pull the image, or check for a newer one.
    Pull,
    /// The image is absent and must not be pulled.
    Refuse,
}

/// The action for a pull policy, given the local image.
fn action_for(policy: &str, here: Option<&Image>) -> Action {
    match (policy, here) {
        (_, Some(Image { own: true, .. })) => Action::Use,
        ("Always", _) => Action::Pull,
        (_, Some(_)) => Action::Use,
        ("Never", None) => Action::Refuse,
        (_, None) => Action::Pull,
    }
}

/// Whether an error is about the image.
pub(super) fn is_image_error(error: &ContainerError) -> bool {
    matches!(error.reason, "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName")
}

/// Ensures that the image of a container is present.
pub(super) async fn ensure(machine: &Machine, pod: &Value, container: &Value) -> Result<(), ContainerError> {
    let (name, image) = (container.text("name"), container.text("image"));
    if is_host_image(image) {
        return Ok(());
    }
    let record = |normal, reason, message| machine.recorder.record(pod, Some(name), normal, reason, message);
    let parts = Reference::parse(image).map_err(|error| {
        record(false, "InspectFailed", format!("Failed to apply default image tag \"{image}\": {error}"));
        ContainerError { reason: "InvalidImageName", message: error.to_string() }
    })?;
    let here = machine.images.find(image).ok();
    match action_for(container.text("imagePullPolicy"), here.as_ref()) {
        Action::Use => {
            record(true, "Pulled", format!("Container image \"{image}\" already present on machine"));
            Ok(())
        }
        Action::Refuse => {
            let message = format!("Container image \"{image}\" is not present with pull policy of Never");
            record(false, "ErrImageNeverPull", message.clone());
            let message = format!("{message}; import it with `waypost image import FILE {image}`");
            Err(ContainerError { reason: "ErrImageNeverPull", message })
        }
        Action::Pull => pull(machine, pod, container, &parts).await,
    }
}

async fn pull(machine: &Machine, pod: &Value, container: &Value, parts: &Reference) -> Result<(), ContainerError> {
    let (uid, name, image) = (pod.text("metadata.uid"), container.text("name"), container.text("image"));
    let record = |normal, reason, message| machine.recorder.record(pod, Some(name), normal, reason, message);
    let start = Timestamp::now();
    if let Some(why) = machine.pull_backoff.active(uid, image, start) {
        record(true, "BackOff", format!("Back-off pulling image \"{image}\""));
        let message = format!("Back-off pulling image \"{image}\": ErrImagePull: {why}");
        return Err(ContainerError { reason: "ImagePullBackOff", message });
    }
    let credentials = credentials(machine, pod, parts).await;
    record(true, "Pulling", format!("Pulling image \"{image}\""));
    match machine.puller.pull(image, &credentials).await {
        Ok(pulled) => {
            machine.pull_backoff.reset(uid, image);
            let took = Timestamp::now().duration_since(start).as_millis();
            let took = format!("{}.{:03}s", took / 1000, took % 1000);
            let message = format!(
                "Successfully pulled image \"{image}\" in {took} ({took} including waiting). Image size: {} bytes.",
                pulled.size
            );
            record(true, "Pulled", message);
            Ok(())
        }
        Err(error) => {
            let why = format!("{error}{}", next_step(&error, image));
            machine.pull_backoff.failed(uid, image, &why, Timestamp::now());
            record(false, "Failed", format!("Failed to pull image \"{image}\": {why}"));
            Err(ContainerError { reason: "ErrImagePull", message: why })
        }
    }
}

/// The next step without a registry.
fn next_step(error: &PullError, image: &str) -> String {
    match error {
        PullError::Unreachable { .. } | PullError::Refused { status: 401 | 403 | 404, .. } => {
            format!("; or import the image with `waypost image import FILE {image}`")
        }
        _ => String::new(),
    }
}

/// The credentials of the Pod's `imagePullSecrets` for an image; missing Secrets are skipped with an Event.
async fn credentials(machine: &Machine, pod: &Value, image: &Reference) -> Vec<Credential> {
    let namespace = pod.text("metadata.namespace");
    let mut secrets = Vec::new();
    for name in pod.items("spec.imagePullSecrets").iter().map(|secret| secret.text("name")) {
        match find(&*machine.api, &format!("/api/v1/namespaces/{namespace}/secrets/{name}")).await {
            Ok(Some(secret)) => secrets.push(secret),
            not => {
                let why = not.err().map_or_else(|| "not found".to_owned(), |error| error.to_string());
                let message = format!(
                    "Unable to retrieve some image pull secrets ({name}: {why}); attempting to pull the image may not succeed."
                );
                machine.recorder.record(pod, None, false, "FailedToRetrieveImagePullSecret", message);
            }
        }
    }
    for_image(&secrets, image)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(own: bool) -> Image {
        Image { id: String::new(), config: Value::Null, layers: Vec::new(), own, exact: String::new() }
    }

    #[test]
    fn pull_policies_are_those_of_kubernetes_and_local_names_are_not_pulled() {
        let (pulled, own) = (image(false), image(true));
        for (policy, here, wanted) in [
            ("Always", None, Action::Pull),
            ("Always", Some(&pulled), Action::Pull),
            ("Always", Some(&own), Action::Use),
            ("IfNotPresent", None, Action::Pull),
            ("IfNotPresent", Some(&pulled), Action::Use),
            ("", None, Action::Pull),
            ("Never", None, Action::Refuse),
            ("Never", Some(&pulled), Action::Use),
        ] {
            assert_eq!(action_for(policy, here), wanted, "{policy} {here:?}");
        }
    }
}
