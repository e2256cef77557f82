//! Encryption at rest: no value of a Secret in any file, keys that change under load, and the error when a key is missing.
//!
//! The key file is beside the data directory and is replaced as an editor or a mount does it: written elsewhere, then renamed. The
//! metrics of a server show that it has accepted a change and rewritten its files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::net::eventually;
use testbed::session::{Session, text};
use testbed::wire::Wire;
use testbed::{Home, Run, Server, binary, run, server_command};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A value that is nowhere else.
const VALUE: &str = "correct-horse-battery-staple-of-this-test";

/// A data directory, a file of keys, and room for backups.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: testbed::folder() }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("encryption.yaml")
    }

    /// Writes the configuration: `identity`, or names of keys, in the order of providers.
    fn configure(&self, providers: &[&str]) {
        let next = self.dir.path().join("next.yaml");
        fs::write(&next, configuration(providers)).expect("written");
        fs::set_permissions(&next, fs::Permissions::from_mode(0o600)).expect("changed");
        // Keys are for the API server alone.
        std::os::unix::fs::chown(&next, Some(testbed::SERVER_USER), None).expect("given");
        fs::rename(next, self.file()).expect("renamed");
    }

    /// Starts a server that follows the configuration.
    fn start(&self) -> Server {
        let file = self.file();
        let arguments = ["--encryption-provider-config", file.to_str().expect("a path")];
        Server::start_with(Home::Kept(self.data()), &arguments)
    }

    /// Starts one that must not start; returns its output.
    fn refused(&self) -> Run {
        let file = self.file();
        let arguments = ["--encryption-provider-config", file.to_str().expect("a path")];
        Server::start_refused(server_command(&self.data(), &arguments))
    }

    /// Runs `waypost store …` on a data directory, with the keys or without.
    fn store(&self, verb: &str, data: &Path, keys: bool, file: Option<&Path>) -> Run {
        let mut command = Command::new(binary());
        command.args(["store", verb, "--data-dir"]).arg(data);
        if keys {
            command.arg("--encryption-provider-config").arg(self.file());
        }
        run(command.args(file), "")
    }
}

/// An EncryptionConfiguration for Secrets.
fn configuration(providers: &[&str]) -> String {
    let provider = |name: &&str| match *name {
        "identity" => json!({"identity": {}}),
        name => {
            // A secret of 32 bytes that belongs to the name.
            let secret = STANDARD.encode(name.repeat(32).split_at(32).0);
            json!({"aesgcm": {"keys": [{"name": name, "secret": secret}]}})
        }
    };
    let providers: Vec<Value> = providers.iter().map(provider).collect();
    let resources = json!([{"resources": ["secrets"], "providers": providers}]);
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": resources})
        .to_string()
}

fn secret(name: &str, value: &str) -> Value {
    let data = json!({"password": STANDARD.encode(value)});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data})
}

fn create(api: &mut Session, name: &str) {
    let _ = api.post(SECRETS, &secret(name, VALUE)).success();
}

fn value_of(api: &mut Session, name: &str) -> String {
    let found = api.get(&format!("{SECRETS}/{name}")).success();
    let value = STANDARD.decode(text(&found, "/data/password")).expect("base64");
    String::from_utf8(value).expect("text")
}

/// Every file below a folder that contains the value, as it is or in base64.
fn files_with_value(folder: &Path) -> Vec<PathBuf> {
    // Without its end, whose encoding depends on what follows the value.
    let encoded = STANDARD.encode(VALUE.split_at(VALUE.len() / 3 * 3).0);
    let holds = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    let mut out = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            out.extend(files_with_value(&path));
        } else if let Ok(bytes) = fs::read(&path)
            && (holds(&bytes, VALUE.as_bytes()) || holds(&bytes, encoded.as_bytes()))
        {
            out.push(path);
        }
    }
    out
}

/// A number on the page of metrics.
fn metric(wire: &mut Wire, name: &str) -> f64 {
    let page = wire.ask("GET", "/metrics", &[], b"").text();
    let line = page.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("{name} is missing: {page}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

/// Waits until the files were rewritten so many times, and nothing is left to do.
#[track_caller]
fn until_rewritten(server: &Server, times: f64) {
    let mut wire = Wire::admin(server);
    eventually("the files are rewritten", || {
        metric(&mut wire, "waypost_store_reencryptions_total") >= times
            && metric(&mut wire, "waypost_store_reencrypting") == 0.0
    });
}

/// Waits until so many changes of the configuration had this end.
#[track_caller]
fn until_reloads(server: &Server, status: &str, times: f64) {
    let mut wire = Wire::admin(server);
    let name = format!("apiserver_encryption_config_controller_automatic_reloads_total{{status=\"{status}\"}}");
    eventually("the change is noticed", || metric(&mut wire, &name) >= times);
}

#[test]
fn b05_no_value_of_a_secret_is_found_in_the_data_directory_or_a_backup() {
    let place = Place::new();
    place.configure(&["one"]);
    let mut server = place.start();
    let mut api = server.session();
    for number in 0..20 {
        create(&mut api, &format!("s{number}"));
    }
    let _ = api.put(&format!("{SECRETS}/s3"), &secret("s3", &format!("{VALUE}, changed"))).success();
    let _ = api.delete(&format!("{SECRETS}/s4")).success();
    assert_eq!(files_with_value(&place.data()), Vec::<PathBuf>::new());
    server.kill();
    assert_eq!(files_with_value(&place.data()), Vec::<PathBuf>::new());

    let backup = place.dir.path().join("backup");
    let _ = place.store("backup", &place.data(), true, Some(&backup)).success();
    assert_eq!(files_with_value(place.dir.path()), Vec::<PathBuf>::new());
    let restored = place.dir.path().join("restored");
    let refused = place.store("restore", &restored, false, Some(&backup));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("key \"one\"") && refused.err.contains("secrets/default/s"), "{refused:?}");
    let _ = place.store("restore", &restored, true, Some(&backup)).success();
    assert_eq!(files_with_value(place.dir.path()), Vec::<PathBuf>::new());

    let file = place.file();
    let arguments = ["--encryption-provider-config", file.to_str().expect("a path")];
    let server = Server::start_with(Home::Kept(restored), &arguments);
    let mut api = server.session();
    assert_eq!(value_of(&mut api, "s0"), VALUE);
    assert_eq!(value_of(&mut api, "s3"), format!("{VALUE}, changed"));
    assert_eq!(api.names(SECRETS).len(), 19);
}

#[test]
fn b05_turning_encryption_on_leaves_no_plain_value_behind() {
    let place = Place::new();
    let mut server = Server::start_with(Home::Kept(place.data()), &[]);
    create(&mut server.session(), "old");
    assert!(server.terminate().success());
    assert_eq!(files_with_value(&place.data()).len(), 1, "this is what encryption is for");
    let said = place.store("check", &place.data(), false, None).success();
    assert!(said.contains("encryption: no value is encrypted"), "{said}");

    place.configure(&["one"]);
    let refused = place.refused();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("is not encrypted") && refused.err.contains("identity"), "{refused:?}");

    place.configure(&["one", "identity"]);
    let mut server = place.start();
    until_rewritten(&server, 1.0);
    assert_eq!(files_with_value(&place.data()), Vec::<PathBuf>::new());
    let mut api = server.session();
    assert_eq!(value_of(&mut api, "old"), VALUE);
    create(&mut api, "new");
    // Nothing plain is left, so the way back can be closed while the server runs.
    place.configure(&["one"]);
    until_reloads(&server, "success", 1.0);
    assert!(server.terminate().success());
    assert_eq!(files_with_value(&place.data()), Vec::<PathBuf>::new());
    let said = place.store("check", &place.data(), true, None).success();
    let line = said.lines().find(|line| line.starts_with("encryption: secrets: ")).expect("a line");
    assert!(line.contains("values with key \"one\" (id ") && !line.contains("plain"), "{said}");
    assert!(
        said.lines().any(|line| line.starts_with("encryption: namespaces: ") && line.ends_with(" values plain")),
        "{said}"
    );
}

/// Changes and reads Secrets until stopped; returns how many requests there were.
fn load(server: &Server, name: &str, over: &AtomicBool) -> u64 {
    let mut api = server.session();
    create(&mut api, name);
    let mut requests = 1;
    while !over.load(SeqCst) {
        let value = format!("{VALUE} {requests}");
        let _ = api.put(&format!("{SECRETS}/{name}"), &secret(name, &value)).success();
        assert_eq!(value_of(&mut api, name), value);
        requests += 2;
    }
    requests
}

#[test]
fn b05_keys_rotate_under_load_without_a_failed_request() {
    let place = Place::new();
    place.configure(&["one"]);
    let mut server = place.start();
    let (over, requests) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (server, over, requests) = (&server, &over, &requests);
            scope.spawn(move || {
                // Whatever ends this thread ends the test; the others must not go on for ever.
                let made = load(server, &format!("worker{worker}"), over);
                requests.fetch_add(made, SeqCst);
            });
        }
        let rotated = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for (times, (old, new)) in [(1.0, ("one", "two")), (2.0, ("two", "three"))] {
                place.configure(&[new, old]);
                until_rewritten(&server, times);
                place.configure(&[new]);
                until_reloads(&server, "success", 2.0 * times);
            }
        }));
        over.store(true, SeqCst);
        if let Err(panic) = rotated {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(requests.load(SeqCst) > 100, "there was load: {requests:?}");
    server.kill();
    assert_eq!(files_with_value(&place.data()), Vec::<PathBuf>::new());
    let said = place.store("check", &place.data(), true, None).success();
    let line = said.lines().find(|line| line.starts_with("encryption: secrets: ")).expect("a line");
    assert!(line.contains("key \"three\"") && !line.contains("two") && !line.contains("one"), "{said}");
    let server = place.start();
    for worker in 0..4 {
        assert!(value_of(&mut server.session(), &format!("worker{worker}")).starts_with(VALUE));
    }
}

#[test]
fn b05_a_key_that_is_in_use_cannot_be_taken_away() {
    let place = Place::new();
    place.configure(&["one"]);
    let mut server = place.start();
    let mut api = server.session();
    create(&mut api, "kept");
    place.configure(&["two"]);
    until_reloads(&server, "failure", 1.0);
    create(&mut api, "after");
    fs::write(place.file(), "kind: Pod").expect("written");
    until_reloads(&server, "failure", 2.0);
    server.kill();
    let log = server.whole_log();
    assert!(
        log.contains("refused a change of the encryption configuration") && log.contains("is still in use"),
        "{log}"
    );
    assert!(log.contains("no kind"), "{log}");

    // With the new key alone the server does not start, and reports which key it needs and for what.
    place.configure(&["two"]);
    let refused = place.refused();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for part in ["secrets/default/", "key \\\"one\\\"", "not in the encryption configuration"] {
        assert!(refused.err.contains(part) || refused.err.contains(&part.replace('\\', "")), "{part}: {refused:?}");
    }
    for keys in [true, false] {
        let checked = place.store("check", &place.data(), keys, None);
        assert_eq!(checked.code, Some(1), "{checked:?}");
        assert!(checked.out.contains("problem: ") && checked.out.contains("key \"one\""), "{checked:?}");
        assert!(checked.err.contains("--encryption-provider-config"), "{checked:?}");
    }
    let refused = place.store("backup", &place.data(), false, Some(&place.dir.path().join("backup")));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    place.configure(&["two", "one"]);
    let server = place.start();
    assert_eq!(value_of(&mut server.session(), "after"), VALUE);
}

#[test]
fn b05_files_of_keys_that_protect_nothing_are_refused() {
    let place = Place::new();
    let says = |run: &Run, parts: &[&str]| {
        assert_eq!(run.code, Some(1), "{run:?}");
        for part in parts {
            assert!(run.err.contains(part), "{part}: {run:?}");
        }
    };
    says(&place.refused(), &["--encryption-provider-config", "encryption.yaml", "No such file"]);
    place.configure(&["one"]);
    fs::set_permissions(place.file(), fs::Permissions::from_mode(0o644)).expect("changed");
    says(&place.refused(), &["mode 0644", "chmod 600"]);
    place.configure(&["one"]);
    fs::create_dir_all(place.data()).expect("made");
    let inside = place.data().join("encryption.yaml");
    fs::rename(place.file(), &inside).expect("moved");
    let arguments = ["--encryption-provider-config", inside.to_str().expect("a path")];
    says(
        &Server::start_refused(server_command(&place.data(), &arguments)),
        &["is in the data directory", "move it out"],
    );
    place.configure(&["one"]);
    let text = fs::read_to_string(place.file()).expect("a file").replace("aesgcm", "kms");
    fs::write(place.file(), text).expect("written");
    says(&place.refused(), &["provider kms is not supported; use aesgcm"]);
}
