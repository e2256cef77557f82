//! The objects that a command applies to.
//!
//! In: arguments after a verb (`KIND[,KIND] [NAME…]`, `KIND/NAME …`), files (`-f`), a selector (`-l`), `--all`. Out:
//! [`Target`]s, each a kind and an optional name; or the objects themselves. The error for an unknown name suggests the closest one.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use serde_json::Value;

use super::client::{Client, Query, is_not_found};
use super::kinds::{Kinds, Resource, nearest};
use super::manifest;

/// A kind and the name of an object; without a name, all objects of the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: Resource,
    pub(super) name: Option<String>,
}

/// An object and its location.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) kind: Resource,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) value: Value,
}

impl Object {
    /// Its path.
    pub(super) fn path(&self) -> String {
        self.kind.path(Some(&self.namespace), Some(&self.name))
    }

    /// `service/web`.
    pub(super) fn named(&self) -> String {
        self.kind.named(&self.name)
    }
}

/// Parses arguments.
pub(super) fn parse(kinds: &Kinds, words: &[String]) -> anyhow::Result<Vec<Target>> {
    let Some(first) = words.first() else { return Ok(Vec::new()) };
    if words.iter().any(|word| word.contains('/')) {
        return words.iter().map(|word| slashed(kinds, word)).collect();
    }
    let mut out = Vec::new();
    for word in first.split(',').filter(|word| !word.is_empty()) {
        for kind in kinds.find_all(word)? {
            if words.len() == 1 {
                out.push(Target { kind: kind.clone(), name: None });
            }
            out.extend(words[1..].iter().map(|name| Target { kind: kind.clone(), name: Some(name.clone()) }));
        }
    }
    Ok(out)
}

fn slashed(kinds: &Kinds, word: &str) -> anyhow::Result<Target> {
    match word.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(Target { kind: kinds.find(kind)?.clone(), name: Some(name.to_owned()) })
        }
        _ => bail!(
            "{word:?} is not of the form KIND/NAME; when one word has a slash, all of them must, as in `pod/web svc/web`"
        ),
    }
}

/// Parses arguments that name one object: `KIND NAME`, `KIND/NAME`, or `NAME` with a default kind.
pub(super) fn parse_one(kinds: &Kinds, words: &[String], usual: Option<&str>) -> anyhow::Result<Target> {
    let found = match (words, usual) {
        ([name], Some(usual)) if !name.contains('/') => {
            vec![Target { kind: kinds.find(usual)?.clone(), name: Some(name.clone()) }]
        }
        _ => parse(kinds, words)?,
    };
    match &found[..] {
        [Target { name: Some(_), .. }] => found.into_iter().next().context("one object"),
        [] | [_] => {
            bail!("which one? name it, as in `{}/NAME`", found.first().map_or("KIND", |one| &one.kind.singular))
        }
        _ => bail!("one object at a time, as in `{}/NAME`", found[0].kind.singular),
    }
}

/// Arguments and flags that select objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice<'a> {
    pub(super) words: &'a [String],
    pub(super) files: &'a [String],
    pub(super) selector: &'a str,
    pub(super) fields: &'a str,
    pub(super) all: bool,
    pub(super) all_namespaces: bool,
}

/// The selected objects. A kind without names needs a selector or `--all`, which prevents accidental changes of all objects.
pub(super) async fn objects(client: &mut Client, choice: &Choice<'_>) -> anyhow::Result<Vec<Object>> {
    let kinds = client.kinds().await?;
    if !choice.files.is_empty() {
        return from_files(client, &kinds, choice.files).await;
    }
    let targets = parse(&kinds, choice.words)?;
    ensure!(!targets.is_empty(), "which objects? name them as KIND NAME or KIND/NAME, or a file with -f");
    let mut out = Vec::new();
    for target in targets {
        match &target.name {
            Some(_) => out.push(one(client, &target).await?),
            None => {
                let chosen = choice.all || !choice.selector.is_empty() || !choice.fields.is_empty();
                let kind = &target.kind.singular;
                ensure!(
                    chosen,
                    "which {kind}? name it, as in `{kind}/NAME`, or choose by -l LABEL=VALUE, or take --all"
                );
                out.extend(chosen_of(client, &target.kind, choice).await?);
            }
        }
    }
    Ok(out)
}

async fn chosen_of(client: &mut Client, kind: &Resource, choice: &Choice<'_>) -> anyhow::Result<Vec<Object>> {
    let query = Query::new().add("labelSelector", choice.selector).add("fieldSelector", choice.fields);
    let found = if choice.all_namespaces {
        let mut list = client.list(&kind.path(None, None), &query, "application/json").await?;
        let items = list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        items
            .into_iter()
            .map(|mut item| {
                kind.set_type(&mut item);
                item
            })
            .collect()
    } else {
        client.objects(kind, &query).await?
    };
    Ok(found.into_iter().map(|value| object(kind, value)).collect())
}

/// An object from the server.
pub(super) fn object(kind: &Resource, value: Value) -> Object {
    let (namespace, name) = (value.text("metadata.namespace").to_owned(), value.text("metadata.name").to_owned());
    Object { kind: kind.clone(), namespace, name, value }
}

/// The object that a target names.
pub(super) async fn one(client: &mut Client, target: &Target) -> anyhow::Result<Object> {
    let name = target.name.as_deref().unwrap_or_default();
    let path = client.path(&target.kind, Some(name));
    match client.get(&path).await {
        Ok(value) => Ok(object(&target.kind, value)),
        Err(error) if is_not_found(&error) => Err(missing(client, &target.kind, name).await),
        Err(error) => Err(error),
    }
}

/// The error for a missing object, with the closest name.
pub(super) async fn missing(client: &mut Client, kind: &Resource, name: &str) -> anyhow::Error {
    let place = if kind.namespaced { format!(" in namespace {}", client.namespace) } else { String::new() };
    // Without permission to list there is no suggestion.
    let others = client.objects(kind, &Query::new()).await.unwrap_or_default();
    let near = nearest(name, others.iter().map(|other| other.text("metadata.name")));
    let hint = near.map(|near| format!("did you mean {near:?}? ")).unwrap_or_default();
    let list = match kind.namespaced {
        true => format!("`waypost get {} -A` shows those there are", kind.plural),
        false => format!("`waypost get {}` shows those there are", kind.plural),
    };
    anyhow::anyhow!("{} not found{place}; {hint}{list}", kind.quoted(name))
}

async fn from_files(client: &mut Client, kinds: &Arc<Kinds>, files: &[String]) -> anyhow::Result<Vec<Object>> {
    let mut out = Vec::new();
    for document in manifest::read(files)? {
        let kind = kinds.of(&document.object).with_context(|| document.origin.clone())?.clone();
        let namespace = manifest::namespace(&document, &kind, client)?;
        let name = document.object.text("metadata.name").to_owned();
        let path = kind.path(Some(&namespace), Some(&name));
        let value = client.get(&path).await.with_context(|| document.origin.clone())?;
        out.push(Object { kind, namespace, name, value });
    }
    Ok(out)
}
