//! `waypost top [svc]`: the connections and bytes of Services and their backends, as all nodes report them.
//!
//! In: the reports of all nodes. Out: a table, each second anew on a terminal; once elsewhere. A node that does not report is named
//! with its reason, and what nobody measured is said to be so.

mod sum;
mod table;

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use self::sum::Sum;
use super::{Output, pretty, report, view, wait};
use crate::commands::reach::{self, Api, Reach};

/// How often the table is made anew.
const PAUSE: Duration = Duration::from_secs(1);
/// To the first corner of a terminal, and nothing left behind it.
const AGAIN: &str = "\u{1b}[H\u{1b}[J";
/// How many lines a terminal has that does not say it.
const LINES: u16 = 24;

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub(crate) struct Arguments {
    /// One Service [default: all Services of all namespaces]
    #[arg(value_name = "[svc/]NAME")]
    service: Option<String>,
    /// Its namespace; without a Service, only Services of this one
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Say it once and end; this is so wherever there is no terminal
    #[arg(long)]
    once: bool,
    /// How to write the answer
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    reach: Reach,
}

/// Runs the command.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    let live = !arguments.once && arguments.output == Output::Text && std::io::stdout().is_terminal();
    wait(async {
        let mut api = arguments.reach.api()?;
        let service = wanted(&mut api, arguments).await?;
        loop {
            let sum = Sum::of(&reports(&mut api, service.as_deref()).await?, arguments.namespace.as_deref());
            if !live {
                return reach::print(&match arguments.output {
                    Output::Text => table::text(&sum, usize::MAX),
                    Output::Json => pretty(&table::json(&sum)),
                });
            }
            let lines = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(LINES, |size| size.ws_row);
            let mut out = std::io::stdout().lock();
            write!(out, "{AGAIN}{}", table::text(&sum, usize::from(lines.max(4)) - 1)).context("writing the answer")?;
            out.flush().context("writing the answer")?;
            drop(out);
            tokio::time::sleep(PAUSE).await;
        }
    })
}

/// The Service that is asked for, as `namespace/name`; it must be there.
async fn wanted(api: &mut Api, arguments: &Arguments) -> anyhow::Result<Option<String>> {
    let Some(service) = &arguments.service else { return Ok(None) };
    let (name, namespace) = (view::service_name(service)?, arguments.namespace.as_deref().unwrap_or("default"));
    let found = api.get(&format!("/api/v1/namespaces/{namespace}/services/{name}")).await?;
    found.with_context(|| {
        format!("there is no Service {namespace}/{name}; `waypost get services -A` lists those there are")
    })?;
    Ok(Some(format!("{namespace}/{name}")))
}

/// What all nodes report.
async fn reports(api: &mut Api, service: Option<&str>) -> anyhow::Result<Vec<(String, report::ReportResult)>> {
    let nodes = api.get("/api/v1/nodes").await?.unwrap_or_default();
    let items = nodes["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<String> =
        items.iter().filter_map(|node| node["metadata"]["name"].as_str()).map(str::to_owned).collect();
    Ok(report::fetch_all(api, &names, service).await)
}
