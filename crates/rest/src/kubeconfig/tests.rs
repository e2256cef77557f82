//! Kubeconfigs as they are written.

use std::os::unix::fs::PermissionsExt as _;

use client::kubeconfig::Access;

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

#[test]
fn what_is_written_can_be_read() {
    let scratch = Scratch::new();
    let now = jiff::Timestamp::from_second(1_800_000_000).expect("a time");
    let pki = load_or_create(&scratch.path().join("pki"), &ServingNames::default(), now).expect("certificates");
    let path = scratch.path().join("kubeconfig");
    write_admin(&path, "https://[::1]:6443", &pki).expect("written");
    let access = Access::read(&path).expect("it can be read");
    assert_eq!((access.address(), access.prefix()), ("[::1]:6443", ""));
    assert_eq!(access.tls_server_name().as_deref(), Some("::1"));
    assert!(access.headers().expect("headers").is_empty(), "the certificate is the identity");

    // The same in files beside it, with paths relative to it.
    std::fs::write(scratch.path().join("admin.crt"), &pki.admin().certificate_pem).expect("written");
    std::fs::write(scratch.path().join("admin.key"), &pki.admin().key_pem).expect("written");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {cluster: k, user: u}\n\
                clusters:\n- name: k\n  cluster: {server: 'https://h', certificate-authority: pki/ca.crt, tls-server-name: other.example}\n\
                users:\n- name: u\n  user: {client-certificate: admin.crt, client-key: admin.key}\n";
    std::fs::write(&path, text).expect("written");
    let access = Access::read(&path).expect("read");
    assert_eq!(access.address(), "h:443");
    assert_eq!(access.tls_server_name().as_deref(), Some("other.example"));
}
