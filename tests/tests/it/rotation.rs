//! Keys and CAs are replaced while clients send requests: none of them fails, and what was given up is worthless afterwards.
//!
//! Clients have a copy of the kubeconfig from before: with one connection, with a connection for each request, as a `kubectl`, and with a token of a
//! ServiceAccount. That the server follows is seen from outside: by the keys that it publishes, its kubeconfig, the certificate that it shows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use client::http::{Client, Method};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testbed::net::eventually;
use testbed::session::text;
use testbed::{Home, Run, Server, binary, run};

/// What every authenticated user may read, and no other.
const KNOWN: &str = "/api";
const HERE: &str = "/api/v1/namespaces/default";

/// Runs `waypost certs …` on the data directory of a server.
fn certs(data: &Path, words: &str) -> Run {
    let mut command = Command::new(binary());
    command.env_remove("KUBECONFIG").arg("certs").args(words.split_whitespace()).arg("--data-dir").arg(data);
    run(&mut command, "")
}

/// The rows of `waypost certs list -o json`.
fn listed(data: &Path) -> Vec<Value> {
    serde_json::from_str(&certs(data, "list -o json").success()).expect("JSON")
}

/// The fingerprint in a row.
fn fingerprint(rows: &[Value], file: &str) -> String {
    let row = rows.iter().find(|row| row["file"] == file).unwrap_or_else(|| panic!("{file} is missing: {rows:?}"));
    row["sha256"].as_str().expect("a fingerprint").to_owned()
}

/// What an entry of a kubeconfig holds.
fn entry(kubeconfig: &Path, name: &str) -> String {
    let file = fs::read_to_string(kubeconfig).expect("a kubeconfig");
    let line = file.lines().find_map(|line| line.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")));
    line.unwrap_or_else(|| panic!("{name} is missing: {file}")).to_owned()
}

/// How many CAs a kubeconfig holds.
fn authorities(kubeconfig: &Path) -> usize {
    let pem = STANDARD.decode(entry(kubeconfig, "certificate-authority-data")).expect("base64");
    String::from_utf8(pem).expect("PEM").matches("BEGIN CERTIFICATE").count()
}

/// Writes a kubeconfig with these CAs and this user.
fn kubeconfig(path: PathBuf, server: &str, authority: &str, user: &Value) -> PathBuf {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    fs::write(&path, config.to_string()).expect("written");
    path
}

/// Sends one request, over its own connection: the code, or why there is none.
fn ask(kubeconfig: &Path, path: &str) -> Result<u16, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut client = Client::from_kubeconfig(kubeconfig).map_err(|error| error.to_string())?;
        let answer = client.json(Method::GET, path, None).await;
        answer.map(|(code, _)| code).map_err(|error| error.to_string())
    })
}

/// A server, and copies of credentials from before.
struct Bed {
    server: Server,
    dir: tempfile::TempDir,
}

impl Bed {
    fn start() -> Self {
        Self { server: Server::start(), dir: tempfile::TempDir::new().expect("a directory") }
    }

    fn certs(&self, words: &str) -> Run {
        certs(self.server.home(), words)
    }

    /// The administrator's kubeconfig as it is now, under another name.
    fn copy(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::copy(self.server.kubeconfig(), &path).expect("copied");
        path
    }

    /// A token of the account `default`.
    fn token(&self) -> String {
        let mut api = self.server.session();
        eventually("the account is there", || api.get(&format!("{HERE}/serviceaccounts/default")).code == 200);
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let made = api.post(&format!("{HERE}/serviceaccounts/default/token"), &request).success();
        text(&made, "/status/token").to_owned()
    }

    /// A kubeconfig with a token and the CAs of another kubeconfig.
    fn with_token(&self, name: &str, trusts: &Path, token: &str) -> PathBuf {
        let (server, ca) = (entry(trusts, "server"), entry(trusts, "certificate-authority-data"));
        kubeconfig(self.dir.path().join(name), server.trim_matches('"'), &ca, &json!({"token": token}))
    }

    /// The names of the keys that verify tokens.
    fn keys(&self) -> Vec<String> {
        let found = self.server.session().get("/openid/v1/jwks").success();
        let keys = found["keys"].as_array().expect("keys");
        keys.iter().map(|key| key["kid"].as_str().expect("a name").to_owned()).collect()
    }

    /// The fingerprint of the certificate that the server shows.
    fn shown(&self) -> String {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &self.server.address]);
        let shown = run(&mut command, "").out;
        let mut command = Command::new("openssl");
        let print = run(command.args(["x509", "-noout", "-fingerprint", "-sha256"]), &shown).success();
        print.trim().rsplit('=').next().expect("a fingerprint").replace(':', "").to_lowercase()
    }

    /// The CAs in a ConfigMap.
    fn published(&self, path: &str, key: &str) -> String {
        let map = self.server.session().get(path);
        map.body["data"][key].as_str().unwrap_or_default().to_owned()
    }

    /// Has clients with these kubeconfigs send requests while something is done: none may fail.
    fn under_load<T>(&self, kubeconfigs: &[&Path], work: impl FnOnce() -> T) -> T {
        let (over, count, failures) = (AtomicBool::new(false), AtomicUsize::new(0), Mutex::new(Vec::new()));
        let done = std::thread::scope(|scope| {
            for path in kubeconfigs {
                let each: [Asking<'_>; 3] =
                    [Box::new(move || ask(path, KNOWN)), one_connection(path), Box::new(move || self.kubectl(path))];
                for mut client in each {
                    let (over, count, failures) = (&over, &count, &failures);
                    scope.spawn(move || {
                        while !over.load(SeqCst) {
                            match client() {
                                Ok(200) => _ = count.fetch_add(1, SeqCst),
                                other => return failures.lock().push(format!("{}: {other:?}", path.display())),
                            }
                        }
                    });
                }
            }
            let enough = kubeconfigs.len() * 3 * 3;
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                eventually("there is load", || count.load(SeqCst) >= enough);
                let done = work();
                let now = count.load(SeqCst);
                eventually("there is load afterwards", || count.load(SeqCst) >= now + enough);
                done
            }));
            over.store(true, SeqCst);
            done
        });
        let failures = failures.into_inner();
        assert_eq!(failures, Vec::<String>::new(), "of {count:?} requests");
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn kubectl(&self, kubeconfig: &Path) -> Result<u16, String> {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(kubeconfig).arg("--cache-dir").arg(self.dir.path().join("cache"));
        let run = run(command.args(["get", "--raw", KNOWN]), "");
        if run.ok { Ok(200) } else { Err(run.err) }
    }
}

/// A client that sends one request each time.
type Asking<'a> = Box<dyn FnMut() -> Result<u16, String> + Send + 'a>;

/// Requests over one connection.
fn one_connection(kubeconfig: &Path) -> Asking<'static> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let mut client = Client::from_kubeconfig(kubeconfig).expect("a kubeconfig");
    Box::new(move || {
        let answer = runtime.block_on(client.json(Method::GET, KNOWN, None));
        answer.map(|(code, _)| code).map_err(|error| error.to_string())
    })
}

fn key_of(token: &str) -> String {
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().expect("a header")).expect("base64");
    let header: Value = serde_json::from_slice(&header).expect("JSON");
    header["kid"].as_str().expect("a name").to_owned()
}

#[test]
fn b05_the_key_of_tokens_rotates_under_load_and_the_old_one_ends_with_finish() {
    let bed = Bed::start();
    let (admin, old) = (bed.copy("admin"), bed.token());
    let before = bed.with_token("before", &admin, &old);
    let mut api = bed.server.session();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "kept", "annotations": {"kubernetes.io/service-account.name": "default"}},
    });
    let _ = api.post(&format!("{HERE}/secrets"), &secret).success();
    let mut kept = || text(&api.get(&format!("{HERE}/secrets/kept")).body, "/data/token").to_owned();
    eventually("the Secret has a token", || !kept().is_empty());
    let first = kept();
    assert_eq!(bed.keys(), [key_of(&old)]);

    bed.under_load(&[&admin, &before], || {
        let said = bed.certs("rotate signing").success();
        assert!(said.contains("waypost certs finish signing"), "{said}");
        eventually("both keys are published", || bed.keys().len() == 2);
        let new = bed.token();
        assert_eq!(bed.keys(), [key_of(&new), key_of(&old)]);
        assert_ne!(key_of(&new), key_of(&old));
        assert_eq!(ask(&bed.with_token("after", &admin, &new), KNOWN), Ok(200));
    });
    assert_eq!(kept(), first, "a token in a Secret is not changed while its key is accepted");

    let _ = bed.certs("finish signing").success();
    eventually("the token of the old key is refused", || ask(&before, KNOWN) == Ok(401));
    assert_eq!(ask(&bed.dir.path().join("after"), KNOWN), Ok(200));
    assert_eq!(bed.keys().len(), 1);
    eventually("the token in the Secret is signed anew", || kept() != first);
    let token = String::from_utf8(STANDARD.decode(kept()).expect("base64")).expect("a token");
    assert_eq!(ask(&bed.with_token("kept", &admin, &token), KNOWN), Ok(200));
    let again = bed.certs("finish signing").failure();
    assert!(again.contains("nothing was replaced"), "{again}");
}

#[test]
fn b05_what_the_server_shows_and_the_administrator_rotate_under_load() {
    let bed = Bed::start();
    let admin = bed.copy("admin");
    let (before, rows) = (bed.shown(), listed(bed.server.home()));
    assert_eq!(fingerprint(&rows, "server.crt"), before);
    bed.under_load(&[&admin], || {
        let _ = bed.certs("rotate serving").success();
        eventually("another certificate is shown", || bed.shown() != before);
        let certificate = entry(&admin, "client-certificate-data");
        let _ = bed.certs("rotate admin").success();
        let written = || entry(&bed.server.kubeconfig(), "client-certificate-data");
        eventually("the kubeconfig is written anew", || written() != certificate);
        assert_eq!(ask(&bed.server.kubeconfig(), "/api/v1/secrets"), Ok(200));
    });
    let after = listed(bed.server.home());
    assert_eq!(fingerprint(&after, "server.crt"), bed.shown());
    assert_eq!(fingerprint(&after, "ca.crt"), fingerprint(&rows, "ca.crt"));
    assert_ne!(fingerprint(&after, "agents.crt"), fingerprint(&rows, "agents.crt"));
}

#[test]
fn b05_the_ca_rotates_under_load_and_the_old_one_is_worthless_after_finish() {
    let bed = Bed::start();
    let (old, token) = (bed.copy("old"), bed.token());
    let account = bed.with_token("account", &old, &token);
    let _ = run(Command::new(binary()).args(["token", "create", "--data-dir"]).arg(bed.server.home()), "").success();
    let root = format!("{HERE}/configmaps/kube-root-ca.crt");
    let count = |pem: &str| pem.matches("BEGIN CERTIFICATE").count();
    bed.under_load(&[&old, &account], || {
        let _ = bed.certs("rotate ca").success();
        eventually("the kubeconfig has both CAs", || authorities(&bed.server.kubeconfig()) == 2);
        eventually("Pods get both CAs", || count(&bed.published(&root, "ca.crt")) == 2);
        let info = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
        eventually("machines that join get both CAs", || {
            let said = bed.published(info, "kubeconfig");
            rest::kubeconfig::ClusterInfo::parse(&said).is_ok_and(|info| count(&info.ca_pem) == 2)
        });
    });
    let again = bed.certs("rotate ca").failure();
    assert!(again.contains("waypost certs finish ca"), "{again}");
    let previous = listed(bed.server.home()).into_iter().find(|row| row["file"] == "ca-previous.crt").expect("a row");
    assert_eq!(previous["role"], "previous");

    // A client still uses an old certificate.
    assert_eq!(ask(&old, KNOWN), Ok(200));
    eventually("the server has noted it", || {
        let notes = fs::read_to_string(bed.server.home().join("pki/ca-clients.json")).unwrap_or_default();
        let notes: Value = serde_json::from_str(&notes).unwrap_or_default();
        let own = notes.as_array().and_then(|notes| notes.iter().find(|note| note["user"] == "waypost-admin"));
        own.is_some_and(|note| note["ca"] == previous["sha256"])
    });
    let named = bed.certs("finish ca").failure();
    assert!(named.contains("waypost-admin, at ") && named.contains("--force"), "{named}");

    let new = bed.copy("new");
    let account = bed.with_token("account", &new, &token);
    bed.under_load(&[&new, &account], || {
        eventually("nobody is left", || bed.certs("finish ca").ok);
        eventually("the kubeconfig has the new CA alone", || authorities(&bed.server.kubeconfig()) == 1);
        eventually("so have Pods", || count(&bed.published(&root, "ca.crt")) == 1);
    });
    let refused = ask(&old, KNOWN).expect_err("the old CA does not know the server");
    assert!(refused.contains("certificate"), "{refused}");
    // Neither does the server accept certificates of the old CA.
    let user = json!({
        "client-certificate-data": entry(&old, "client-certificate-data"),
        "client-key-data": entry(&old, "client-key-data"),
    });
    let server = entry(&new, "server");
    let ca = entry(&bed.server.kubeconfig(), "certificate-authority-data");
    let mixed = kubeconfig(bed.dir.path().join("mixed"), server.trim_matches('"'), &ca, &user);
    let refused = ask(&mixed, KNOWN);
    assert!(refused.is_err(), "{refused:?}");
    assert!(!bed.server.home().join("pki/ca-previous.key").exists());
    assert!(bed.certs("finish ca --force").failure().contains("nothing was replaced"));
}

#[test]
fn b05_keys_are_listed_and_rotated_without_a_server() {
    let home = tempfile::TempDir::new().expect("a directory");
    let data = home.path().join("data");
    let missing = certs(&data, "list").failure();
    assert!(missing.contains("--data-dir"), "{missing}");
    let mut server = Server::start_with(Home::Kept(data.clone()), &[]);
    assert!(server.terminate().success());
    let before = listed(&data);
    let files: Vec<&str> = before.iter().map(|row| row["file"].as_str().expect("a file")).collect();
    assert_eq!(files, ["ca.crt", "agent-ca.crt", "server.crt", "agents.crt", "admin.crt", "service-account.key"]);
    assert_eq!(before[0]["subject"], json!("CN=waypost-ca"));
    // Ten years, of which the second of its making may not be over yet.
    assert!([json!(3649), json!(3650)].contains(&before[0]["daysLeft"]), "{before:?}");
    let table = certs(&data, "list");
    assert!(table.out.contains(&fingerprint(&before, "ca.crt")) && table.err.is_empty(), "{table:?}");

    let old = home.path().join("old");
    fs::copy(data.join("kubeconfig"), &old).expect("copied");
    let _ = certs(&data, "rotate all").success();
    assert!(certs(&data, "finish all").failure().contains("no server has run"));
    let server = Server::start_with(Home::Kept(data.clone()), &[]);
    let (address, ca) = (format!("https://{}", server.address), entry(&old, "certificate-authority-data"));
    let user = json!({
        "client-certificate-data": entry(&old, "client-certificate-data"),
        "client-key-data": entry(&old, "client-key-data"),
    });
    let moved = kubeconfig(home.path().join("moved"), &address, &ca, &user);
    assert_eq!(ask(&moved, KNOWN), Ok(200), "who has the old CA and an old certificate gets in");
    assert_eq!(ask(&server.kubeconfig(), KNOWN), Ok(200));
    let _ = certs(&data, "finish all --force").success();
    eventually("the old certificate is refused", || ask(&moved, KNOWN).is_err());
    assert_eq!(ask(&server.kubeconfig(), KNOWN), Ok(200));
    assert_eq!(listed(&data).len(), 6);
}
