//! `waypost store backup|restore|check`: what an administrator does before and after a bad day.
//!
//! A server is filled and stopped, its store is backed up, restored elsewhere and served again: the same objects at the same
//! revisions, and allocation continues where it was. What cannot be done is rejected, with exit code 1 and the next step.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testbed::session::{ADDRESSES, SERVICES, Session, text};
use testbed::{Home, Run, Server, binary, run};

/// Runs `waypost store …` on a data directory.
fn store(verb: &str, data_dir: &Path, file: Option<&Path>) -> Run {
    let mut command = Command::new(binary());
    run(command.args(["store", verb, "--data-dir"]).arg(data_dir).args(file), "")
}

/// Everything the tools must keep, by path. A restored server has another CA, so what publishes it differs.
fn everything(api: &mut Session) -> Vec<Value> {
    let paths = [
        "/api/v1/services",
        ADDRESSES,
        "/api/v1/namespaces",
        "/api/v1/configmaps",
        "/apis/networking.k8s.io/v1/servicecidrs",
    ];
    let is_kept = |object: &Value| text(object, "/metadata/name") != "kube-root-ca.crt";
    paths.iter().flat_map(|path| api.items(path)).filter(is_kept).collect()
}

/// A server with a few Services, stopped; what it held.
fn filled(home: &Path) -> Vec<Value> {
    let mut server = Server::start_with(Home::Kept(home.to_owned()), &[]);
    let mut api = server.session();
    for number in 0..20 {
        let spec = json!({"type": "NodePort", "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]});
        api.create(&format!("s{number}"), spec);
    }
    api.create(
        "chosen",
        json!({"type": "NodePort", "clusterIP": "10.96.0.99", "ports": [{"port": 80, "nodePort": 30_066}]}),
    );
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "notes"}, "data": {"text": "kept"}});
    let _ = api.post("/api/v1/namespaces/default/configmaps", &map).success();
    let _ = api.delete(&format!("{SERVICES}/s7")).success();
    let held = everything(&mut api);
    assert!(server.terminate().success());
    held
}

#[test]
fn a_restored_server_has_the_same_objects_and_goes_on_allocating() {
    let dir = testbed::folder();
    let (old, new, file) = (dir.path().join("old"), dir.path().join("new"), dir.path().join("backup"));
    let held = filled(&old);
    let said = store("backup", &old, Some(&file)).success();
    assert!(said.contains("revision ") && said.contains("backup"), "{said}");
    let said = store("restore", &new, Some(&file)).success();
    assert!(said.contains("revision ") && said.contains("start the server on it"), "{said}");

    let server = Server::start_with(Home::Kept(new), &[]);
    let mut api = server.session();
    assert_eq!(everything(&mut api), held);
    let newest = held.iter().map(revision).max().expect("objects");
    let taken = api.refuse("twin", json!({"clusterIP": "10.96.0.99", "ports": [{"port": 80}]}));
    assert!(taken.contains("provided IP is already allocated"), "{taken}");
    let taken = api.refuse("twin", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_066}]}));
    assert!(taken.contains("provided port is already allocated"), "{taken}");
    for number in 0..20 {
        let spec = json!({"type": "NodePort", "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]});
        let made = api.create(&format!("t{number}"), spec);
        assert!(revision(&made) > newest);
        for key in ["clusterIPs", "ports"] {
            let clash = held.iter().find(|old| shares(&old["spec"], &made["spec"], key));
            assert_eq!(clash, None, "{made} has what another has");
        }
    }
}

fn revision(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().expect("a resourceVersion")
}

/// Whether two Services share an address or a node port.
fn shares(a: &Value, b: &Value, key: &str) -> bool {
    let values = |spec: &Value| -> Vec<Value> {
        let list = spec[key].as_array().cloned().unwrap_or_default();
        list.into_iter().map(|item| item.get("nodePort").cloned().unwrap_or(item)).collect()
    };
    let (a, b) = (values(a), values(b));
    a.iter().any(|value| b.contains(value))
}

#[test]
fn a_backup_replaces_an_older_one_and_only_its_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = testbed::folder();
    let (home, file) = (dir.path().join("home"), dir.path().join("backup"));
    filled(&home);
    let _ = store("backup", &home, Some(&file)).success();
    let first = std::fs::read(&file).expect("a backup");
    let _ = store("backup", &home, Some(&file)).success();
    assert_eq!(std::fs::read(&file).expect("a backup").len(), first.len());
    let mode = std::fs::metadata(&file).expect("a backup").permissions().mode();
    assert_eq!(mode & 0o077, 0, "Secrets are in it, and its mode is {mode:o}");
}

#[test]
fn a_store_in_use_is_neither_backed_up_nor_checked_nor_restored_over() {
    let server = Server::start();
    let dir = testbed::folder();
    let file = dir.path().join("backup");
    for verb in ["backup", "check"] {
        let refused = store(verb, server.home(), (verb == "backup").then_some(&file));
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains("is in use by another process"), "{refused:?}");
    }
    assert!(!file.exists(), "a refused backup leaves no file");
    let other = dir.path().join("other");
    filled(&other);
    let _ = store("backup", &other, Some(&file)).success();
    let refused = store("restore", server.home(), Some(&file));
    assert_eq!(refused.code, Some(1), "{refused:?}");
}

#[test]
fn a_restore_into_a_directory_with_something_in_it_is_refused() {
    let dir = testbed::folder();
    let (home, file) = (dir.path().join("home"), dir.path().join("backup"));
    let held = filled(&home);
    let _ = store("backup", &home, Some(&file)).success();
    let refused = store("restore", &home, Some(&file));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("is not empty; restore into a new directory"), "{refused:?}");
    let server = Server::start_with(Home::Kept(home), &[]);
    assert_eq!(everything(&mut server.session()), held, "nothing was touched");
}

#[test]
fn a_damaged_or_cut_backup_is_refused_and_leaves_nothing_that_starts() {
    let dir = testbed::folder();
    let (home, file) = (dir.path().join("home"), dir.path().join("backup"));
    filled(&home);
    let _ = store("backup", &home, Some(&file)).success();
    let whole = std::fs::read(&file).expect("a backup");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let cases: [(&str, &[u8]); 4] =
        [("flipped", &flipped), ("cut", &whole[..whole.len() - 5]), ("empty", &[]), ("other", b"no backup at all")];
    for (name, bytes) in cases {
        let (bad, target) = (dir.path().join(name), dir.path().join(format!("{name}-home")));
        std::fs::write(&bad, bytes).expect("written");
        let refused = store("restore", &target, Some(&bad));
        assert_eq!(refused.code, Some(1), "{name}: {refused:?}");
        assert!(refused.err.contains(name) && refused.err.contains("is not a complete backup"), "{name}: {refused:?}");
        // The next try, with a good file, is not in the way of the first.
        let _ = store("restore", &target, Some(&file)).success();
    }
    let missing = store("restore", &dir.path().join("x"), Some(&dir.path().join("nowhere")));
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.err.contains("nowhere"), "{missing:?}");
}

#[test]
fn check_says_what_is_there_and_exits_with_1_when_something_is_wrong() {
    let dir = testbed::folder();
    let home = dir.path().join("home");
    filled(&home);
    let said = store("check", &home, None).success();
    for part in ["revision ", "services/specs", "ipaddresses", "nodeports", "configmaps"] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    let services = said.lines().find(|line| line.ends_with("services/specs")).expect("a line");
    assert_eq!(services.split_whitespace().next(), Some("21"), "19 numbered, one chosen, kubernetes: {said}");

    let log = std::fs::read_dir(home.join("store")).expect("a store").map(|entry| entry.expect("a file").path());
    let log = log.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "wal")).expect("a log");
    let mut bytes = std::fs::read(&log).expect("a log");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, bytes).expect("written");
    let refused = store("check", &home, None);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.out.contains("problem: ") && refused.out.contains(".wal"), "{refused:?}");
    assert!(refused.err.contains("waypost store restore"), "it says what to do: {refused:?}");
}

#[test]
fn check_and_backup_of_what_is_no_store_are_refused_and_make_none() {
    let dir = testbed::folder();
    let nothing = dir.path().join("nothing");
    let refused = store("check", &nothing, None);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let refused = store("backup", &nothing, Some(&dir.path().join("backup")));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(!nothing.exists() && !dir.path().join("backup").exists(), "nothing was made");
    let usage = run(Command::new(binary()).args(["store", "backup"]), "");
    assert_eq!(usage.code, Some(2), "a file to write is needed: {usage:?}");
}
