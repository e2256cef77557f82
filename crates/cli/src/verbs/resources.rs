//! `waypost api-resources`: the kinds of the server, and their names.

use clap::Args;

use super::connect::Connection;
use super::output::table::Table;
use crate::terminal;

/// Settings of the verb.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Omit headings
    #[arg(long)]
    no_headers: bool,
    /// Output format: wide (also their verbs), or name
    #[arg(short, long, value_name = "FORM")]
    output: Option<Shown>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    Wide,
    Name,
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let mut client = arguments.connection.client()?;
    let kinds = client.kinds().await?;
    if arguments.output == Some(Shown::Name) {
        return terminal::print(&kinds.0.iter().map(|kind| kind.qualified() + "\n").collect::<String>());
    }
    let wide = arguments.output == Some(Shown::Wide);
    let mut table = Table::default();
    if !arguments.no_headers {
        let headings = ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"].into_iter();
        table.heading(headings.chain(wide.then_some("VERBS")).map(str::to_owned));
    }
    for kind in kinds.0.iter().filter(|kind| kind.can("list")) {
        let mut cells = vec![
            kind.plural.clone(),
            kind.short.join(","),
            kind.api_version(),
            kind.namespaced.to_string(),
            kind.kind.clone(),
        ];
        if wide {
            cells.push(kind.verbs.join(","));
        }
        table.row(cells);
    }
    terminal::print(&table.text(terminal::colours()))
}
