//! The image of a container, before it begins: found here, or pulled, as its `imagePullPolicy` says.
//!
//! In: the Pod, the container, what this machine has. Out: that it is there, or why not; Events as kubelets write them. A name that was
//! given on this machine (`waypost image import`, `tag`) means the image that got it: no registry is asked for it.

use std::collections::HashMap;

use api::value::ValueExt as _;
use client::requests::find;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;

use crate::decide::back_off;
use crate::images::credentials::{Credential, for_image};
use crate::images::pull::PullError;
use crate::images::{Image, Reference};
use crate::machine::Machine;
use crate::runtime::{Refused, is_process};

/// How long a failure is shown as such before the wait for the next attempt is.
const SHOWN: SignedDuration = SignedDuration::from_secs(2);

/// What to do for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// It is here.
    Use,
    /// It must come, or be looked for anew.
    Pull,
    /// It is not here, and nobody may bring it.
    Refuse,
}

/// What a policy means for what is here.
fn course(policy: &str, here: Option<&Image>) -> Course {
    match (policy, here) {
        (_, Some(Image { own: true, .. })) => Course::Use,
        ("Always", _) => Course::Pull,
        (_, Some(_)) => Course::Use,
        ("Never", None) => Course::Refuse,
        (_, None) => Course::Pull,
    }
}

/// Images that could not be had, by Pod and name, and when they are tried again.
#[derive(Debug, Default)]
pub struct Waits(Mutex<HashMap<(String, String), Wait>>);

#[derive(Clone, Debug)]
struct Wait {
    seconds: u32,
    until: Timestamp,
    why: String,
}

impl Waits {
    /// Notes a failure.
    fn failed(&self, pod: &str, image: &str, why: &str, now: Timestamp) {
        let mut waits = self.0.lock();
        // Pods that are gone do not come back for theirs.
        waits.retain(|_, wait| now < back_off::until(wait.until, 2 * wait.seconds));
        let key = (pod.to_owned(), image.to_owned());
        let seconds = back_off::next(waits.get(&key).map_or(0, |wait| wait.seconds));
        waits.insert(key, Wait { seconds, until: back_off::until(now, seconds), why: why.to_owned() });
    }

    fn forget(&self, pod: &str, image: &str) {
        self.0.lock().remove(&(pod.to_owned(), image.to_owned()));
    }

    /// Why an image is not asked for yet.
    fn waiting(&self, pod: &str, image: &str, now: Timestamp) -> Option<String> {
        let waits = self.0.lock();
        let wait = waits.get(&(pod.to_owned(), image.to_owned()))?;
        (now < wait.until).then(|| wait.why.clone())
    }

    /// When a container that has no image is looked at again.
    pub(super) fn look_again(&self, pod: &str, image: &str, refused: &Refused, now: Timestamp) -> Timestamp {
        let until = self.0.lock().get(&(pod.to_owned(), image.to_owned())).map_or(now, |wait| wait.until);
        let shown = now.saturating_add(SHOWN).unwrap_or(Timestamp::MAX);
        match refused.reason {
            "ErrImagePull" => until.min(shown),
            _ => until.max(shown),
        }
    }
}

/// Whether a container has no image, for whatever reason.
pub(super) fn is_about_images(refused: &Refused) -> bool {
    matches!(refused.reason, "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName")
}

/// Sees to it that the image of a container is here.
pub(super) async fn bring(machine: &Machine, pod: &Value, container: &Value) -> Result<(), Refused> {
    let (name, image) = (container.text("name"), container.text("image"));
    if is_process(image) {
        return Ok(());
    }
    let tell = |normal, reason, message| machine.teller.tell(pod, Some(name), normal, reason, message);
    let parts = Reference::parse(image).map_err(|error| {
        tell(false, "InspectFailed", format!("Failed to apply default image tag \"{image}\": {error}"));
        Refused { reason: "InvalidImageName", message: error.to_string() }
    })?;
    let here = machine.images.find(image).ok();
    match course(container.text("imagePullPolicy"), here.as_ref()) {
        Course::Use => {
            tell(true, "Pulled", format!("Container image \"{image}\" already present on machine"));
            Ok(())
        }
        Course::Refuse => {
            let message = format!("Container image \"{image}\" is not present with pull policy of Never");
            tell(false, "ErrImageNeverPull", message.clone());
            let message = format!("{message}; bring it with `waypost image import FILE {image}`");
            Err(Refused { reason: "ErrImageNeverPull", message })
        }
        Course::Pull => pull(machine, pod, container, &parts).await,
    }
}

async fn pull(machine: &Machine, pod: &Value, container: &Value, parts: &Reference) -> Result<(), Refused> {
    let (uid, name, image) = (pod.text("metadata.uid"), container.text("name"), container.text("image"));
    let tell = |normal, reason, message| machine.teller.tell(pod, Some(name), normal, reason, message);
    let begun = Timestamp::now();
    if let Some(why) = machine.image_waits.waiting(uid, image, begun) {
        tell(true, "BackOff", format!("Back-off pulling image \"{image}\""));
        let message = format!("Back-off pulling image \"{image}\": ErrImagePull: {why}");
        return Err(Refused { reason: "ImagePullBackOff", message });
    }
    let credentials = credentials(machine, pod, parts).await;
    tell(true, "Pulling", format!("Pulling image \"{image}\""));
    match machine.puller.pull(image, &credentials).await {
        Ok(pulled) => {
            machine.image_waits.forget(uid, image);
            let took = Timestamp::now().duration_since(begun).as_millis();
            let took = format!("{}.{:03}s", took / 1000, took % 1000);
            let message = format!(
                "Successfully pulled image \"{image}\" in {took} ({took} including waiting). Image size: {} bytes.",
                pulled.size
            );
            tell(true, "Pulled", message);
            Ok(())
        }
        Err(error) => {
            let why = format!("{error}{}", next_step(&error, image));
            machine.image_waits.failed(uid, image, &why, Timestamp::now());
            tell(false, "Failed", format!("Failed to pull image \"{image}\": {why}"));
            Err(Refused { reason: "ErrImagePull", message: why })
        }
    }
}

/// What people without a registry can do.
fn next_step(error: &PullError, image: &str) -> String {
    match error {
        PullError::Unreachable { .. } | PullError::Refused { status: 401 | 403 | 404, .. } => {
            format!("; or bring the image yourself with `waypost image import FILE {image}`")
        }
        _ => String::new(),
    }
}

/// The credentials of the Pod's `imagePullSecrets` for an image. A Secret that is not there is one that does not help.
async fn credentials(machine: &Machine, pod: &Value, image: &Reference) -> Vec<Credential> {
    let namespace = pod.text("metadata.namespace");
    let mut secrets = Vec::new();
    for name in pod.items("spec.imagePullSecrets").iter().map(|secret| secret.text("name")) {
        match find(&*machine.api, &format!("/api/v1/namespaces/{namespace}/secrets/{name}")).await {
            Ok(Some(secret)) => secrets.push(secret),
            not => {
                let why = not.err().map_or_else(|| "there is none".to_owned(), |error| error.to_string());
                let message = format!(
                    "Unable to retrieve some image pull secrets ({name}: {why}); attempting to pull the image may not succeed."
                );
                machine.teller.tell(pod, None, false, "FailedToRetrieveImagePullSecret", message);
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
    fn policies_mean_what_they_mean_elsewhere_but_names_of_this_machine_are_its_own() {
        let (pulled, own) = (image(false), image(true));
        for (policy, here, wanted) in [
            ("Always", None, Course::Pull),
            ("Always", Some(&pulled), Course::Pull),
            ("Always", Some(&own), Course::Use),
            ("IfNotPresent", None, Course::Pull),
            ("IfNotPresent", Some(&pulled), Course::Use),
            ("", None, Course::Pull),
            ("Never", None, Course::Refuse),
            ("Never", Some(&pulled), Course::Use),
        ] {
            assert_eq!(course(policy, here), wanted, "{policy} {here:?}");
        }
    }

    #[test]
    fn failures_wait_longer_each_time_and_are_forgotten() {
        let waits = Waits::default();
        let now = Timestamp::UNIX_EPOCH;
        let refused = |reason| Refused { reason, message: String::new() };
        let mut at = now;
        let mut lengths = Vec::new();
        for _ in 0..7 {
            waits.failed("u", "web", "no", at);
            let until = waits.look_again("u", "web", &refused("ImagePullBackOff"), at);
            lengths.push(until.duration_since(at).as_secs());
            assert_eq!(waits.look_again("u", "web", &refused("ErrImagePull"), at), back_off::until(at, 2));
            assert_eq!(waits.waiting("u", "web", at).as_deref(), Some("no"));
            at = until;
            assert_eq!(waits.waiting("u", "web", at), None, "now it may be tried");
        }
        assert_eq!(lengths, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(waits.waiting("other", "web", now), None);
        waits.forget("u", "web");
        waits.failed("u", "web", "no", at);
        assert_eq!(waits.look_again("u", "web", &refused("ImagePullBackOff"), at), back_off::until(at, 10));
    }
}
