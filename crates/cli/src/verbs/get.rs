//! `waypost get`: objects as tables, YAML, JSON, names or single values; once, or as they change.
//!
//! Tables come from the server, so columns are those of kubectl. Errors for missing objects follow the output.

mod watch;

use anyhow::{Context as _, ensure};
use api::value::ValueExt as _;
use clap::Args;
use serde_json::Value;

use super::client::{Client, Query, TABLE, is_not_found};
use super::connect::Connection;
use super::kinds::Resource;
use super::output::table::{Shown, Table};
use super::output::{self, OutputFormat};
use super::{jsonpath, manifest, target};
use crate::terminal;

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// What to show: KIND[,KIND…] [NAME…], or KIND/NAME …
    #[arg(value_name = "KIND[/NAME]")]
    words: Vec<String>,
    /// Output format: wide, yaml, json, name, jsonpath=TEMPLATE, custom-columns=HEADING:PATH,…
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,
    /// Watch: continue with changes
    #[arg(short, long)]
    watch: bool,
    /// Watch without the initial list
    #[arg(long)]
    watch_only: bool,
    /// In all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Those with these labels, as in app=web,tier!=db
    #[arg(short = 'l', long, default_value = "", value_name = "LABELS")]
    selector: String,
    /// Those with these fields, as in status.phase=Running
    #[arg(long, default_value = "", value_name = "FIELDS")]
    field_selector: String,
    /// Show all labels in a column
    #[arg(long)]
    show_labels: bool,
    /// Show these labels in their own columns
    #[arg(short = 'L', long, value_delimiter = ',', value_name = "LABELS")]
    label_columns: Vec<String>,
    /// Omit headings
    #[arg(long)]
    no_headers: bool,
    /// Put the kind before each name
    #[arg(long)]
    show_kind: bool,
    /// Show the objects in this file or directory; - is standard input
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<String>,
    /// Sort by a field, as in .metadata.creationTimestamp
    #[arg(long, value_name = "PATH")]
    sort_by: Option<String>,
    /// Ignore objects that do not exist
    #[arg(long)]
    ignore_not_found: bool,
    /// Also show managedFields
    #[arg(long)]
    show_managed_fields: bool,
    #[command(flatten)]
    connection: Connection,
}

/// What to show: one object, or all of a kind.
#[derive(Clone, Debug)]
struct Wanted {
    kind: Resource,
    /// None is all namespaces.
    namespace: Option<String>,
    name: Option<String>,
}

impl Wanted {
    fn path(&self) -> String {
        self.kind.path(self.namespace.as_deref(), self.name.as_deref())
    }
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let mut client = arguments.connection.client()?;
    let wanted = wanted(&mut client, &arguments).await?;
    let form = arguments.output.clone().unwrap_or(OutputFormat::Table { wide: false });
    if arguments.watch || arguments.watch_only {
        return watch::exec(&mut client, &arguments, &form, &wanted).await;
    }
    match form {
        OutputFormat::Table { wide } => tables(&mut client, &arguments, &wanted, wide).await,
        form => values(&mut client, &arguments, &wanted, &form).await,
    }
}

async fn wanted(client: &mut Client, arguments: &Arguments) -> anyhow::Result<Vec<Wanted>> {
    let kinds = client.kinds().await?;
    let mut out = Vec::new();
    if !arguments.filename.is_empty() {
        for document in manifest::read(&arguments.filename)? {
            let kind = kinds.of(&document.object).with_context(|| document.origin.clone())?.clone();
            let namespace = Some(manifest::namespace(&document, &kind, client)?);
            out.push(Wanted { kind, namespace, name: Some(document.object.text("metadata.name").to_owned()) });
        }
        return Ok(out);
    }
    ensure!(
        !arguments.words.is_empty(),
        "what should be shown? name a kind, as in `waypost get services`; `waypost api-resources` lists them"
    );
    for found in target::parse(&kinds, &arguments.words)? {
        ensure!(
            !(arguments.all_namespaces && found.name.is_some() && found.kind.namespaced),
            "a name needs a namespace: leave out -A, or choose with --field-selector metadata.name=NAME"
        );
        let namespace = (!arguments.all_namespaces).then(|| client.namespace.clone());
        out.push(Wanted { kind: found.kind, namespace, name: found.name });
    }
    Ok(out)
}

impl Arguments {
    fn query(&self, one: &Wanted) -> Query {
        match one.name {
            Some(_) => Query::new(),
            None => Query::new().add("labelSelector", &self.selector).add("fieldSelector", &self.field_selector),
        }
    }

    fn shown(&self, kind: &Resource, wide: bool, many_kinds: bool) -> Shown {
        Shown {
            wide,
            namespaces: self.all_namespaces && kind.namespaced,
            prefix: (self.show_kind || many_kinds).then(|| {
                let named = kind.named("");
                named.trim_end_matches('/').to_owned()
            }),
            labels: self.show_labels,
            label_columns: self.label_columns.clone(),
        }
    }
}

/// The existing objects, and an error for each missing one.
async fn fetch(
    client: &mut Client,
    arguments: &Arguments,
    one: &Wanted,
    accept: &str,
) -> anyhow::Result<Option<Value>> {
    let mut query = arguments.query(one);
    if arguments.sort_by.is_some() && accept == TABLE {
        query = query.add("includeObject", "Object");
    }
    let answer = match one.name {
        Some(_) => client.get_as(&query.on(&one.path()), accept).await,
        None => client.list(&one.path(), &query, accept).await,
    };
    match (answer, &one.name) {
        (Ok(found), _) => Ok(Some(found)),
        (Err(error), _) if arguments.ignore_not_found && is_not_found(&error) => Ok(None),
        (Err(error), Some(name)) if is_not_found(&error) => Err(target::missing(client, &one.kind, name).await),
        (Err(error), _) => Err(error),
    }
}

/// Errors that are reported at the end.
#[derive(Default)]
struct Errors(Vec<anyhow::Error>);

impl Errors {
    fn end(mut self) -> anyhow::Result<()> {
        let last = self.0.pop();
        for error in &self.0 {
            terminal::note(&format!("waypost: {error:#}"));
        }
        last.map_or(Ok(()), Err)
    }
}

async fn tables(client: &mut Client, arguments: &Arguments, wanted: &[Wanted], wide: bool) -> anyhow::Result<()> {
    let many = wanted.iter().any(|one| one.kind != wanted[0].kind);
    let mut errors = Errors::default();
    let (mut table, mut current, mut printed) = (Table::default(), None, 0);
    for one in wanted {
        let answer = match fetch(client, arguments, one, TABLE).await {
            Ok(Some(answer)) => answer,
            Ok(None) => continue,
            Err(error) => {
                errors.0.push(error);
                continue;
            }
        };
        let mut rows = answer.items("rows").to_vec();
        if rows.is_empty() {
            continue;
        }
        sort(&mut rows, arguments, "object.")?;
        let shown = arguments.shown(&one.kind, wide, many);
        let columns = answer.items("columnDefinitions");
        if current.as_ref() != Some(&one.kind) {
            flush(&mut table)?;
            table = Table::default();
            if printed > 0 {
                terminal::print("\n")?;
            }
            current = Some(one.kind.clone());
            if !arguments.no_headers {
                table.heading(shown.headings(columns));
            }
        }
        for row in &rows {
            table.row(shown.cells(columns, row));
        }
        printed += rows.len();
    }
    flush(&mut table)?;
    if printed == 0 && errors.0.is_empty() && !arguments.ignore_not_found {
        nothing(client, arguments, wanted);
    }
    errors.end()
}

fn flush(table: &mut Table) -> anyhow::Result<()> {
    if table.is_empty() { Ok(()) } else { terminal::print(&table.text(terminal::colours())) }
}

/// Reports that nothing was found.
fn nothing(client: &Client, arguments: &Arguments, wanted: &[Wanted]) {
    if arguments.all_namespaces || !wanted.iter().any(|one| one.kind.namespaced) {
        terminal::note("No resources found");
    } else {
        terminal::note(&format!("No resources found in {} namespace.", client.namespace));
    }
}

/// Sorts by a field: numbers by value, others as text; objects without the field first.
fn sort(items: &mut [Value], arguments: &Arguments, prefix: &str) -> anyhow::Result<()> {
    let Some(path) = &arguments.sort_by else { return Ok(()) };
    let path = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('.');
    let path = jsonpath::expression(&format!(".{prefix}{path}"))?;
    items.sort_by_cached_key(|item| {
        let found = path.of(item).first().map(|value| (*value).clone());
        let number = found.as_ref().and_then(Value::as_i64);
        (number, found.as_ref().map(jsonpath::text).unwrap_or_default())
    });
    Ok(())
}

async fn values(
    client: &mut Client,
    arguments: &Arguments,
    wanted: &[Wanted],
    form: &OutputFormat,
) -> anyhow::Result<()> {
    let mut errors = Errors::default();
    let (mut objects, mut single) = (Vec::new(), wanted.len() == 1);
    for one in wanted {
        match fetch(client, arguments, one, "application/json").await {
            Ok(Some(found)) if one.name.is_some() => objects.push(found),
            Ok(Some(list)) => {
                single = false;
                objects.extend(list.items("items").iter().map(|item| {
                    let mut item = item.clone();
                    one.kind.set_type(&mut item);
                    item
                }));
            }
            Ok(None) => {}
            Err(error) => errors.0.push(error),
        }
    }
    let failed = !errors.0.is_empty();
    if !(objects.is_empty() && (failed || single)) {
        sort(&mut objects, arguments, "")?;
        if !arguments.show_managed_fields {
            objects.iter_mut().for_each(output::without_managed_fields);
        }
        let kinds = client.kinds().await?;
        terminal::print(&match form {
            OutputFormat::Columns(columns) => output::custom(columns, &objects, !arguments.no_headers),
            form => output::objects(form, &kinds, objects, single),
        })?;
    }
    errors.end()
}
