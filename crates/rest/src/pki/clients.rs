//! Tracks the CA of each client's last certificate, to show which clients would be cut off when the rotation of a CA is finished.
//!
//! In: a user and the CA of its certificate, at each handshake. Out: a table, stored in `ca-clients.json` beside the CAs during a rotation. A
//! user with several certificates counts by the last one.

use std::collections::HashMap;
use std::path::Path;

use api::value::ValueExt as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{PkiError, files};

/// The file name, in the directory of the CAs.
pub const CLIENTS: &str = "ca-clients.json";
/// The largest number of users; beyond it those that were not seen for longest are removed.
const MAX_CLIENTS: usize = 10_000;

/// The last certificate of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastCertificate {
    /// The fingerprint of the CA.
    pub ca: String,
    /// The time of the handshake.
    pub at: Timestamp,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Clients(Mutex<HashMap<String, LastCertificate>>);

impl Clients {
    /// Records a handshake.
    pub fn note(&self, user: &str, ca: &str, at: Timestamp) {
        let mut clients = self.0.lock();
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(user) {
            let oldest = clients.iter().min_by_key(|(_, shown)| shown.at).map(|(user, _)| user.clone());
            oldest.and_then(|user| clients.remove(&user));
        }
        clients.insert(user.to_owned(), LastCertificate { ca: ca.to_owned(), at });
    }

    /// Adds the table of an earlier process, except where newer entries exist.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn restore(&self, dir: &Path) -> Result<(), PkiError> {
        let read = read(dir)?.unwrap_or_default();
        let mut clients = self.0.lock();
        for (user, shown) in read.into_iter().take(MAX_CLIENTS) {
            clients.entry(user).or_insert(shown);
        }
        Ok(())
    }

    /// The contents of the file.
    #[must_use]
    pub fn render(&self) -> String {
        let mut clients: Vec<(String, LastCertificate)> = self.0.lock().clone().into_iter().collect();
        clients.sort_by(|one, two| one.0.cmp(&two.0));
        let rows =
            clients.iter().map(|(user, shown)| json!({"user": user, "ca": shown.ca, "at": shown.at.to_string()}));
        Value::from(rows.collect::<Vec<_>>()).to_string()
    }
}

/// Writes the table, during a rotation.
///
/// # Errors
/// When the file cannot be written.
pub fn write(dir: &Path, text: &str) -> Result<(), PkiError> {
    let _lock = files::lock(dir)?;
    if !dir.join("ca-previous.crt").exists() {
        return Ok(());
    }
    files::write_private(&dir.join(CLIENTS), text.as_bytes())
}

/// The stored table; `None` without one.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn read(dir: &Path) -> Result<Option<Vec<(String, LastCertificate)>>, PkiError> {
    let Some(bytes) = files::read(&dir.join(CLIENTS))? else { return Ok(None) };
    let rows: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let row = |row: &Value| {
        let shown = LastCertificate { ca: row.text("ca").to_owned(), at: row.text("at").parse().ok()? };
        Some((row.text("user").to_owned(), shown))
    };
    Ok(Some(rows.as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(row).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::scratch::Scratch;

    #[test]
    fn the_last_certificate_counts_and_survives_a_restart() {
        let scratch = Scratch::new();
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(read(scratch.path()).unwrap(), None);
        let clients = Clients::default();
        clients.note("n1", "old", at(1));
        clients.note("n2", "old", at(1));
        clients.note("n1", "new", at(2));
        write(scratch.path(), &clients.render()).unwrap();
        assert_eq!(read(scratch.path()).unwrap(), None, "no CA is being replaced");
        std::fs::write(scratch.path().join("ca-previous.crt"), "").unwrap();
        write(scratch.path(), &clients.render()).unwrap();
        let later = Clients::default();
        later.note("n2", "new", at(3));
        later.restore(scratch.path()).unwrap();
        let shown = |ca: &str, second| LastCertificate { ca: ca.to_owned(), at: at(second) };
        assert_eq!(
            read(scratch.path()).unwrap().unwrap(),
            [("n1".to_owned(), shown("new", 2)), ("n2".to_owned(), shown("old", 1))]
        );
        write(scratch.path(), &later.render()).unwrap();
        assert_eq!(read(scratch.path()).unwrap().unwrap()[1], ("n2".to_owned(), shown("new", 3)));
    }

    #[test]
    fn the_table_is_bounded() {
        let clients = Clients::default();
        for number in 0..=i64::try_from(MAX_CLIENTS).unwrap() {
            clients.note(&number.to_string(), "ca", Timestamp::from_second(number).unwrap());
        }
        assert_eq!(clients.0.lock().len(), MAX_CLIENTS);
        assert!(!clients.0.lock().contains_key("0"), "the oldest went");
    }
}
