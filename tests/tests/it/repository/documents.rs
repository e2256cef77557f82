//! Documents: every page of the book is in its table of contents, links and anchors resolve, and the first pages stay short.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{files, read, root};

/// The parts of the book, in order.
const PARTS: [&str; 4] = ["# Tutorial", "# How-to guides", "# Reference", "# Explanation"];

/// The longest that documents may be, in lines.
const LIMITS: [(&str, usize); 2] = [("README.md", 120), ("ARCHITECTURE.md", 300)];

/// The text outside of code blocks.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut out = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// Targets of the links and images of a document.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let attributes = text.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next());
    inline.chain(attributes).map(str::to_owned).collect()
}

/// The anchors of a document's headings, by the rule of GitHub and mdBook.
fn anchors(text: &str) -> BTreeSet<String> {
    let text = prose(text);
    let mut out = BTreeSet::new();
    for heading in text.lines().filter(|line| line.starts_with('#')) {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let repeated = (1..).map(|count| format!("{slug}-{count}"));
        let mut candidates = std::iter::once(slug.clone()).chain(repeated);
        out.extend(candidates.find(|candidate| !out.contains(candidate)));
    }
    out
}

/// A path without `.` and `..`.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn links_in_documents_resolve() {
    let documents =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "page/README.md"];
    for path in documents.map(|name| root().join(name)).into_iter().chain(files(&root().join("docs"), ".md")) {
        for link in links(&read(&path)) {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() { path.clone() } else { path.parent().expect("a folder").join(file) };
            assert!(target.exists(), "{} links to {link}, which does not exist", path.display());
            if let Some(anchor) = anchor {
                let has_anchor = anchors(&read(&target)).contains(anchor);
                assert!(has_anchor, "{} links to {link}, but no heading there has this anchor", path.display());
            }
        }
    }
}

#[test]
fn every_page_is_in_the_book_once() {
    let folder = root().join("docs");
    let summary = folder.join("SUMMARY.md");
    let text = read(&summary);
    let listed: Vec<PathBuf> = links(&text).iter().map(|link| resolved(&folder.join(link))).collect();
    let pages: BTreeSet<PathBuf> = files(&folder, ".md").iter().map(|path| resolved(path)).collect();
    for page in pages.iter().filter(|page| **page != resolved(&summary)) {
        let times = listed.iter().filter(|one| *one == page).count();
        assert_eq!(times, 1, "{} must be in docs/SUMMARY.md once", page.display());
    }
    assert_eq!(listed.len() + 1, pages.len(), "docs/SUMMARY.md lists something that is no page below docs");
    let parts: Vec<&str> = text.lines().filter(|line| line.starts_with("# ") && *line != "# Summary").collect();
    assert_eq!(parts, PARTS, "the parts of the book");
}

#[test]
fn the_first_documents_stay_short() {
    for (name, limit) in LIMITS {
        let lines = read(&root().join(name)).lines().count();
        assert!(lines <= limit, "{name} has {lines} lines; more than {limit} belong into docs");
    }
}

#[test]
fn pictures_are_small() {
    let pictures = files(&root().join("docs/images"), "");
    assert!(!pictures.is_empty(), "docs/images is empty");
    for path in pictures {
        let bytes = path.metadata().expect("its size").len();
        assert!(bytes <= 200 * 1024, "{} has {bytes} bytes", path.display());
    }
}

/// The crates that a crate's manifest names, but for tests.
fn uses(name: &str, all: &BTreeSet<String>) -> BTreeSet<String> {
    let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
    let dependencies = manifest.split_once("\n[dependencies]\n").map_or("", |(_, rest)| rest);
    let dependencies = dependencies.split("\n[").next().unwrap_or_default();
    let named = |line: &str| line.split(['.', ' ']).next().unwrap_or_default().to_owned();
    dependencies.lines().map(named).filter(|one| all.contains(one)).collect()
}

#[test]
fn the_table_of_crates_equals_the_manifests() {
    let folders = std::fs::read_dir(root().join("crates")).expect("the crates");
    let all: BTreeSet<String> =
        folders.map(|entry| entry.expect("a crate").file_name().to_string_lossy().into_owned()).collect();
    let mut listed = BTreeSet::new();
    for row in read(&root().join("ARCHITECTURE.md")).lines() {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [name, _, allowed] = cells[..] else { continue };
        let name = name.trim_matches(['|', ' ', '`']);
        if !all.contains(name) {
            continue;
        }
        listed.insert(name.to_owned());
        let allowed = allowed.trim_end_matches(['|', ' ']);
        let expected: BTreeSet<String> = match allowed {
            "all" => continue,
            "–" => BTreeSet::new(),
            names => names.split(", ").map(str::to_owned).collect(),
        };
        assert_eq!(uses(name, &all), expected, "{name}: manifest (left) and ARCHITECTURE.md (right) disagree");
    }
    assert_eq!(listed, all, "crates that ARCHITECTURE.md lists (left) and those there are (right)");
}
