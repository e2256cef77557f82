//! Parts of volumes: what is mounted, and what is refused. These tests mount, and so need root.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;
use crate::home::Home;

struct Stage {
    folder: tempfile::TempDir,
    home: PodHome,
    pod: Value,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::new(folder.path()).pod("a-pod");
        for name in ["work", "conf"] {
            fs::create_dir_all(home.volume(name)).expect("made");
        }
        let volumes = json!([{"name": "work", "emptyDir": {}}, {"name": "conf", "configMap": {"name": "c"}}]);
        Self { folder, home, pod: json!({"spec": {"volumes": volumes}}) }
    }

    fn source(&self, volume: &str, sub_path: &str) -> io::Result<PathBuf> {
        let place = self.folder.path().join(format!("{volume}-place"));
        source(&self.pod, &self.home, &json!({"name": volume}), sub_path, &place)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = kernel::mounts::detach_below(self.folder.path());
    }
}

#[test]
fn a_part_with_a_link_is_refused_and_the_words_say_so() {
    let stage = Stage::new();
    let secret = stage.folder.path().join("secret");
    fs::create_dir(&secret).expect("made");
    for (name, to) in [("out", secret.as_path()), ("in", Path::new("real"))] {
        symlink(to, stage.home.volume("work").join(name)).expect("linked");
    }
    fs::create_dir(stage.home.volume("work").join("real")).expect("made");
    for part in ["out", "out/new", "in"] {
        let error = stage.source("work", part).expect_err(part).to_string();
        let wanted = format!("subPath \"{part}\" of volume \"work\" contains a symbolic link");
        assert!(error.starts_with(&wanted), "{error}");
    }
    assert_eq!(fs::read_dir(&secret).expect("there").count(), 0);
    assert!(stage.source("work", "../secret").expect_err("refused").to_string().contains("relative path"));
}

#[test]
fn a_part_is_mounted_and_stays_what_it_was_when_its_path_is_swapped() {
    let stage = Stage::new();
    let work = stage.home.volume("work");
    fs::create_dir_all(work.join("a/b")).expect("made");
    fs::write(work.join("a/b/file"), "inside").expect("written");
    let place = stage.source("work", "a/b").expect("mounted; this test needs root");
    // Between the check and the use by a runtime the Pod swaps the directory for a link to the machine.
    fs::rename(work.join("a"), work.join("old")).expect("renamed");
    symlink("/", work.join("a")).expect("linked");
    assert_eq!(fs::read_to_string(place.join("file")).expect("read"), "inside");
}

#[test]
fn a_file_of_an_object_is_found_behind_our_own_links() {
    let stage = Stage::new();
    let files = Payload::from([("deep/key".to_owned(), (b"value".to_vec(), 0o644))]);
    payload::write(&stage.home.volume("conf"), &files, None).expect("written");
    let place = stage.source("conf", "deep/key").expect("mounted; this test needs root");
    assert_eq!(fs::read_to_string(place).expect("read"), "value");
    let missing = stage.source("conf", "nothing").expect_err("refused").to_string();
    assert!(missing.contains("No such file") && !stage.home.volume("conf").join("nothing").exists(), "{missing}");
}

#[test]
fn volumes_of_objects_are_never_written_by_containers() {
    let stage = Stage::new();
    let is = |mount: Value| is_read_only(&stage.pod, &mount);
    assert!(is(json!({"name": "conf"})) && is(json!({"name": "conf", "readOnly": false})));
    assert!(!is(json!({"name": "work"})) && is(json!({"name": "work", "readOnly": true})));
}
