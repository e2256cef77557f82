//! Kubeconfigs as they are read.

use super::*;
use tempfile::TempDir;

/// A kubeconfig with these entries (flow mappings) for its cluster and its user.
fn read_with(scratch: &TempDir, cluster: &str, user: &str) -> Result<Access, String> {
    let path = scratch.path().join("config");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\npreferences: {{}}\n\
         contexts:\n- name: other\n  context: {{cluster: none, user: none}}\n- name: c\n  context: {{cluster: k, user: u}}\n\
         clusters:\n- name: k\n  cluster: {{{cluster}}}\nusers:\n- name: u\n  user: {{{user}}}\n"
    );
    std::fs::write(&path, text).expect("written");
    Access::read(&path).map_err(|error| error.to_string())
}

/// The headers that identify the client, as text.
fn headers(access: &Access) -> Vec<String> {
    let headers = access.headers().expect("headers");
    headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("text"))).collect()
}

const PLAIN: &str = "server: 'http://h:1'";

#[test]
fn servers_have_ports_and_prefixes() {
    let scratch = tempfile::tempdir().expect("a directory");
    for (server, address, prefix) in [
        ("http://h", "h:80", ""),
        ("http://h:8001/", "h:8001", ""),
        ("http://10.0.0.1:8001/k8s/clusters/x/", "10.0.0.1:8001", "/k8s/clusters/x"),
        ("http://[fd00::1]:1", "[fd00::1]:1", ""),
    ] {
        let access = read_with(&scratch, &format!("server: '{server}'"), "").expect(server);
        assert_eq!((access.address.as_str(), access.prefix.as_str()), (address, prefix));
        assert!(access.tls.is_none());
    }
    for server in ["h:6443", "ftp://h", "https://", "", "/x"] {
        let why = read_with(&scratch, &format!("server: '{server}'"), "").expect_err(server);
        assert!(why.contains("is no URL of the form"), "{why}");
    }
}

#[test]
fn users_are_who_the_file_says() {
    let scratch = tempfile::tempdir().expect("a directory");
    let access = read_with(&scratch, PLAIN, "token: ' t1 '").expect("read");
    assert_eq!(headers(&access), ["authorization: Bearer t1"]);
    let access = read_with(&scratch, PLAIN, "token: t, as: eve, as-uid: '7', as-groups: [a, b]").expect("read");
    let wanted = ["authorization: Bearer t", "impersonate-user: eve", "impersonate-uid: 7"];
    assert_eq!(headers(&access)[..3], wanted);
    assert_eq!(headers(&access)[3..], ["impersonate-group: a", "impersonate-group: b"]);

    let file = scratch.path().join("token");
    std::fs::write(&file, "first\n").expect("written");
    let access = read_with(&scratch, PLAIN, "token: t, tokenFile: token").expect("read");
    assert_eq!(headers(&access), ["authorization: Bearer first"]);
    std::fs::write(&file, "second\n").expect("written");
    assert_eq!(headers(&access), ["authorization: Bearer second"], "tokens change");
    std::fs::remove_file(&file).expect("removed");
    assert!(access.headers().is_err());
}

#[test]
fn what_we_cannot_do_is_refused_by_name() {
    let scratch = tempfile::tempdir().expect("a directory");
    for (cluster, user, why) in [
        (PLAIN, "exec: {command: aws, apiVersion: v1}", "exec `aws`: credentials from a program are not supported"),
        (PLAIN, "auth-provider: {name: gcp}", "auth-provider `gcp`: authentication providers"),
        (PLAIN, "username: a, password: b", "username: passwords are not supported"),
        ("server: 'http://h', proxy-url: 'http://p'", "", "proxy-url: "),
        ("server: 'https://h', certificate-authority: missing.crt", "", "missing.crt: No such file"),
        ("server: 'https://h', certificate-authority-data: '!'", "", "certificate-authority-data: "),
        ("server: 'https://h', certificate-authority-data: 'YQ=='", "", "there is no certificate in it"),
        ("server: 'https://h', insecure-skip-tls-verify: true, certificate-authority-data: 'YQ=='", "", "both be had"),
        ("server: 'https://h', insecure-skip-tls-verify: true", "client-certificate-data: 'YQ=='", "one is missing"),
        (PLAIN, "token: \"a\\nb: c\"", "characters that no header may have"),
    ] {
        let refused = read_with(&scratch, cluster, user).expect_err(why);
        assert!(refused.starts_with("kubeconfig ") && refused.contains(why), "{refused}");
    }
    assert!(read_with(&scratch, "server: 'https://h', insecure-skip-tls-verify: true", "").is_ok());
    let path = scratch.path().join("config");
    for (text, why) in [
        ("clusters: []", "it has no current-context"),
        ("current-context: x\ncontexts: []", "`x` is not among its contexts"),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: nowhere}}]",
            "`nowhere` is not among its clusters",
        ),
        ("[", "kubeconfig "),
    ] {
        std::fs::write(&path, text).expect("written");
        let refused = Access::read(&path).expect_err(why).to_string();
        assert!(refused.contains(why), "{refused}");
    }
}
