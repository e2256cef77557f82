//! subPath mounts. These tests need root.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::*;
use crate::data_dir::AgentDir;

struct Stage {
    folder: tempfile::TempDir,
    dir: PodDir,
    pod: Value,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = AgentDir::new(folder.path()).pod("a-pod");
        for name in ["work", "conf"] {
            fs::create_dir_all(dir.volume(name)).expect("made");
        }
        let volumes = json!([{"name": "work", "emptyDir": {}}, {"name": "conf", "configMap": {"name": "c"}}]);
        Self { folder, dir, pod: json!({"spec": {"volumes": volumes}}) }
    }

    fn source(&self, volume: &str, sub_path: &str) -> io::Result<PathBuf> {
        let place = self.folder.path().join(format!("{volume}-place"));
        source(&self.pod, &self.dir, &json!({"name": volume}), sub_path, &place)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = kernel::mounts::detach_below(self.folder.path());
    }
}

#[test]
fn a_sub_path_with_a_symbolic_link_is_refused() {
    let stage = Stage::new();
    let secret = stage.folder.path().join("secret");
    fs::create_dir(&secret).expect("made");
    for (name, to) in [("out", secret.as_path()), ("in", Path::new("real"))] {
        symlink(to, stage.dir.volume("work").join(name)).expect("linked");
    }
    fs::create_dir(stage.dir.volume("work").join("real")).expect("made");
    for part in ["out", "out/new", "in"] {
        let error = stage.source("work", part).expect_err(part).to_string();
        let wanted = format!("subPath \"{part}\" of volume \"work\" contains a symbolic link");
        assert!(error.starts_with(&wanted), "{error}");
    }
    assert_eq!(fs::read_dir(&secret).expect("there").count(), 0);
    assert!(stage.source("work", "../secret").expect_err("refused").to_string().contains("relative path"));
}

#[test]
fn a_mounted_sub_path_is_unaffected_by_a_replaced_path() {
    let stage = Stage::new();
    let work = stage.dir.volume("work");
    fs::create_dir_all(work.join("a/b")).expect("made");
    fs::write(work.join("a/b/file"), "inside").expect("written");
    let place = stage.source("work", "a/b").expect("mounted; this test needs root");
    // TOCTOU: the Pod replaces the directory by a link to the host after the check.
    fs::rename(work.join("a"), work.join("old")).expect("renamed");
    symlink("/", work.join("a")).expect("linked");
    assert_eq!(fs::read_to_string(place.join("file")).expect("read"), "inside");
}

#[test]
fn a_sub_path_of_a_config_map_resolves_the_data_link() {
    let stage = Stage::new();
    let files = Payload::from([("deep/key".to_owned(), (b"value".to_vec(), 0o644))]);
    payload::write(&stage.dir.volume("conf"), &files, None).expect("written");
    let place = stage.source("conf", "deep/key").expect("mounted; this test needs root");
    assert_eq!(fs::read_to_string(place).expect("read"), "value");
    let missing = stage.source("conf", "nothing").expect_err("refused").to_string();
    assert!(missing.contains("No such file") && !stage.dir.volume("conf").join("nothing").exists(), "{missing}");
}

#[test]
fn volumes_of_objects_are_read_only() {
    let stage = Stage::new();
    let is = |mount: Value| is_read_only(&stage.pod, &mount);
    assert!(is(json!({"name": "conf"})) && is(json!({"name": "conf", "readOnly": false})));
    assert!(!is(json!({"name": "work"})) && is(json!({"name": "work", "readOnly": true})));
}
