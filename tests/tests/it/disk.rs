//! The disk under the store: full, read-only, not ours, in use, torn, damaged.
//!
//! A small file system of its own is mounted for each test that fills it, and unmounted whatever happens. A full disk costs
//! writes and nothing else: they are refused with the next step, reads and watches go on, and the first write after there is
//! room again succeeds. A start that cannot succeed ends with exit code 1 and a sentence that names the file.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;
use testbed::session::{Answer, SERVICES, Session, Watch, service, text};
use testbed::{Home, Run, Server, binary, run, server_command};

/// A file system of a few MiB, gone when dropped.
struct SmallDisk {
    place: TempDir,
}

impl SmallDisk {
    fn mount(size: &str) -> Self {
        let place = testbed::folder();
        let mut command = Command::new("mount");
        let option = format!("size={size},mode=0755");
        let _ = run(command.args(["-t", "tmpfs", "-o", &option, "tmpfs"]).arg(place.path()), "").success();
        Self { place }
    }

    fn remount(&self, option: &str) {
        let mut command = Command::new("mount");
        let _ = run(command.args(["-o", &format!("remount,{option}")]).arg(self.place.path()), "").success();
    }

    fn path(&self) -> &Path {
        self.place.path()
    }

    fn home(&self) -> Home {
        Home::Kept(self.path().join("data"))
    }

    /// Takes all the room that is left; removing the file gives it back.
    fn fill(&self) -> PathBuf {
        let path = self.path().join("filler");
        let mut file = File::create(&path).expect("a file");
        let full = (0..10_000).find_map(|_| file.write_all(&[0; 4096]).err()).expect("the disk is small");
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, so that a server that a failed test left running does not keep it.
        let mut command = Command::new("umount");
        let unmounted = run(command.arg("--lazy").arg(self.place.path()), "");
        assert!(unmounted.ok || std::thread::panicking(), "{unmounted:?}");
    }
}

/// Creates Services until one is refused; answers the names that were acknowledged, and the refusal.
fn create_until_refused(api: &mut Session, prefix: &str) -> (Vec<String>, Answer) {
    let mut acknowledged = Vec::new();
    let note = "x".repeat(4000);
    for number in 0..10_000 {
        let name = format!("{prefix}{number}");
        let mut body = service(&name, json!({"type": "NodePort", "ports": [{"port": 80}]}));
        body["metadata"]["annotations"] = json!({"note": note});
        let answer = api.post(SERVICES, &body);
        if answer.code != 201 {
            return (acknowledged, answer);
        }
        acknowledged.push(name);
    }
    panic!("the disk never became full")
}

/// The error states what is wrong, that nothing happened, and what to do.
#[track_caller]
fn assert_says_full(answer: Answer) {
    let status = answer.body.clone();
    let message = answer.refused(503);
    for part in ["No space left on device", "nothing was changed", "make room on the disk of --data-dir"] {
        assert!(message.contains(part), "`{part}` is missing: {message}");
    }
    assert_eq!(text(&status, "/reason"), "ServiceUnavailable");
    assert_eq!(status["details"]["retryAfterSeconds"], json!(1), "{status}");
}

fn service_names(api: &mut Session) -> Vec<String> {
    let mut names = api.names(SERVICES);
    names.retain(|name| name != "kubernetes");
    names
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

/// The names that a watch adds, in order, up to and with `last`.
fn added_until(watch: &mut Watch<'_>, last: &str) -> Vec<String> {
    let mut names = Vec::new();
    watch.until(|kind, object| {
        assert_eq!(kind, "ADDED", "{object}");
        names.push(text(object, "/metadata/name").to_owned());
        names.last().is_some_and(|name| name == last)
    });
    names
}

#[test]
fn on_a_full_disk_writes_are_refused_and_reads_and_watches_go_on_until_there_is_room() {
    let disk = SmallDisk::mount("4m");
    let mut server = Server::start_with(disk.home(), &[]);
    let (mut api, watcher) = (server.session(), server.session());
    let mut watch = watcher.watch(SERVICES, "&resourceVersion=0");
    let filler = disk.fill();
    let (mut expected, refusal) = create_until_refused(&mut api, "before");
    assert_says_full(refusal);
    // Still full, for every verb.
    let large = json!({"metadata": {"annotations": {"note": "x".repeat(8000)}}});
    assert_says_full(api.merge(&format!("{SERVICES}/kubernetes"), &large));
    assert_says_full(create_until_refused(&mut api, "still").1);
    assert_eq!(service_names(&mut api), sorted(expected.clone()), "what was refused is not there");

    fs::remove_file(filler).expect("removed");
    api.create("after", json!({"ports": [{"port": 80}]}));
    expected.push("after".to_owned());
    let mut added = added_until(&mut watch, "after");
    assert_eq!(added.remove(0), "kubernetes");
    assert_eq!(added, expected, "a watch saw what was acknowledged, in order, and nothing else");

    server.kill();
    let log = server.whole_log();
    assert!(log.contains("cannot write the log") && log.contains("the log is writable again"), "{log}");
    let server = Server::start_with(disk.home(), &[]);
    assert_eq!(service_names(&mut server.session()), sorted(expected), "everything acknowledged, nothing else");
}

#[test]
fn a_store_that_filled_its_disk_goes_on_when_the_disk_grows() {
    let disk = SmallDisk::mount("1m");
    let mut server = Server::start_with(disk.home(), &[]);
    let mut api = server.session();
    let (mut expected, refusal) = create_until_refused(&mut api, "small");
    assert_says_full(refusal);
    disk.remount("size=4m");
    api.create("grown", json!({"type": "NodePort", "ports": [{"port": 80}]}));
    expected.push("grown".to_owned());
    // Deletes are writes, too.
    let _ = api.delete(&format!("{SERVICES}/{}", expected.remove(0))).success();
    server.kill();
    let server = Server::start_with(disk.home(), &[]);
    assert_eq!(service_names(&mut server.session()), sorted(expected));
}

#[test]
fn a_store_on_a_small_disk_keeps_itself_small() {
    let disk = SmallDisk::mount("64m");
    let mut server = Server::start_with(disk.home(), &[]);
    let mut api = server.session();
    let path = "/api/v1/namespaces/default/configmaps/large";
    // More than twice what fits: the log is cut again and again.
    for turn in 0..300 {
        let data = json!({"turn": turn.to_string(), "text": "x".repeat(500_000)});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": data});
        let answer = match turn {
            0 => api.post("/api/v1/namespaces/default/configmaps", &map),
            _ => api.put(path, &map),
        };
        if !matches!(answer.code, 200 | 201) {
            server.kill();
            panic!("turn {turn}: {}\n{}", text(&answer.body, "/message"), server.whole_log());
        }
    }
    server.kill();
    let server = Server::start_with(disk.home(), &[]);
    assert_eq!(text(&server.session().get(path).success(), "/data/turn"), "299");
}

#[test]
fn what_was_refused_for_want_of_room_claims_nothing() {
    let disk = SmallDisk::mount("4m");
    let server = Server::start_with(disk.home(), &[]);
    let mut api = server.session();
    let filler = disk.fill();
    let _ = create_until_refused(&mut api, "s");
    let wanted = json!({"type": "NodePort", "clusterIP": "10.96.0.42", "ports": [{"port": 80, "nodePort": 30_042}]});
    let mut body = service("wanted", wanted.clone());
    body["metadata"]["annotations"] = json!({"note": "x".repeat(8000)});
    assert_says_full(api.post(SERVICES, &body));
    fs::remove_file(filler).expect("removed");
    let made = api.create("another", wanted);
    assert_eq!(text(&made, "/spec/clusterIP"), "10.96.0.42");
}

/// A start that ends with exit code 1 and prints all of these.
#[track_caller]
fn assert_refused(refused: &Run, says: &[&str]) {
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for part in says {
        assert!(refused.err.contains(part), "`{part}` is missing: {refused:?}");
    }
}

fn start_refused(home: &Path) -> Run {
    Server::start_refused(server_command(home, &[]))
}

#[test]
fn a_start_on_a_full_disk_fails_with_the_place_and_succeeds_when_there_is_room() {
    let disk = SmallDisk::mount("1m");
    let filler = disk.fill();
    let data = disk.path().join("data");
    assert_refused(&start_refused(&data), &["No space left on device", &data.display().to_string()]);
    fs::remove_file(filler).expect("removed");
    let mut server = Server::start_with(disk.home(), &[]);
    server.session().create("web", json!({"ports": [{"port": 80}]}));
    server.kill();
    let filler = disk.fill();
    assert_refused(&start_refused(&data), &["No space left on device", &data.display().to_string()]);
    fs::remove_file(filler).expect("removed");
    let server = Server::start_with(disk.home(), &[]);
    assert_eq!(service_names(&mut server.session()), ["web"]);
}

#[test]
fn a_start_on_a_read_only_disk_fails_and_says_so() {
    let disk = SmallDisk::mount("1m");
    let data = disk.path().join("data");
    drop(Server::start_with(disk.home(), &[]));
    disk.remount("ro");
    assert_refused(&start_refused(&data), &["Read-only file system", &data.display().to_string()]);
    assert_refused(&start_refused(&disk.path().join("new")), &["Read-only file system", "/new", "--data-dir"]);
}

#[test]
fn a_start_without_permission_fails_and_says_what_to_do() {
    let dir = testbed::folder();
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(dir.path(), open).expect("opened");
    // A copy, because other users may not be able to access the place where it was built. Made by another process: a file
    // that this one has open for writing cannot be executed, and its children have it open until they exec another program.
    let program = dir.path().join("waypost");
    let _ = run(Command::new("cp").arg(binary()).arg(&program), "").success();
    let as_nobody = |data: &Path| {
        let mut command = Command::new(&program);
        command
            .args(["server", "--log-json", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data)
            .uid(65_534)
            .gid(65_534);
        command.stderr(Stdio::piped());
        Server::start_refused(command)
    };
    let new = dir.path().join("new");
    assert_refused(&as_nobody(&new), &["Permission denied", &new.display().to_string(), "--data-dir"]);
    let ours = dir.path().join("ours");
    drop(Server::start_with(Home::Kept(ours.clone()), &[]));
    assert_refused(&as_nobody(&ours), &["Permission denied", &ours.display().to_string()]);
}

#[test]
fn a_data_directory_that_is_no_directory_is_named() {
    let dir = testbed::folder();
    let file = dir.path().join("file");
    fs::write(&file, "a file").expect("written");
    assert_refused(&start_refused(&file), &[&file.display().to_string(), "--data-dir"]);
    assert_refused(
        &start_refused(&file.join("below")),
        &["Not a directory", &file.display().to_string(), "--data-dir"],
    );
}

#[test]
fn a_second_server_on_the_same_directory_is_refused_and_does_not_disturb_the_first() {
    let server = Server::start();
    let before = fs::read(server.kubeconfig()).expect("a kubeconfig");
    assert_refused(
        &start_refused(server.home()),
        &[&server.home().display().to_string(), "is in use by another process"],
    );
    assert_eq!(fs::read(server.kubeconfig()).expect("a kubeconfig"), before);
    server.session().create("web", json!({"ports": [{"port": 80}]}));
}

/// A stopped server with Services `s0` to `s9`, each its own batch; and the file of its log.
fn stopped() -> (TempDir, PathBuf) {
    let dir = testbed::folder();
    let mut server = Server::start_with(Home::Kept(dir.path().to_owned()), &[]);
    let mut api = server.session();
    wait_for_controllers(&api);
    for number in 0..10 {
        api.create(&format!("s{number}"), json!({"ports": [{"port": 80}]}));
    }
    assert!(server.terminate().success());
    let files = fs::read_dir(dir.path().join("store")).expect("a store").map(|entry| entry.expect("a file").path());
    let log =
        files.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "wal")).expect("a log");
    (dir, log)
}

/// Waits until the controllers have created what every namespace has: they write nothing after the objects of the test then.
fn wait_for_controllers(api: &Session) {
    for (path, name) in [("/api/v1/serviceaccounts", "default"), ("/api/v1/configmaps", "kube-root-ca.crt")] {
        let mut namespaces = BTreeSet::new();
        let _ = api.watch(path, "").until(|_, object| {
            if text(object, "/metadata/name") == name {
                namespaces.insert(text(object, "/metadata/namespace").to_owned());
            }
            namespaces.len() == 4
        });
    }
}

#[test]
fn a_log_that_is_damaged_in_the_middle_is_not_served() {
    let (dir, log) = stopped();
    let whole = fs::read(&log).expect("a log");
    for place in [30, whole.len() / 3, whole.len() / 2] {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x10;
        fs::write(&log, &bytes).expect("written");
        assert_refused(
            &start_refused(dir.path()),
            &[&log.display().to_string(), "damaged at byte", "waypost store restore"],
        );
        assert_eq!(fs::read(&log).expect("a log"), bytes, "what may be rescued is not touched");
    }
    fs::write(&log, whole).expect("written");
    let server = Server::start_with(Home::Kept(dir.path().to_owned()), &[]);
    assert_eq!(service_names(&mut server.session()).len(), 10);
}

#[test]
fn a_torn_end_of_the_log_is_cut_off_and_the_server_starts() {
    let (dir, log) = stopped();
    let mut file = OpenOptions::new().append(true).open(&log).expect("a log");
    file.write_all(b"half of a write that nobody was told about").expect("written");
    let mut server = Server::start_with(Home::Kept(dir.path().to_owned()), &[]);
    assert_eq!(service_names(&mut server.session()).len(), 10, "nothing acknowledged is lost");
    server.kill();
    assert!(server.whole_log().contains("torn"), "it says so");

    let (dir, log) = stopped();
    let length = fs::metadata(&log).expect("a log").len();
    let file = OpenOptions::new().write(true).open(&log).expect("a log");
    file.set_len(length - 3).expect("cut");
    let server = Server::start_with(Home::Kept(dir.path().to_owned()), &[]);
    let mut api = server.session();
    assert_eq!(service_names(&mut api).len(), 9, "the batch that was torn is gone as a whole");
    api.create("s9", json!({"ports": [{"port": 80}]}));
}

#[test]
fn a_store_of_a_newer_program_or_without_its_format_is_not_touched() {
    let (dir, _) = stopped();
    let format = dir.path().join("store/FORMAT");
    fs::write(&format, "waypost-store 99\n").expect("written");
    assert_refused(&start_refused(dir.path()), &["format 99", "use the newer version"]);
    fs::remove_file(&format).expect("removed");
    assert_refused(&start_refused(dir.path()), &[&format.display().to_string(), "missing"]);
}
