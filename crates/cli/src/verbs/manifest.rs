//! Manifests: `-f FILE`, `-f DIR`, `-f -`, each with one or many documents, in YAML or JSON; Lists are expanded.
//!
//! In: paths. Out: documents in order, each with its location for errors.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use serde_json::Value;

use super::client::Client;
use super::kinds::Resource;

/// Extensions of files that are read in a folder.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// An object and its location.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) origin: String,
    pub(super) object: Value,
}

/// Reads all documents.
pub(super) fn read(files: &[String]) -> anyhow::Result<Vec<Document>> {
    let mut out = Vec::new();
    for file in files {
        if file == "-" {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes).context("reading standard input")?;
            parse("standard input", &bytes, &mut out)?;
            continue;
        }
        for path in paths(Path::new(file))? {
            let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            parse(&path.display().to_string(), &bytes, &mut out)?;
        }
    }
    ensure!(!out.is_empty(), "there is no object in {}", files.join(", "));
    Ok(out)
}

/// The files of a path: itself, or those of a folder by name.
fn paths(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut out = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| format!("reading the folder {}", path.display()))? {
        let file = entry.with_context(|| format!("reading the folder {}", path.display()))?.path();
        let known = file.extension().is_some_and(|ending| EXTENSIONS.iter().any(|known| ending == *known));
        if known && file.is_file() {
            out.push(file);
        }
    }
    ensure!(!out.is_empty(), "the folder {} has no file that ends in .yaml, .yml or .json", path.display());
    out.sort();
    Ok(out)
}

/// Parses the documents of a file.
fn parse(origin: &str, bytes: &[u8], out: &mut Vec<Document>) -> anyhow::Result<()> {
    let text = std::str::from_utf8(bytes).with_context(|| format!("{origin} is no text"))?;
    for (number, part) in split(text).into_iter().enumerate() {
        let place = if number == 0 { origin.to_owned() } else { format!("{origin}, document {}", number + 1) };
        let (value, repeated) = api::yaml::from_yaml(part.as_bytes()).with_context(|| place.clone())?;
        if let Some(first) = repeated.first() {
            bail!("{place}: {first}");
        }
        take(&place, value, out)?;
    }
    Ok(())
}

/// An object, or those of a List.
fn take(place: &str, value: Value, out: &mut Vec<Document>) -> anyhow::Result<()> {
    if value.is_null() {
        return Ok(());
    }
    if value.text("kind").ends_with("List") && value.at("items").is_array() {
        for (number, item) in value.items("items").iter().enumerate() {
            take(&format!("{place}, item {}", number + 1), item.clone(), out)?;
        }
        return Ok(());
    }
    ensure!(value.is_object(), "{place}: expected an object with apiVersion, kind and metadata");
    for field in ["apiVersion", "kind"] {
        ensure!(!value.text(field).is_empty(), "{place}: {field} is missing");
    }
    let named = ["metadata.name", "metadata.generateName"].iter().any(|field| !value.text(field).is_empty());
    ensure!(named, "{place}: metadata.name is missing");
    out.push(Document { origin: place.to_owned(), object: value });
    Ok(())
}

/// Splits a YAML stream at its document separators.
fn split(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "---" || line.starts_with("--- ") {
            out.push(&text[start..at]);
            start = at + 3;
        }
        at += line.len();
    }
    out.push(&text[start..]);
    let is_something =
        |part: &&str| part.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    out.into_iter().filter(is_something).collect()
}

/// The namespace of a document: its own, which must equal the one of `-n` if that is set.
pub(super) fn namespace(document: &Document, kind: &Resource, client: &Client) -> anyhow::Result<String> {
    let own = document.object.text("metadata.namespace");
    if own.is_empty() || !kind.namespaced {
        return Ok(client.namespace.clone());
    }
    ensure!(
        !client.asked || own == client.namespace,
        "its namespace {own} differs from -n {}; omit one of them",
        client.namespace
    );
    Ok(own.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let mut out = Vec::new();
        parse("f", text.as_bytes(), &mut out).expect("documents");
        out.iter().map(|document| format!("{}@{}", document.object.text("metadata.name"), document.origin)).collect()
    }

    #[test]
    fn documents_and_lists_are_expanded() {
        let text = "# a comment\n---\napiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n# nothing\n---\napiVersion: v1\nkind: List\n\
                    items:\n- {apiVersion: v1, kind: B, metadata: {name: b}}\n- {apiVersion: v1, kind: C, metadata: {name: c}}\n";
        assert_eq!(names(text), ["a@f", "b@f, document 2, item 1", "c@f, document 2, item 2"]);
    }

    #[test]
    fn missing_fields_are_reported_with_their_location() {
        let mut out = Vec::new();
        let message = parse("f", b"kind: A\nmetadata: {name: a}\n", &mut out).expect_err("refused").to_string();
        assert_eq!(message, "f: apiVersion is missing");
        let message = parse("f", b"a: 1\na: 2\n", &mut out).expect_err("refused").to_string();
        assert!(message.contains("already"), "{message}");
    }

    #[test]
    fn a_text_block_with_dashes_is_no_separator() {
        assert_eq!(split("a: |\n  ---\n  b\n").len(), 1);
        assert_eq!(split("a: 1\n--- # next\nb: 2\n"), ["a: 1\n", " # next\nb: 2\n"]);
    }
}
