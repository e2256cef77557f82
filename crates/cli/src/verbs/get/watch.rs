//! `waypost get -w`: the current objects, then each change, as a row or a document.
//!
//! A watch that the server closes is resumed at its resource version; after 410 Gone it starts again with a list.

use anyhow::ensure;
use api::value::ValueExt as _;
use serde_json::Value;

use super::{Arguments, Wanted, fetch, flush};
use crate::terminal;
use crate::verbs::client::{Client, Event, Query, TABLE};
use crate::verbs::output::table::{Shown, Table};
use crate::verbs::output::{self, OutputFormat};

/// The output of a watch.
struct Screen<'a> {
    arguments: &'a Arguments,
    form: &'a OutputFormat,
    shown: Shown,
    columns: Vec<Value>,
    table: Table,
    /// Whether the next document needs a separator.
    begun: bool,
}

/// Watches one kind, or one object.
pub(super) async fn exec(
    client: &mut Client,
    arguments: &Arguments,
    form: &OutputFormat,
    wanted: &[Wanted],
) -> anyhow::Result<()> {
    ensure!(wanted.len() == 1, "one kind, or one object, can be watched at a time; start another watch for the others");
    let one = &wanted[0];
    let wide = matches!(form, OutputFormat::Table { wide: true });
    let mut screen = Screen {
        arguments,
        form,
        shown: arguments.shown(&one.kind, wide, false),
        columns: Vec::new(),
        table: Table::default(),
        begun: false,
    };
    let accept = if matches!(form, OutputFormat::Table { .. }) { TABLE } else { "application/json" };
    let mut quiet = arguments.watch_only;
    loop {
        let list = fetch(client, arguments, one, accept).await?.unwrap_or_default();
        screen.begin(client, one, &list, quiet).await?;
        let mut version = list.text("metadata.resourceVersion").to_owned();
        follow(client, one, accept, &mut screen, &mut version).await?;
        // 410 Gone: the list was already printed.
        quiet = true;
    }
}

/// Prints changes until the resource version has expired.
async fn follow(
    client: &mut Client,
    one: &Wanted,
    accept: &str,
    screen: &mut Screen<'_>,
    version: &mut String,
) -> anyhow::Result<()> {
    let path = one.kind.path(one.namespace.as_deref(), None);
    loop {
        let query = match &one.name {
            Some(name) => Query::new().add("fieldSelector", &format!("metadata.name={name}")),
            None => screen.arguments.query(one),
        };
        let mut watch = client.watch(&path, &query.add("resourceVersion", version), accept).await?;
        while let Some(event) = watch.next().await? {
            match event.kind.as_str() {
                "ERROR" if event.object.int("code") == 410 => return Ok(()),
                "ERROR" => anyhow::bail!("the watch ended: {}", event.object.text("message")),
                _ => {}
            }
            if let Some(new) = version_of(&event.object) {
                new.clone_into(version);
            }
            if event.kind != "BOOKMARK" {
                screen.event(client, event).await?;
            }
        }
    }
}

/// The resource version of an event: of the object, or of its row.
fn version_of(object: &Value) -> Option<&str> {
    let row = object.items("rows").first().map(|row| row.text("object.metadata.resourceVersion")).unwrap_or_default();
    [row, object.text("metadata.resourceVersion")].into_iter().find(|version| !version.is_empty())
}

impl Screen<'_> {
    /// Prints the list.
    async fn begin(&mut self, client: &mut Client, one: &Wanted, list: &Value, quiet: bool) -> anyhow::Result<()> {
        self.columns = list.items("columnDefinitions").to_vec();
        if matches!(self.form, OutputFormat::Table { .. }) {
            let rows: &[Value] = if quiet { &[] } else { list.items("rows") };
            if !rows.is_empty() {
                self.headings();
            }
            for row in rows {
                self.table.row(self.shown.cells(&self.columns, row));
            }
            return flush(&mut self.table);
        }
        let items = if one.name.is_some() { vec![list.clone()] } else { list.items("items").to_vec() };
        for mut item in items.into_iter().filter(|_| !quiet) {
            one.kind.set_type(&mut item);
            self.document(client, item).await?;
        }
        Ok(())
    }

    fn headings(&mut self) {
        if !self.arguments.no_headers && !std::mem::replace(&mut self.begun, true) {
            self.table.heading(self.shown.headings(&self.columns));
        }
    }

    async fn event(&mut self, client: &mut Client, event: Event) -> anyhow::Result<()> {
        if !matches!(self.form, OutputFormat::Table { .. }) {
            return self.document(client, event.object).await;
        }
        self.headings();
        for row in event.object.items("rows") {
            self.table.row(self.shown.cells(&self.columns, row));
        }
        flush(&mut self.table)
    }

    async fn document(&mut self, client: &mut Client, mut object: Value) -> anyhow::Result<()> {
        if !self.arguments.show_managed_fields {
            output::without_managed_fields(&mut object);
        }
        let kinds = client.kinds().await?;
        let again = std::mem::replace(&mut self.begun, true);
        let text = match self.form {
            OutputFormat::Columns(columns) => output::custom(columns, &[object], !again && !self.arguments.no_headers),
            OutputFormat::Yaml if again => format!("---\n{}", output::objects(self.form, &kinds, vec![object], true)),
            form => output::objects(form, &kinds, vec![object], true),
        };
        terminal::print(&text)
    }
}
