//! Password of a peer, from the Secret that its BGPPeer names; no other Secret is watched.
//!
//! In: a watch. Out: the current state of the password, and notifications of changes.

use std::fmt;

use api::kinds::secret;
use api::value::ValueExt as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::watch::{Event, KnownKeys, Object, Selection, Source};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::peers::SecretRef;

/// Maximum length of a TCP MD5 key (`TCP_MD5SIG_MAXKEYLEN`).
const MAX_LEN: usize = 80;

/// State of a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Password {
    /// The Secret has not been read yet.
    Unknown,
    /// The Secret is missing or invalid; why.
    Missing(String),
    /// The BGPPeer has no password.
    NotConfigured,
    /// The password.
    Set(Vec<u8>),
}

impl fmt::Debug for Password {
    /// Never the password itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Missing(_) => "missing",
            Self::NotConfigured => "not configured",
            Self::Set(_) => "set",
        })
    }
}

/// Watch of a password; dropping it stops the watch.
#[derive(Debug)]
pub(super) struct PasswordWatch {
    now: watch::Receiver<Password>,
    _task: JoinSet<()>,
}

impl PasswordWatch {
    /// Watches the password of a peer. Must be called within a tokio runtime.
    pub(super) fn start(source: &dyn Source, wanted: Option<&SecretRef>) -> Self {
        let mut task = JoinSet::new();
        let Some(wanted) = wanted.cloned() else {
            return Self { now: watch::channel(Password::NotConfigured).1, _task: task };
        };
        match Selection::all(&secret::KIND).within(&wanted.namespace).named(&wanted.name) {
            Ok(what) => {
                let (sender, now) = watch::channel(Password::Unknown);
                let mut watching = source.watch(what.optional());
                task.spawn(async move {
                    let mut known = KnownKeys::default();
                    loop {
                        let event = watching.next().await;
                        let gone = !known.apply(&event).is_empty();
                        let is = match &event {
                            Event::InitApply(object) | Event::Apply(object) => read(object, &wanted),
                            Event::Delete(_) => absent(&wanted),
                            Event::InitDone if gone || *sender.borrow() == Password::Unknown => absent(&wanted),
                            Event::Init | Event::InitDone => continue,
                        };
                        sender.send_if_modified(|now| {
                            let differs = *now != is;
                            *now = is;
                            differs
                        });
                    }
                });
                Self { now, _task: task }
            }
            Err(status) => Self { now: watch::channel(Password::Missing(status.message)).1, _task: task },
        }
    }

    /// What is known now. Waits while nothing is.
    pub(super) async fn known(&mut self) -> Password {
        let known = self.now.wait_for(|now| *now != Password::Unknown).await.map(|known| known.clone());
        match known {
            Ok(known) => known,
            // The sender was dropped: the value never arrives.
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits for a change.
    pub(super) async fn changed(&mut self) {
        if self.now.changed().await.is_err() {
            // No password is configured, or the runtime shuts down.
            std::future::pending::<()>().await;
        }
    }
}

fn absent(wanted: &SecretRef) -> Password {
    let SecretRef { namespace, name, key } = wanted;
    Password::Missing(format!(
        "spec.password names the Secret {namespace}/{name}, which does not exist; \
         create it: kubectl -n {namespace} create secret generic {name} --from-literal={key}=…"
    ))
}

fn read(object: &Object, wanted: &SecretRef) -> Password {
    let SecretRef { namespace, name, key } = wanted;
    let value: Value = serde_json::from_slice(&object.value).unwrap_or_default();
    let encoded = value.at("data").get(&**key).and_then(Value::as_str);
    match encoded.and_then(|text| STANDARD.decode(text).ok()) {
        Some(password) if (1..=MAX_LEN).contains(&password.len()) => Password::Set(password),
        Some(password) => {
            let length = password.len();
            Password::Missing(format!(
                "the key {key} of the Secret {namespace}/{name} has {length} bytes; a password has 1 to {MAX_LEN}"
            ))
        }
        None => Password::Missing(format!("the Secret {namespace}/{name} of spec.password has no key {key}")),
    }
}
