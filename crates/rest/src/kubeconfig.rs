//! Writes kubeconfigs; `client::kubeconfig` reads them.
//!
//! In: the PKI of the server and its URL. Out: YAML with CA, administrator certificate and key embedded, so that the file can be copied
//! alone. It is written at every start (the URL or the certificate may be new) and replaced atomically, because a `kubectl` may be
//! reading it.
//!
//! The YAML uses only block mappings, one-item lists and double-quoted strings, which every parser supports.

mod cluster_info;
#[cfg(test)]
mod tests;

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use cluster_info::{ClusterInfo, ClusterInfoError};

use crate::pki::{ADMIN_USER, Identity, Pki, PkiError, files};

/// The name of the context and of the cluster in it.
pub const CONTEXT: &str = "waypost";

/// The text of a kubeconfig for one user at one server.
#[must_use]
pub fn render(server: &str, ca_pem: &str, user: &str, identity: &Identity) -> String {
    let ca = STANDARD.encode(ca_pem);
    let certificate = STANDARD.encode(&identity.certificate_pem);
    let key = STANDARD.encode(&identity.key_pem);
    // A JSON string is a double-quoted YAML scalar.
    let (server, user) = (serde_json::Value::from(server), serde_json::Value::from(user));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {CONTEXT}
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {CONTEXT}
  context:
    cluster: {CONTEXT}
    user: {user}
current-context: {CONTEXT}
"
    )
}

/// Writes a kubeconfig atomically, with mode 0600.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, config: &serde_json::Value) -> Result<(), PkiError> {
    files::write_private(path, api::yaml::to_yaml(config).as_bytes())
}

/// Writes the administrator's kubeconfig (mode 0600).
///
/// # Errors
/// When the file cannot be written.
pub fn write_admin(path: &Path, server: &str, pki: &Pki) -> Result<(), PkiError> {
    write_for_admin(path, server, pki.ca_pem(), pki.admin())
}

/// The same, from the parts of a [`Pki`].
///
/// # Errors
/// When the file cannot be written.
pub fn write_for_admin(path: &Path, server: &str, ca_pem: &str, identity: &Identity) -> Result<(), PkiError> {
    files::write_private(path, render(server, ca_pem, ADMIN_USER, identity).as_bytes())
}
