//! `waypost top [svc]`: the connections and bytes of Services and their backends, as all nodes report them.
//!
//! In: the reports of all nodes. Out: a table, refreshed every second on a terminal; printed once elsewhere. Nodes without a report are
//! listed with the reason, and unmeasured values are shown as such.

mod table;
mod totals;

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use self::totals::Totals;
use super::{Output, node_view, pretty, report, wait};
use crate::api_client::{ApiClient, ApiFlags};
use crate::terminal;

/// The refresh interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// Moves the cursor to the first line and clears the screen.
const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[J";
/// Lines of a terminal of unknown size.
const DEFAULT_LINES: u16 = 24;

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub struct Arguments {
    /// One Service [default: all Services of all namespaces]
    #[arg(value_name = "[svc/]NAME")]
    service: Option<String>,
    /// Its namespace; without a Service, only Services of this one
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Print once and exit; the default without a terminal
    #[arg(long)]
    once: bool,
    /// Output format
    #[arg(short, long, default_value = "text", value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    api: ApiFlags,
}

/// Runs the command.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    let live = !arguments.once && arguments.output == Output::Text && std::io::stdout().is_terminal();
    wait(async {
        let mut api = arguments.api.client()?;
        let service = wanted(&mut api, arguments).await?;
        loop {
            let totals = Totals::of(&reports(&mut api, service.as_deref()).await?, arguments.namespace.as_deref());
            if !live {
                return terminal::print(&match arguments.output {
                    Output::Text => table::text(&totals, usize::MAX),
                    Output::Json => pretty(&table::json(&totals)),
                });
            }
            let lines = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(DEFAULT_LINES, |size| size.ws_row);
            let mut out = std::io::stdout().lock();
            write!(out, "{CLEAR_SCREEN}{}", table::text(&totals, usize::from(lines.max(4)) - 1))
                .context("writing the answer")?;
            out.flush().context("writing the answer")?;
            drop(out);
            tokio::time::sleep(INTERVAL).await;
        }
    })
}

/// The requested Service, as `namespace/name`; it must exist.
async fn wanted(api: &mut ApiClient, arguments: &Arguments) -> anyhow::Result<Option<String>> {
    let Some(service) = &arguments.service else { return Ok(None) };
    let (name, namespace) = (node_view::service_name(service)?, arguments.namespace.as_deref().unwrap_or("default"));
    let found = api.get(&format!("/api/v1/namespaces/{namespace}/services/{name}")).await?;
    found.with_context(|| {
        format!("there is no Service {namespace}/{name}; `waypost get services -A` lists those there are")
    })?;
    Ok(Some(format!("{namespace}/{name}")))
}

/// The reports of all nodes.
async fn reports(api: &mut ApiClient, service: Option<&str>) -> anyhow::Result<Vec<(String, report::ReportResult)>> {
    let nodes = api.get("/api/v1/nodes").await?.unwrap_or_default();
    let items = nodes["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<String> =
        items.iter().filter_map(|node| node["metadata"]["name"].as_str()).map(str::to_owned).collect();
    Ok(report::fetch_all(api, &names, service).await)
}
