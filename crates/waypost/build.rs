//! Records the commit that the program is built from, for `waypost version`.
//!
//! In: `$WAYPOST_COMMIT`, or the files of `.git` (no program is run). Out: the variables `WAYPOST_COMMIT` and `WAYPOST_COMMIT_SUFFIX` of the
//! compiler, both empty when neither is there, as in an unpacked release. Runs again when HEAD moves, and at no other time.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=WAYPOST_COMMIT");
    let given = std::env::var("WAYPOST_COMMIT").ok();
    let commit = given.or_else(head_commit).filter(|commit| is_hash(commit)).unwrap_or_default();
    let suffix = commit.get(..12).map(|short| format!(" (commit {short})")).unwrap_or_default();
    println!("cargo:rustc-env=WAYPOST_COMMIT={commit}");
    println!("cargo:rustc-env=WAYPOST_COMMIT_SUFFIX={suffix}");
}

fn is_hash(text: &str) -> bool {
    text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The commit of HEAD in the repository two levels up.
fn head_commit() -> Option<String> {
    let private = git_directory(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git"))?;
    // A worktree has its own HEAD and shares branches with the others.
    let shared = fs::read_to_string(private.join("commondir"))
        .map_or_else(|_| private.clone(), |path| private.join(path.trim()));
    // The reflog changes with every commit, also when a branch has been packed and has no file of its own.
    let head = watched(&private.join("HEAD"))?;
    let _ = watched(&private.join("logs/HEAD"));
    let Some(branch) = head.trim().strip_prefix("ref: ") else {
        return Some(head.trim().to_owned());
    };
    if let Some(commit) = watched(&shared.join(branch)) {
        return Some(commit.trim().to_owned());
    }
    let packed = watched(&shared.join("packed-refs"))?;
    packed.lines().find_map(|line| line.strip_suffix(branch)?.strip_suffix(' ')).map(str::to_owned)
}

/// `.git` itself, or where the file `.git` of a worktree points.
fn git_directory(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.to_owned());
    }
    let text = fs::read_to_string(path).ok()?;
    Some(PathBuf::from(text.strip_prefix("gitdir: ")?.trim()))
}

/// The text of a file whose change runs this script again. A missing file is not watched: cargo would run the script every time.
fn watched(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo:rerun-if-changed={}", path.display());
    Some(text)
}
