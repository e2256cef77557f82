//! The administrator's kubeconfig: everything `kubectl` needs, in one private file.
//!
//! In: the identity of the server and the URL under which it is reached. Out: YAML with the authority, the admin
//! certificate and its key embedded, so that the file can be copied alone. It is written at every start (the URL or
//! the certificate may be new) and replaced as one step, because a `kubectl` may be reading it.
//!
//! The YAML is as plain as can be: block mappings, one-item lists, strings in double quotes. Every reader has these.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

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

/// Writes the administrator's kubeconfig (mode 0600).
///
/// # Errors
/// When the file cannot be written.
pub fn write_admin(path: &Path, server: &str, pki: &Pki) -> Result<(), PkiError> {
    files::write_private(path, render(server, pki.ca_pem(), ADMIN_USER, pki.admin()).as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::pki::scratch::Scratch;
    use crate::pki::{ServingNames, load_or_create};

    #[test]
    fn the_file_is_private_and_holds_the_three_parts() {
        let scratch = Scratch::new();
        let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
        let pki = load_or_create(&scratch.path().join("pki"), &ServingNames::default(), now).unwrap();
        let path = scratch.path().join("kubeconfig");
        std::fs::write(&path, "an old one, open to all").unwrap();
        write_admin(&path, "https://[::1]:6443", &pki).unwrap();

        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        let value_of = |key: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": ")).unwrap();
            line.to_owned()
        };
        assert_eq!(value_of("server"), "\"https://[::1]:6443\"");
        assert_eq!(value_of("current-context"), "waypost");
        let decoded = |key: &str| String::from_utf8(STANDARD.decode(value_of(key)).unwrap()).unwrap();
        assert_eq!(decoded("certificate-authority-data"), pki.ca_pem());
        assert_eq!(decoded("client-certificate-data"), pki.admin().certificate_pem);
        assert_eq!(decoded("client-key-data"), pki.admin().key_pem);
    }

    #[test]
    fn hostile_text_stays_inside_its_quotes() {
        let identity = Identity { certificate_pem: String::new(), key_pem: String::new() };
        let text = render("https://a\"\nkind: Evil", "", "u: v", &identity);
        assert!(!text.lines().any(|line| line.starts_with("kind: Evil")));
        assert!(text.contains("user: \"u: v\""));
    }
}
