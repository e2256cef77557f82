//! `waypost get -w`: what is there, then every change, one row or one document each.
//!
//! A watch that the server ends is begun again where it was; one whose past the server has forgotten begins with what is there now.

use anyhow::ensure;
use api::value::ValueExt as _;
use serde_json::Value;

use super::{Arguments, Wanted, fetch, flush};
use crate::cli::client::{Client, Event, Query, TABLE};
use crate::cli::output::table::{Shown, Table};
use crate::cli::output::{self, Form};
use crate::cli::terminal;

/// What goes on being printed.
struct Screen<'a> {
    arguments: &'a Arguments,
    form: &'a Form,
    shown: Shown,
    columns: Vec<Value>,
    table: Table,
    /// Documents were printed: the next one is separated.
    begun: bool,
}

/// Watches one kind, or one object.
pub(super) async fn exec(
    client: &mut Client,
    arguments: &Arguments,
    form: &Form,
    wanted: &[Wanted],
) -> anyhow::Result<()> {
    ensure!(wanted.len() == 1, "one kind, or one object, can be watched at a time; start another watch for the others");
    let one = &wanted[0];
    let wide = matches!(form, Form::Table { wide: true });
    let mut screen = Screen {
        arguments,
        form,
        shown: arguments.shown(&one.kind, wide, false),
        columns: Vec::new(),
        table: Table::default(),
        begun: false,
    };
    let accept = if matches!(form, Form::Table { .. }) { TABLE } else { "application/json" };
    let mut quiet = arguments.watch_only;
    loop {
        let list = fetch(client, arguments, one, accept).await?.unwrap_or_default();
        screen.begin(client, one, &list, quiet).await?;
        let mut version = list.text("metadata.resourceVersion").to_owned();
        follow(client, one, accept, &mut screen, &mut version).await?;
        // The server has forgotten what came next: what is there was shown before.
        quiet = true;
    }
}

/// Follows changes until the server no longer knows them.
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

/// Where an event is: of the object, or of its row.
fn version_of(object: &Value) -> Option<&str> {
    let row = object.items("rows").first().map(|row| row.text("object.metadata.resourceVersion")).unwrap_or_default();
    [row, object.text("metadata.resourceVersion")].into_iter().find(|version| !version.is_empty())
}

impl Screen<'_> {
    /// Shows what is there.
    async fn begin(&mut self, client: &mut Client, one: &Wanted, list: &Value, quiet: bool) -> anyhow::Result<()> {
        self.columns = list.items("columnDefinitions").to_vec();
        if matches!(self.form, Form::Table { .. }) {
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
            one.kind.sign(&mut item);
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
        if !matches!(self.form, Form::Table { .. }) {
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
            Form::Columns(columns) => output::custom(columns, &[object], !again && !self.arguments.no_headers),
            Form::Yaml if again => format!("---\n{}", output::objects(self.form, &kinds, vec![object], true)),
            form => output::objects(form, &kinds, vec![object], true),
        };
        terminal::print(&text)
    }
}
