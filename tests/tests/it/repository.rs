//! Rules of the repository that a compiler does not check: dependencies between crates, documents, licences, built files.

mod bundle;
mod conformance;
mod dependencies;
mod documents;
mod imports;
mod terms;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testbed::run;

/// Which crate may use which. ARCHITECTURE.md describes the same table.
const EDGES: &[(&str, &[&str])] = &[
    ("acme", &["api", "client"]),
    ("api", &["cel"]),
    ("cel", &[]),
    ("client", &["api"]),
    ("kernel", &[]),
    ("store", &["api"]),
    ("plan", &["api"]),
    ("diagnose", &["api", "routing"]),
    ("routing", &["api"]),
    ("control", &["api", "diagnose", "routing", "store"]),
    ("dataplane", &["api", "client", "plan", "kernel"]),
    ("announce", &["api", "client", "kernel"]),
    ("dns", &["api", "client", "kernel"]),
    ("gateway", &["api", "client", "plan", "routing"]),
    ("rest", &["api", "client", "diagnose", "store"]),
    ("agent", &["api", "client", "kernel"]),
    ("cli", &["api", "client", "diagnose", "plan", "routing"]),
    (
        "waypost",
        &[
            "acme",
            "agent",
            "announce",
            "api",
            "cli",
            "client",
            "kernel",
            "store",
            "plan",
            "control",
            "dataplane",
            "dns",
            "gateway",
            "rest",
            "routing",
        ],
    ),
];

/// The longest file that is not a test.
const LONGEST: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file below a folder with this ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            out.extend(files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            out.push(path);
        }
    }
    out.sort();
    out
}

#[test]
fn crates_use_only_what_is_below_them() {
    let names: BTreeSet<&str> = EDGES.iter().map(|(name, _)| *name).collect();
    let folders: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .expect("the crates")
        .map(|entry| entry.expect("a crate").file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(folders.iter().map(String::as_str).collect::<BTreeSet<_>>(), names, "a crate is missing from the table");
    for (name, allowed) in EDGES {
        let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
        for other in names.iter().filter(|other| *other != name) {
            let uses = manifest.lines().any(|line| line.starts_with(&format!("{other}.workspace")));
            assert_eq!(uses, allowed.contains(other), "{name} and {other}: manifest and table disagree");
        }
    }
}

#[test]
fn every_file_says_what_it_is_and_is_one_idea() {
    for path in files(&root().join("crates"), ".rs").into_iter().chain(files(&root().join("tests"), ".rs")) {
        let text = read(&path);
        let is_test = path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests");
        assert!(text.starts_with("//!") || is_test, "{} does not open with //!", path.display());
        assert!(text.lines().count() <= LONGEST, "{} is too long for one idea", path.display());
    }
}

/// Names of test functions that begin with a row, and the rows.
fn row_tests() -> BTreeMap<String, BTreeSet<String>> {
    let mut out: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let sources = ["crates", "tests"].into_iter().flat_map(|folder| files(&root().join(folder), ".rs"));
    for text in sources.map(|path| read(&path)) {
        for name in text.lines().filter_map(test_name) {
            let row = name.split('_').next().expect("a first word");
            let number =
                row.strip_prefix(['s', 'b']).filter(|digits| digits.len() == 2 && digits.parse::<u8>().is_ok());
            if number.is_some() {
                out.entry(row.to_uppercase()).or_default().insert(name.to_owned());
            }
        }
    }
    out
}

fn test_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = line.strip_prefix("fn ").or_else(|| line.strip_prefix("async fn "))?;
    rest.split_once("()").map(|(name, _)| name)
}

/// `docs/status.md` as it should be: its own rows, with the tests there are.
fn true_status(text: &str, tests: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match cells[..] {
            ["", row, words, _, ""] if row.starts_with(['S', 'B']) && row.len() == 3 => {
                let shown = tests.get(row).map_or_else(String::new, |names| {
                    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
                });
                out.push_str(&format!("| {row} | {words} | {shown} |\n"));
            }
            _ => out.push_str(&format!("{line}\n")),
        }
    }
    out
}

#[test]
fn the_status_page_lists_the_tests_there_are() {
    let path = root().join("docs/status.md");
    let text = read(&path);
    let wanted = true_status(&text, &row_tests());
    let rows = (1..=55).map(|number| format!("S{number:02}")).chain((1..=15).map(|number| format!("B{number:02}")));
    for row in rows {
        assert!(text.contains(&format!("| {row} |")), "{row} is missing");
    }
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &wanted).expect("written");
        return;
    }
    assert!(text == wanted, "docs/status.md is not true; `BLESS=1 cargo test -p waypost-tests status` writes it anew");
}

/// What cargo knows of this workspace.
fn metadata() -> Value {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--locked"]).current_dir(root());
    serde_json::from_str(&run(&mut command, "").success()).expect("JSON")
}

#[test]
fn who_names_nothing_runs_the_program() {
    // README's commands say `cargo run` and no more, and the benchmarks are programs, too.
    let metadata = metadata();
    let members = metadata["workspace_default_members"].as_array().expect("a list");
    assert!(members.len() == 1 && members[0].as_str().is_some_and(|id| id.contains("crates/waypost#")), "{members:?}");
}
