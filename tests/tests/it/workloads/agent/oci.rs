//! Containers from images: imported, run by crun, apart from the machine and from each other.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testbed::net::eventually;

use super::machine::{Machine, container};

/// A root with one static program, from source: it prints its identity, or the result of `cat FILE` or `look
/// PATH…`.
pub(super) fn root(folder: &Path) {
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        #include <dirent.h>
        #include <sys/stat.h>
        static void wait_for_ever(void) {
            printf("that is all\n");
            fflush(stdout);
            for (;;) pause();
        }
        static void cat(const char *path) {
            char line[4096];
            FILE *f = fopen(path, "r");
            while (f && fgets(line, sizeof line, f)) fputs(line, stdout);
            wait_for_ever();
        }
        static void look(char **paths) {
            struct stat s;
            for (; *paths; paths++) printf("%s %d\n", *paths, stat(*paths, &s) == 0);
            int many = 0;
            DIR *d = opendir("/proc");
            for (struct dirent *e; d && (e = readdir(d));) many += e->d_name[0] >= '0' && e->d_name[0] <= '9';
            printf("processes %d\n", many);
            wait_for_ever();
        }
        int main(int argc, char **argv) {
            if (argc > 1 && !strcmp(argv[1], "true")) return 0;
            if (argc > 2 && !strcmp(argv[1], "cat")) cat(argv[2]);
            if (argc > 2 && !strcmp(argv[1], "look")) look(argv + 2);
            struct stat s;
            char name[64] = "";
            gethostname(name, 63);
            printf("pid=%d uid=%d host=%s args=%d usr=%d env=%s\n", getpid(), getuid(), name, argc, stat("/usr", &s) == 0,
                   getenv("COLOUR") ? getenv("COLOUR") : "none");
            fflush(stdout);
            FILE *f = fopen("/own", "w");
            printf("write=%d\n", f != NULL);
            fflush(stdout);
            for (;;) pause();
        }"#;
    let file = folder.join("tool.c");
    std::fs::write(&file, source).expect("written");
    std::fs::create_dir_all(folder.join("root/bin")).expect("made");
    for name in ["proc", "dev", "sys", "etc"] {
        std::fs::create_dir_all(folder.join("root").join(name)).expect("made");
    }
    let mut command = Command::new("musl-gcc");
    command.args(["-static", "-o"]).arg(folder.join("root/bin/tool")).arg(&file);
    let _ = testbed::run(&mut command, "").success();
}

pub(super) fn import(machine: &Machine, from: &Path, name: &str) {
    let mut command = Command::new(testbed::binary());
    command.args(["image", "import", "--data-dir"]).arg(machine.data_dir()).arg(from).arg(name);
    let _ = testbed::run(&mut command, "").success();
}

/// A docker archive of a root, with one layer and a configuration.
fn archive(folder: &Path) -> std::path::PathBuf {
    let config =
        json!({"os": "linux", "config": {"Entrypoint": ["/bin/tool"], "Env": ["COLOUR=green"], "User": "1000"}});
    std::fs::write(folder.join("config.json"), config.to_string()).expect("written");
    let manifest = json!([{"Config": "config.json", "RepoTags": ["x"], "Layers": ["layer.tar"]}]);
    std::fs::write(folder.join("manifest.json"), manifest.to_string()).expect("written");
    let tar = |words: &[&str]| {
        let mut command = Command::new("tar");
        command.current_dir(folder).args(words);
        let _ = testbed::run(&mut command, "").success();
    };
    tar(&["-C", "root", "-cf", "layer.tar", "."]);
    tar(&["-cf", "image.tar", "config.json", "manifest.json", "layer.tar"]);
    folder.join("image.tar")
}

/// An OCI layout of a root, as an archive: two layers, the second of which takes a file away; the digests are real.
fn layout(folder: &Path) -> std::path::PathBuf {
    let place = folder.join("layout");
    let blobs = place.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).expect("made");
    let run = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.current_dir(folder).args(&words[1..]);
        testbed::run(&mut command, "").success()
    };
    let keep = |bytes: &[u8], kind: &str| {
        std::fs::write(folder.join("blob"), bytes).expect("written");
        let digest = run(&["sha256sum", "blob"]).split(' ').next().expect("a digest").to_owned();
        std::fs::rename(folder.join("blob"), blobs.join(&digest)).expect("moved");
        json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": format!("sha256:{digest}"), "size": bytes.len()})
    };
    std::fs::write(folder.join("root/old"), "old").expect("written");
    run(&["tar", "-C", "root", "-czf", "lower.tgz", "."]);
    std::fs::create_dir_all(folder.join("change")).expect("made");
    std::fs::write(folder.join("change/.wh.old"), "").expect("written");
    std::fs::write(folder.join("change/new"), "new").expect("written");
    run(&["tar", "-C", "change", "-cf", "upper.tar", "."]);
    let read = |name: &str| std::fs::read(folder.join(name)).expect("read");
    let layers = [keep(&read("lower.tgz"), "layer.v1.tar+gzip"), keep(&read("upper.tar"), "layer.v1.tar")];
    let config =
        json!({"os": "linux", "architecture": "amd64", "config": {"Cmd": ["/bin/tool", "look", "/old", "/new"]}});
    let config = keep(config.to_string().as_bytes(), "config.v1+json");
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
    let manifest = keep(manifest.to_string().as_bytes(), "manifest.v1+json");
    std::fs::write(place.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).expect("written");
    std::fs::write(place.join("index.json"), json!({"schemaVersion": 2, "manifests": [manifest]}).to_string())
        .expect("written");
    run(&["tar", "-C", "layout", "-cf", "layout.tar", "."]);
    std::fs::remove_file(folder.join("root/old")).expect("removed");
    folder.join("layout.tar")
}

#[test]
fn containers_run_from_an_oci_layout_by_every_runtime_of_this_machine() {
    let folder = testbed::folder();
    root(folder.path());
    let archive = layout(folder.path());
    let is_there = |name: &&str| testbed::run(Command::new("which").arg(name), "").ok;
    let runtimes: Vec<&str> = ["crun", "runc"].into_iter().filter(is_there).collect();
    assert!(runtimes.contains(&"crun"), "crun is needed for this test");
    for runtime in runtimes {
        let mut machine = Machine::with(&["--oci-runtime", runtime]);
        import(&machine, &archive, "layout:v1");
        let mut c = json!({"name": "c", "image": "layout:v1"});
        c["livenessProbe"] =
            json!({"exec": {"command": ["/bin/tool", "true"]}, "periodSeconds": 1, "failureThreshold": 1});
        c["resources"] = json!({"limits": {"memory": "64Mi", "cpu": "500m"}});
        machine.pod("p", json!({"containers": [c], "terminationGracePeriodSeconds": 0}));
        machine.until_ready("p");
        eventually("it has looked", || machine.log("p", "c", 0).contains("that is all\n"));
        assert_eq!(machine.log("p", "c", 0), "/old 0\n/new 1\nprocesses 1\nthat is all\n", "{runtime}");
        let state = machine.data_dir().join("agent/oci");
        let states = || std::fs::read_dir(&state).expect("its notes").count();
        assert_eq!(states(), 1, "{runtime} has it");
        let pod = machine.get("p");
        assert_eq!(container(&pod, "c")["restartCount"], 0);
        let _ = machine.delete("p", "").success();
        machine.until_gone("p");
        // Grace of nothing takes the object away at once; what it left goes after it.
        eventually("it is forgotten", || states() == 0);
    }
}

#[test]
fn containers_run_from_imported_images() {
    let mut machine = Machine::new();
    let folder = testbed::folder();
    root(folder.path());
    import(&machine, &folder.path().join("root"), "tool:v1");
    import(&machine, &archive(folder.path()), "example.com/packed");
    let one = json!({"name": "c", "image": "tool:v1", "command": ["/bin/tool", "a"], "securityContext": {"readOnlyRootFilesystem": true}});
    machine.pod("folder", json!({"containers": [one], "terminationGracePeriodSeconds": 1}));
    machine.pod("packed", json!({"containers": [{"name": "c", "image": "example.com/packed:latest"}], "terminationGracePeriodSeconds": 1}));
    machine.until_ready("folder");
    machine.until_ready("packed");
    eventually("both have spoken", || {
        ["folder", "packed"].iter().all(|name| machine.log(name, "c", 0).contains("write="))
    });
    assert_eq!(machine.log("folder", "c", 0), "pid=1 uid=0 host=folder args=2 usr=0 env=none\nwrite=0\n");
    assert_eq!(machine.log("packed", "c", 0), "pid=1 uid=1000 host=packed args=1 usr=0 env=green\nwrite=0\n");
    let _ = machine.delete("folder", "").success();
    machine.until_gone("folder");
}

#[test]
fn an_image_that_is_not_there_is_said_with_what_to_do() {
    let mut machine = Machine::new();
    machine.pod("p", json!({"containers": [{"name": "c", "image": "nowhere:v9"}]}));
    let waits = |pod: &Value| {
        container(pod, "c")["state"]["waiting"]["reason"].as_str().is_some_and(|reason| reason.contains("ImagePull"))
    };
    let pod = machine.until("p", "refused", waits);
    let message = container(&pod, "c")["state"]["waiting"]["message"].as_str().expect("a message").to_owned();
    assert!(message.contains("waypost image import FILE nowhere:v9"), "{message}");
}
