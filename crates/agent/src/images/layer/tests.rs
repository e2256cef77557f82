//! Valid and malicious layers. Overlayfs xattrs need root.

use super::*;

/// An entry that is written without checks: libraries refuse malicious ones.
struct Given<'a> {
    kind: tar::EntryType,
    path: &'a str,
    /// Its content or link target.
    text: &'a str,
    mode: u32,
}

fn file<'a>(path: &'a str, text: &'a str) -> Given<'a> {
    Given { kind: tar::EntryType::Regular, path, text, mode: 0o644 }
}

fn folder(path: &str, mode: u32) -> Given<'_> {
    Given { kind: tar::EntryType::Directory, path, text: "", mode }
}

fn link<'a>(path: &'a str, text: &'a str) -> Given<'a> {
    Given { kind: tar::EntryType::Symlink, path, text, mode: 0o777 }
}

fn same<'a>(path: &'a str, text: &'a str) -> Given<'a> {
    Given { kind: tar::EntryType::Link, path, text, mode: 0o644 }
}

fn device(path: &str) -> Given<'_> {
    Given { kind: tar::EntryType::Char, path, text: "", mode: 0o666 }
}

fn archive(entries: &[Given<'_>]) -> Vec<u8> {
    let mut out = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(entry.kind);
        header.set_mode(entry.mode);
        header.set_uid(rustix::process::getuid().as_raw().into());
        header.set_gid(rustix::process::getgid().as_raw().into());
        header.set_mtime(1_000_000);
        let mut content = entry.text.as_bytes();
        if matches!(entry.kind, tar::EntryType::Symlink | tar::EntryType::Link) {
            header.set_link_name_literal(entry.text).expect("a link");
            content = b"";
        }
        header.as_old_mut().name[..entry.path.len()].copy_from_slice(entry.path.as_bytes());
        header.set_size(content.len() as u64);
        header.set_cksum();
        out.append(&header, content).expect("appended");
    }
    out.into_inner().expect("bytes")
}

/// Layer directories; the uppermost last.
struct Stack {
    home: tempfile::TempDir,
    layers: Vec<PathBuf>,
}

impl Stack {
    fn new() -> Self {
        Self { home: tempfile::tempdir().expect("a folder"), layers: Vec::new() }
    }

    fn add(&mut self, bytes: &[u8]) -> Result<PathBuf, LayerError> {
        let root = self.home.path().join(self.layers.len().to_string());
        fs::create_dir(&root).expect("made");
        let below: Vec<PathBuf> = self.layers.iter().rev().cloned().collect();
        unpack(bytes, &root, &below)?;
        self.layers.push(root.clone());
        Ok(root)
    }

    /// The overlay as a container sees it.
    fn shown<T>(&self, look: impl FnOnce(&Path) -> T) -> T {
        let [upper, work, target] = ["upper", "work", "target"].map(|name| self.home.path().join(name));
        for path in [&upper, &work, &target] {
            fs::create_dir_all(path).expect("made");
        }
        let lower: Vec<PathBuf> = self.layers.iter().rev().cloned().collect();
        kernel::mounts::overlay(&lower, &upper, &work, &target).expect("mounted; this takes root and overlayfs");
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(&target)));
        kernel::mounts::detach(&target).expect("taken away");
        seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn read(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok()
}

#[test]
fn whiteouts_and_opaque_directories_are_applied() {
    let mut stack = Stack::new();
    let first = [
        folder("a", 0o750),
        file("a/one", "1"),
        file("a/two", "2"),
        file("b/three", "3"),
        file("c/deep/old", "o"),
        file("d/old", "o"),
        file("e", "file"),
    ];
    stack.add(&archive(&first)).expect("unpacked");
    let second = [
        file("a/.wh.one", ""),
        file("b/.wh..wh..opq", ""),
        file("b/four", "4"),
        same("six", "b/four"),
        // Removed and created again, in both orders.
        file(".wh.c", ""),
        file("c/new", "n"),
        file("d/new", "n"),
        file(".wh.d", ""),
        folder("e", 0o755),
        file("e/inside", "i"),
        file(".wh..wh.plnk", ""),
    ];
    stack.add(&archive(&second)).expect("unpacked");
    stack.shown(|root| {
        assert_eq!((read(root, "a/one"), read(root, "a/two").as_deref()), (None, Some("2")));
        assert_eq!((read(root, "b/three"), read(root, "b/four").as_deref()), (None, Some("4")));
        assert_eq!((read(root, "c/deep/old"), read(root, "c/new").as_deref()), (None, Some("n")));
        assert_eq!((read(root, "d/old"), read(root, "d/new").as_deref()), (None, Some("n")));
        assert_eq!((read(root, "six").as_deref(), read(root, "e/inside").as_deref()), (Some("4"), Some("i")));
        let mode = fs::metadata(root.join("a")).expect("there").mode() & 0o7777;
        assert_eq!(mode, 0o750, "a folder that the second layer did not mention is as the first left it");
        let names: Vec<_> = fs::read_dir(root).expect("a folder").map(|one| one.expect("one").file_name()).collect();
        assert!(!names.iter().any(|name| name.as_bytes().starts_with(b".wh")), "{names:?}");
    });
}

#[test]
fn modes_times_links_and_devices() {
    let mut stack = Stack::new();
    let mut tool = file("bin/tool", "x");
    tool.mode = 0o4755;
    let entries =
        [tool, same("bin/other", "bin/tool"), link("abs", "/bin/tool"), device("dev/null"), folder("bin", 0o700)];
    let root = stack.add(&archive(&entries)).expect("unpacked");
    let meta = fs::metadata(root.join("bin/tool")).expect("there");
    assert_eq!((meta.mode() & 0o7777, meta.mtime(), meta.nlink()), (0o4755, 1_000_000, 2));
    assert_eq!(fs::read_link(root.join("abs")).expect("a link"), Path::new("/bin/tool"), "links are left as they are");
    assert!(!root.join("dev/null").exists(), "devices are not made");
    assert_eq!(fs::metadata(root.join("bin")).expect("there").mtime(), 1_000_000);
}

/// A PAX header before the file `f`.
fn with_extension(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = tar::Builder::new(Vec::new());
    out.append_pax_extensions(records.iter().copied()).expect("appended");
    let mut bytes = out.into_inner().expect("bytes");
    bytes.truncate(bytes.len() - 1024);
    bytes.extend(archive(&[file("f", "text")]));
    bytes
}

#[test]
fn file_capabilities_are_kept_and_overlayfs_xattrs_are_not() {
    // VFS_CAP_REVISION_2 with CAP_NET_BIND_SERVICE.
    let right: Vec<u8> = [0x0200_0001_u32, 1 << 10, 0, 0, 0].iter().flat_map(|part| part.to_le_bytes()).collect();
    let bytes = with_extension(&[
        ("SCHILY.xattr.security.capability", &right),
        ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
        ("SCHILY.xattr.user.colour", b"green"),
    ]);
    let root = Stack::new();
    let mut stack = root;
    let root = stack.add(&bytes).expect("unpacked");
    let get = |name: &str| {
        let mut value = [0; 64];
        let length = rustix::fs::lgetxattr(root.join("f"), name, &mut value[..]).ok()?;
        Some(value[..length].to_vec())
    };
    assert_eq!(get("security.capability"), Some(right));
    assert_eq!(get("trusted.overlay.redirect"), None);
    assert!(matches!(get("user.colour").as_deref(), None | Some(b"green")), "not every filesystem keeps these");
}

#[test]
fn malicious_layers_are_refused_and_write_nothing_outside() {
    let victim = tempfile::tempdir().expect("a folder");
    fs::write(victim.path().join("kept"), "k").expect("written");
    let outside = victim.path().to_str().expect("a path").to_owned();
    let through = format!("{}/x", &outside[1..]);
    let cases: Vec<(Vec<Given<'_>>, &str)> = vec![
        (vec![file("../x", "1")], "\"../x\" is outside"),
        (vec![file("/etc/../../x", "1")], "is outside"),
        (vec![link("up", "../victim"), file("up/y", "2")], "\"up/y\" is outside"),
        (vec![link("a/up", "../../.."), file("a/up/y", "2")], "\"a/up/y\" is outside"),
        (vec![same("h", "../../etc/passwd")], "is outside"),
        (vec![link("up", "../.."), same("h", "up/etc/passwd")], "\"h\"?"),
        (vec![file("a/.wh...", "")], "is outside"),
        (vec![file("a/.wh..", "")], "is outside"),
        (vec![same("h", "nothing")], "is a hard link to nothing"),
        (vec![file("f", "x"), file("f/g", "y")], "has a parent that is not a directory"),
        (vec![link("l", "l"), file("l/g", "y")], "too many links"),
        (vec![Given { kind: tar::EntryType::GNUSparse, path: "s", text: "", mode: 0 }], "sparse"),
        (vec![Given { kind: tar::EntryType::new(b'V'), path: "v", text: "", mode: 0 }], "not supported"),
    ];
    for (entries, wanted) in &cases {
        let mut stack = Stack::new();
        let error = stack.add(&archive(entries)).expect_err(wanted).to_string();
        assert!(error.contains(wanted) || (wanted.ends_with('?') && error.contains("is outside")), "{wanted}: {error}");
    }
    // An absolute link is resolved inside the image.
    let mut stack = Stack::new();
    let root =
        stack.add(&archive(&[link("abs", &outside), folder(&through[..through.len() - 2], 0o755), file("abs/x", "3")]));
    let root = root.expect("unpacked");
    assert_eq!(read(&root, &through).as_deref(), Some("3"));
    let left: Vec<_> =
        fs::read_dir(victim.path()).expect("a folder").map(|one| one.expect("one").file_name()).collect();
    assert_eq!(left, ["kept"], "nothing but what was there");
}

#[test]
fn oversized_entries_are_refused() {
    for (bytes, wanted) in [
        (with_extension(&[("path", &b"a/".repeat(3000))]), "too long"),
        (with_extension(&[("path", &[b'a'; 256])]), "too long a name"),
        (with_extension(&[("comment", &vec![b'x'; 2 << 20])]), "longer than 1 MiB"),
        (with_extension(&[("size", b"9999999999")]), "8 GiB"),
        (with_extension(&[("GNU.sparse.major", b"1")]), "sparse"),
        (with_extension(&[("uid", b"4294967296")]), "owner"),
    ] {
        let error = Stack::new().add(&bytes).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
    let mut cut = archive(&[file("f", &"x".repeat(2000))]);
    cut.truncate(1024);
    let error = Stack::new().add(&cut).expect_err("half a file");
    assert!(matches!(error, LayerError::Broken(_)), "{error}");
}
