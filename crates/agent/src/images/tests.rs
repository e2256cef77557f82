//! The image store: names, shared layers and garbage collection.

use std::io::Write as _;

use super::*;

/// A layer with one file.
fn layer(path: &str, text: &str) -> Vec<u8> {
    let mut out = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(text.len() as u64);
    header.set_uid(rustix::process::getuid().as_raw().into());
    header.set_gid(rustix::process::getgid().as_raw().into());
    out.append_data(&mut header, path, text.as_bytes()).expect("appended");
    out.into_inner().expect("bytes")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).expect("compressed");
    out.finish().expect("compressed")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Creates an OCI layout from pairs of uncompressed and compressed layers.
fn layout(folder: &Path, layers: &[(Vec<u8>, Vec<u8>)]) -> PathBuf {
    fs::create_dir_all(folder.join("blobs/sha256")).expect("made");
    let blob = |bytes: &[u8]| {
        let digest = layers::sha256(bytes);
        fs::write(folder.join("blobs/sha256").join(&digest), bytes).expect("written");
        json!({"digest": format!("sha256:{digest}"), "size": bytes.len()})
    };
    let diffs: Vec<String> = layers.iter().map(|(plain, _)| format!("sha256:{}", layers::sha256(plain))).collect();
    let config = json!({"os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": diffs}});
    let parts: Vec<Value> = layers.iter().map(|(_, packed)| blob(packed)).collect();
    let manifest = json!({"schemaVersion": 2, "config": blob(config.to_string().as_bytes()), "layers": parts});
    let index = json!({"schemaVersion": 2, "manifests": [blob(manifest.to_string().as_bytes())]});
    fs::write(folder.join("index.json"), index.to_string()).expect("written");
    fs::write(folder.join("oci-layout"), "{\"imageLayoutVersion\": \"1.0.0\"}").expect("written");
    folder.to_owned()
}

fn kept_layers(images: &Images) -> usize {
    images.layers.all().len()
}

#[test]
fn a_directory_is_imported_and_tagged() {
    let home = tempfile::tempdir().expect("a folder");
    let from = home.path().join("root");
    fs::create_dir_all(from.join("bin")).expect("made");
    fs::write(from.join("bin/tool"), "x").expect("written");
    let images = Images::new(&home.path().join("data"));
    let id = images.import(&from, "tool").expect("imported");
    let image = images.find("docker.io/library/tool:latest").expect("found");
    let files = image.layers.first().expect("a layer").clone();
    assert_eq!((image.id.as_str(), image.own), (id.as_str(), true));
    assert_eq!(fs::read(files.join("bin/tool")).expect("there"), b"x");
    images.tag("tool", "example.com/other:v1").expect("tagged");
    images.remove("tool").expect("removed");
    assert!(files.exists() && images.find("tool").is_err());
    let freed = images.remove("example.com/other:v1").expect("removed");
    assert_eq!(freed, Freed { images: 1, layers: 1, bytes: 1, busy: false });
    assert!(!files.exists());
    assert!(images.import(&from, "Not A Name").is_err());
}

#[test]
fn common_layers_are_shared() {
    let home = tempfile::tempdir().expect("a folder");
    let images = Images::new(&home.path().join("data"));
    let [base, one, two] = [layer("base", "12345"), layer("one", "1"), layer("two", "22")];
    let first = layout(&home.path().join("1"), &[(base.clone(), gzip(&base)), (one.clone(), one)]);
    let second = layout(&home.path().join("2"), &[(base.clone(), zstd(&base)), (two.clone(), zstd(&two))]);
    let first = images.import(&first, "first").expect("imported");
    let second = images.import(&second, "second").expect("imported");
    assert_eq!((kept_layers(&images), images.size(&first), images.size(&second)), (3, 6, 7));
    let [a, b] = ["first", "second"].map(|name| images.find(name).expect("found").layers);
    assert!(a[1] == b[1] && a[0] != b[0], "the lowest is shared");
    assert_eq!(images.remove("second").expect("removed"), Freed { images: 1, layers: 1, bytes: 2, busy: false });
    assert!(a[1].join("base").exists());
    // Another image takes the name: the previous one is removed.
    let third = layout(&home.path().join("3"), &[(two.clone(), two)]);
    images.import(&third, "first").expect("imported");
    assert_eq!((kept_layers(&images), images.list().len()), (1, 1));
}

#[test]
fn digest_mismatches_are_errors() {
    let home = tempfile::tempdir().expect("a folder");
    let images = Images::new(&home.path().join("data"));
    let [one, two] = [layer("one", "1"), layer("two", "22")];
    // The blob digest matches, the diff ID does not.
    let lies = layout(&home.path().join("1"), &[(one.clone(), gzip(&two))]);
    let error = images.import(&lies, "lies").expect_err("refused").to_string();
    assert!(error.contains("layer 1 of") && error.contains("but the image says sha256:"), "{error}");
    let damaged = layout(&home.path().join("2"), &[(one.clone(), one.clone())]);
    let blob = damaged.join("blobs/sha256").join(layers::sha256(&one));
    fs::write(blob, two).expect("written");
    let error = images.import(&damaged, "damaged").expect_err("refused").to_string();
    assert!(error.contains("the content of sha256:"), "{error}");
    assert_eq!((kept_layers(&images), images.list()), (0, vec![]), "and nothing of it stays");
}

#[test]
fn images_in_use_are_not_removed() {
    let home = tempfile::tempdir().expect("a folder");
    let data = home.path().join("data");
    let images = Images::new(&data);
    let one = layer("one", "1");
    let from = layout(&home.path().join("1"), &[(one.clone(), one)]);
    let id = images.import(&from, "web:v1").expect("imported");
    let pods = crate::data_dir::AgentDir::new(&data);
    let pod = pods.pod("u1");
    fs::create_dir_all(pod.container("c")).expect("made");
    let spec = json!({"containers": [{"name": "c", "image": "web:v1"}]});
    let object = json!({"metadata": {"namespace": "default", "name": "web-0"}, "spec": spec});
    files::put(&pod.pod(), &object).expect("written");
    let error = images.remove("web:v1").expect_err("refused").to_string();
    assert_eq!(error, "image web:v1 is used by the Pod default/web-0; delete the Pod first");
    assert_eq!(images.list()[0].pods, BTreeSet::from(["default/web-0".to_owned()]));
    assert_eq!(images.prune(true).expect("pruned"), Freed::default(), "it has a Pod");
    // A running container keeps the image without a name.
    files::put(&pod.state("c"), &json!({"image": format!("docker.io/library/web@sha256:{id}")})).expect("written");
    images.tag("web:v1", "other").expect("tagged");
    files::put(&pod.pod(), &json!({"metadata": object["metadata"], "spec": {"containers": [{"name": "c"}]}}))
        .expect("written");
    images.remove("web:v1").expect("there is another name");
    assert!(images.remove("other").is_err(), "it is the last");
    files::remove_folder(pod.path()).expect("removed");
    let held = images.hold().expect("held");
    assert!(images.remove("other").expect("removed").busy, "a container is being started");
    assert_eq!(kept_layers(&images), 1);
    drop(held);
    assert_eq!(images.prune(false).expect("pruned"), Freed { images: 1, layers: 1, bytes: 1, busy: false });
}
