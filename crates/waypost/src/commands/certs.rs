//! `waypost certs`: the keys and certificates of a server, listed and replaced.
//!
//! In: the data directory, of a running or a stopped server. Out: a list, or new files, which a running server reloads within seconds.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use cli::terminal;
use jiff::Timestamp;
use kernel::privileges::{self, Account, Capabilities};
use rest::pki::LastCertificate;
use rest::pki::inventory::{self, Entry, WARN_DAYS};
use rest::pki::rotation::{self, Target};
use serde_json::{Value, json};

use crate::config::{CertsOutput, CertsSubject, DataDir};

/// Runs the command.
pub(crate) fn exec(subject: CertsSubject) -> anyhow::Result<()> {
    let now = Timestamp::now();
    match subject {
        CertsSubject::List { place, output } => list(&folder(&place)?, output, now),
        CertsSubject::Rotate { place, target } => rotate(&own_folder(&place)?, &target.targets(), now),
        CertsSubject::Finish { place, target, force } => finish(&own_folder(&place)?, &target.targets(), force),
    }
}

fn folder(place: &DataDir) -> anyhow::Result<PathBuf> {
    let dir = place.data_dir.join("pki");
    ensure!(
        dir.join("ca.crt").exists(),
        "there are no certificates in {}; name the data directory of the server with --data-dir",
        dir.display()
    );
    Ok(dir)
}

/// The folder, if this user owns it; root changes to its owner first, so that the server can read the files.
fn own_folder(place: &DataDir) -> anyhow::Result<PathBuf> {
    let dir = folder(place)?;
    let found = std::fs::metadata(&dir).with_context(|| format!("reading {}", dir.display()))?;
    let (owner, own) = (found.uid(), rustix::process::geteuid().as_raw());
    if own == 0 && owner != 0 {
        // The API server must be able to read the files, and must not make root write elsewhere.
        let account = Account::numbered(owner, found.gid());
        privileges::become_user(&account, Capabilities::empty()).with_context(|| format!("becoming {account}"))?;
        return Ok(dir);
    }
    ensure!(owner == own, "{} belongs to the user {owner}, and you are {own}; run this as that user", dir.display());
    Ok(dir)
}

fn list(dir: &Path, output: CertsOutput, now: Timestamp) -> anyhow::Result<()> {
    let entries = inventory::list(dir).context("reading keys and certificates")?;
    for entry in entries.iter().filter(|entry| entry.ends_soon(now)) {
        tracing::warn!(file = entry.file, days = entry.days_left(now), "certificate ends within {WARN_DAYS} days");
    }
    match output {
        CertsOutput::Table => terminal::print(&table(&entries, now)),
        CertsOutput::Json => {
            let rows: Vec<Value> = entries.iter().map(|entry| row(entry, now)).collect();
            terminal::print(&format!("{:#}\n", Value::from(rows)))
        }
    }
}

fn table(entries: &[Entry], now: Timestamp) -> String {
    let mut out = format!(
        "{:<9} {:<29} {:<9} {:<50} {:<20} {:<20} {:<20} {:<6} {}\n",
        "NAME", "FILE", "ROLE", "SUBJECT", "ISSUER", "NOT BEFORE", "NOT AFTER", "DAYS", "SHA-256"
    );
    for entry in entries {
        let time = |time: Option<Timestamp>| time.map_or_else(|| "-".to_owned(), api::lifecycle::seconds);
        let text = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let days = entry.days_left(now).map_or_else(|| "-".to_owned(), |days| days.to_string());
        let _ = writeln!(
            out,
            "{:<9} {:<29} {:<9} {:<50} {:<20} {:<20} {:<20} {days:<6} {}",
            entry.name,
            entry.file,
            entry.role.name(),
            text(&entry.subject),
            text(&entry.issuer),
            time(entry.not_before),
            time(entry.not_after),
            entry.fingerprint
        );
    }
    out
}

fn row(entry: &Entry, now: Timestamp) -> Value {
    let time = |time: Option<Timestamp>| time.map(api::lifecycle::seconds);
    json!({
        "name": entry.name,
        "file": entry.file,
        "role": entry.role.name(),
        "subject": entry.subject,
        "issuer": entry.issuer,
        "sha256": entry.fingerprint,
        "notBefore": time(entry.not_before),
        "notAfter": time(entry.not_after),
        "daysLeft": entry.days_left(now),
        "retired": time(entry.retired),
    })
}

fn rotate(dir: &Path, targets: &[Target], now: Timestamp) -> anyhow::Result<()> {
    rotation::rotate(dir, targets, now).context("replacing keys")?;
    let mut out = String::new();
    for target in targets {
        let _ = writeln!(out, "{}", rotated(*target));
    }
    out.push_str("a running server follows within a few seconds, one that is stopped when it starts\n");
    terminal::print(&out)
}

/// The result, and the next step.
const fn rotated(target: Target) -> &'static str {
    match target {
        Target::Ca => {
            "ca: replaced; both CAs are trusted, and nodes renew their certificates by themselves. Give other clients a new kubeconfig, \
             then run `waypost certs finish ca`"
        }
        Target::AgentCa => {
            "agent-ca: replaced; agents renew their certificates by themselves. Then run `waypost certs finish agent-ca`"
        }
        Target::Serving => "serving: replaced",
        Target::Signing => {
            "signing: replaced; tokens of the key before are accepted until the longest of them has ended, or until \
             `waypost certs finish signing`"
        }
        Target::Admin => "admin: replaced; the certificate before is good until the CA is replaced, too",
    }
}

fn finish(dir: &Path, targets: &[Target], force: bool) -> anyhow::Result<()> {
    if targets.contains(&Target::Ca) && !force {
        check(rotation::cut_off(dir).context("reading who uses the CA before")?)?;
    }
    let finished = rotation::finish(dir, targets).context("ending the rotation")?;
    ensure!(
        !finished.is_empty(),
        "nothing was replaced that is still accepted; `waypost certs list` shows what there is"
    );
    let mut out = String::new();
    for target in finished {
        out.push_str(match target {
            Target::Ca => "ca: the CA before is trusted no longer\n",
            Target::AgentCa => "agent-ca: the CA before is trusted no longer\n",
            _ => "signing: tokens of the keys before are refused\n",
        });
    }
    terminal::print(&out)
}

/// Fails if clients still use the old CA.
fn check(clients: Option<Vec<(String, LastCertificate)>>) -> anyhow::Result<()> {
    let Some(clients) = clients else {
        bail!(
            "no server has run since the CA was replaced, so nothing is known of its clients; start it and wait until nodes have renewed \
             their certificates, or cut them off with --force"
        );
    };
    if clients.is_empty() {
        return Ok(());
    }
    let mut users = String::new();
    for (user, shown) in &clients {
        let _ = write!(users, "\n  {user}, at {}", api::lifecycle::seconds(shown.at));
    }
    bail!(
        "these clients showed a certificate of the CA before last:{users}\nGive them new ones, or cut them off with --force"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_not_cut_off_unless_that_was_said() {
        assert!(check(Some(Vec::new())).is_ok());
        let unknown = check(None).expect_err("nothing is known").to_string();
        assert!(unknown.contains("no server has run") && unknown.contains("--force"), "{unknown}");
        let at = Timestamp::from_second(1_800_000_000).expect("a time");
        let shown = LastCertificate { ca: "x".into(), at };
        let why = check(Some(vec![("system:node:n1".into(), shown)])).expect_err("one is left").to_string();
        assert!(why.contains("system:node:n1, at 2027-01-15T08:00:00Z"), "{why}");
    }
}
