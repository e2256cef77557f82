//! Rotation of keys and certificates: the order of writes, and recovery after a crash.
//!
//! In: the files of the directory. Out: other files. A rotation is a list of steps, each of which replaces or removes one file atomically; after any
//! of them the directory can be used, by a server that runs or starts, and by the same command again.
//!
//! ```text
//! CA       ca-next.key ─▶ ca-previous.key ─▶ ca-previous.crt ─▶ ca.crt ─▶ ca.key ─▶ without ca-next.key
//!                                                                  └ from here on the new CA signs; its key is the one that matches
//! leaf     KEY ─▶ CERTIFICATE             a certificate that does not match its key is renewed when it is loaded
//! signing  service-account-previous.json ─▶ service-account.key
//! ```
//! The rotation of a CA has two phases. After the first both CAs are trusted and published, and the certificates of the server stay with the old
//! one. [`finish`] removes the old one: from then on nothing that it signed is accepted. See `docs/adr/0018-key-rotation.md`.

#[cfg(test)]
mod tests;

use std::path::Path;

use jiff::Timestamp;
use rcgen::KeyPair;

use super::certs::{self, Authority, Certificate, Purpose};
use super::clients::{self, CLIENTS, LastCertificate};
use super::load::{self, AGENT_CA, CLUSTER_CA, Ca, LEAF_REMEDY, SIGNING_KEY_REMEDY};
use super::signing_keys::{self, RetiredKey};
use super::{ADMIN_PURPOSE, AGENT_CLIENT_PURPOSE, PkiError, files};

/// What can be rotated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The cluster CA.
    Ca,
    /// The CA of agents' serving certificates.
    AgentCa,
    /// The serving certificate of the server, and its client certificate for agents.
    Serving,
    /// The key of ServiceAccount tokens.
    Signing,
    /// The administrator's certificate.
    Admin,
}

/// A change of one file.
enum Step {
    Write(String, Vec<u8>),
    Remove(String),
}

impl Step {
    fn write(name: impl Into<String>, text: &str) -> Self {
        Self::Write(name.into(), text.as_bytes().to_vec())
    }

    fn carry_out(&self, dir: &Path) -> Result<(), PkiError> {
        match self {
            Self::Write(name, bytes) => files::write_private(&dir.join(name), bytes),
            Self::Remove(name) => files::remove(&dir.join(name)),
        }
    }
}

/// Rotates these.
///
/// # Errors
/// When a file is missing or damaged, or the previous rotation of a CA was not finished; nothing was changed then.
pub fn rotate(dir: &Path, targets: &[Target], now: Timestamp) -> Result<(), PkiError> {
    let _lock = files::lock(dir)?;
    recover(dir)?;
    let mut steps = Vec::new();
    for target in targets {
        steps.extend(rotation(dir, *target, now)?);
    }
    steps.iter().try_for_each(|step| step.carry_out(dir))
}

fn rotation(dir: &Path, target: Target, now: Timestamp) -> Result<Vec<Step>, PkiError> {
    match target {
        Target::Ca => rotate_authority(dir, &CLUSTER_CA, now),
        Target::AgentCa => rotate_authority(dir, &AGENT_CA, now),
        Target::Serving => {
            let names = existing(dir, "server.crt")?.serving_purpose();
            let shown = shown_authority(dir)?;
            let mut steps = rotate_leaf("server", &shown, &names, now)?;
            steps.extend(rotate_leaf("agents", &shown, &AGENT_CLIENT_PURPOSE, now)?);
            Ok(steps)
        }
        Target::Admin => rotate_leaf("admin", &authority(dir, &CLUSTER_CA, "")?, &ADMIN_PURPOSE, now),
        Target::Signing => rotate_signing(dir, now),
    }
}

fn rotate_authority(dir: &Path, ca: &Ca, now: Timestamp) -> Result<Vec<Step>, PkiError> {
    let stem = ca.stem;
    if dir.join(previous(stem, "crt")).exists() {
        let why =
            format!("the last rotation of {stem} is not finished; end it with `waypost certs finish {stem}` first");
        return Err(PkiError::Rotation(why));
    }
    let old = authority(dir, ca, "")?;
    let key = KeyPair::generate()?;
    let certificate = certs::certify_authority(ca.name, &key, now)?;
    let key_pem = key.serialize_pem();
    Ok(vec![
        Step::write(next(stem), &key_pem),
        Step::write(previous(stem, "key"), &old.key_pem()),
        Step::write(previous(stem, "crt"), old.pem()),
        Step::write(format!("{stem}.crt"), certificate.pem()),
        Step::write(format!("{stem}.key"), &key_pem),
        Step::Remove(next(stem)),
    ])
}

fn rotate_leaf(stem: &str, signer: &Authority, purpose: &Purpose<'_>, now: Timestamp) -> Result<Vec<Step>, PkiError> {
    let key = KeyPair::generate()?;
    let certificate = signer.certify(purpose, &key, i64::MAX, now)?;
    let key = Step::write(format!("{stem}.key"), &key.serialize_pem());
    Ok(vec![key, Step::write(format!("{stem}.crt"), certificate.pem())])
}

fn rotate_signing(dir: &Path, now: Timestamp) -> Result<Vec<Step>, PkiError> {
    let path = dir.join(signing_keys::KEY);
    let old = load::key(&path, SIGNING_KEY_REMEDY)?.ok_or_else(|| missing(signing_keys::KEY))?;
    let mut retired = signing_keys::retired(dir)?;
    retired.retain(|key| key.public != old.public_key_raw());
    retired.push(RetiredKey { public: old.public_key_raw().to_vec(), retired: now });
    let previous = Step::write(signing_keys::PREVIOUS, &signing_keys::render(&retired));
    Ok(vec![previous, Step::write(signing_keys::KEY, &KeyPair::generate()?.serialize_pem())])
}

/// Removes what these replaced: it is no longer accepted. Returns those for which there was something to remove.
///
/// # Errors
/// An I/O error.
pub fn finish(dir: &Path, targets: &[Target]) -> Result<Vec<Target>, PkiError> {
    let _lock = files::lock(dir)?;
    recover(dir)?;
    let (mut finished, mut steps) = (Vec::new(), Vec::new());
    for target in targets {
        let names = match target {
            // The certificate first: without it the key is unused, and removed at the next start.
            Target::Ca => vec![previous("ca", "crt"), previous("ca", "key"), CLIENTS.to_owned()],
            Target::AgentCa => vec![previous("agent-ca", "crt"), previous("agent-ca", "key")],
            Target::Signing => vec![signing_keys::PREVIOUS.to_owned()],
            Target::Serving | Target::Admin => Vec::new(),
        };
        if names.first().is_some_and(|name| dir.join(name).exists()) {
            finished.push(*target);
            steps.extend(names.into_iter().map(Step::Remove));
        }
    }
    steps.iter().try_for_each(|step| step.carry_out(dir))?;
    files::sync(dir)?;
    Ok(finished)
}

/// The clients that would be cut off if the rotation of the cluster CA were finished now: those whose last certificate is of the previous CA.
/// `None` when no server has recorded clients since the rotation.
///
/// # Errors
/// When a file cannot be read.
pub fn cut_off(dir: &Path) -> Result<Option<Vec<(String, LastCertificate)>>, PkiError> {
    let Some(old) = load::certificate(&dir.join(previous("ca", "crt")), LEAF_REMEDY)? else {
        return Ok(Some(Vec::new()));
    };
    let fingerprint = old.fingerprint();
    let clients = clients::read(dir)?;
    Ok(clients.map(|clients| clients.into_iter().filter(|(_, shown)| shown.ca == fingerprint).collect()))
}

/// Completes or reverts an interrupted rotation of a CA. The caller holds the lock of the directory.
pub(super) fn recover(dir: &Path) -> Result<(), PkiError> {
    for stem in [CLUSTER_CA.stem, AGENT_CA.stem] {
        let current = readable(dir, &format!("{stem}.crt"))?;
        let before = readable(dir, &previous(stem, "crt"))?;
        let found = RotationState {
            next_fits: match (&current, load::key(&dir.join(next(stem)), LEAF_REMEDY)) {
                (Some(current), Ok(Some(key))) => current.is_for(&key),
                _ => false,
            },
            has_next: dir.join(next(stem)).exists(),
            has_previous: dir.join(previous(stem, "crt")).exists(),
            has_previous_key: dir.join(previous(stem, "key")).exists(),
            is_unchanged: matches!((&current, &before), (Some(current), Some(before)) if current.has_key_of(before)),
        };
        for remedy in found.remedies() {
            let step = match remedy {
                Remedy::TakeNextKey => match files::read(&dir.join(next(stem)))? {
                    Some(key) => Step::Write(format!("{stem}.key"), key),
                    None => continue,
                },
                Remedy::RemoveNextKey => Step::Remove(next(stem)),
                Remedy::RemovePrevious => Step::Remove(previous(stem, "crt")),
                Remedy::RemovePreviousKey => Step::Remove(previous(stem, "key")),
            };
            step.carry_out(dir)?;
        }
    }
    Ok(())
}

/// The state of an interrupted rotation.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "these are what can be seen of files")]
struct RotationState {
    /// `ca-next.key` exists,
    has_next: bool,
    /// and is the key of `ca.crt`.
    next_fits: bool,
    has_previous: bool,
    has_previous_key: bool,
    /// `ca-previous.crt` has the key of `ca.crt`.
    is_unchanged: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Remedy {
    TakeNextKey,
    RemoveNextKey,
    RemovePrevious,
    RemovePreviousKey,
}

impl RotationState {
    /// A rotation has happened when `ca.crt` is the new certificate: before that it is reverted, after that completed.
    fn remedies(self) -> Vec<Remedy> {
        let is_taken_back = self.has_previous && self.is_unchanged;
        let all = [
            (self.has_next && self.next_fits, Remedy::TakeNextKey),
            (self.has_next, Remedy::RemoveNextKey),
            (is_taken_back, Remedy::RemovePrevious),
            (self.has_previous_key && (!self.has_previous || is_taken_back), Remedy::RemovePreviousKey),
        ];
        all.into_iter().filter(|(applies, _)| *applies).map(|(_, remedy)| remedy).collect()
    }
}

/// The CA of the server's own certificates.
fn shown_authority(dir: &Path) -> Result<Authority, PkiError> {
    let suffix = if dir.join(previous("ca", "crt")).exists() { "-previous" } else { "" };
    authority(dir, &CLUSTER_CA, suffix)
}

/// A CA, for signing.
fn authority(dir: &Path, ca: &Ca, suffix: &str) -> Result<Authority, PkiError> {
    let (key, crt) = (format!("{}{suffix}.key", ca.stem), format!("{}{suffix}.crt", ca.stem));
    let certificate = existing(dir, &crt)?;
    let key = load::key(&dir.join(&key), ca.remedy)?.ok_or_else(|| missing(&key))?;
    if certificate.is_for(&key) {
        return Ok(Authority::new(ca.name, key, certificate));
    }
    let why = format!("it belongs to another key than {}{suffix}.key", ca.stem);
    Err(PkiError::Damaged { path: dir.join(crt), why, remedy: ca.remedy })
}

fn existing(dir: &Path, name: &str) -> Result<Certificate, PkiError> {
    load::certificate(&dir.join(name), LEAF_REMEDY)?.ok_or_else(|| missing(name))
}

/// A certificate, if it exists; damage is reported when it is loaded.
fn readable(dir: &Path, name: &str) -> Result<Option<Certificate>, PkiError> {
    Ok(files::read(&dir.join(name))?.and_then(|pem| Certificate::parse(&pem).ok()))
}

fn missing(name: &str) -> PkiError {
    PkiError::Rotation(format!("no {name} to replace; the server creates it at its first start"))
}

fn next(stem: &str) -> String {
    format!("{stem}-next.key")
}

fn previous(stem: &str, extension: &str) -> String {
    format!("{stem}-previous.{extension}")
}
