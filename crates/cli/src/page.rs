//! `waypost page`: prints a link that opens the page once, as the user of the kubeconfig.
//!
//! In: a kubeconfig. Out: the link alone on standard output, so that it can be passed to a browser.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Context as _;
use api::value::ValueExt as _;
use clap::Args;
use serde_json::json;

use crate::api_client::ApiFlags;
use crate::host::Host;
use crate::terminal;

/// The program that opens a link in the default browser.
const OPENER: &str = "xdg-open";

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub struct Arguments {
    /// Also open the link in your browser
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    api: ApiFlags,
}

/// Runs the command.
///
/// # Errors
/// When the API returns no link, or the browser cannot be started.
pub fn exec(arguments: &Arguments, host: &dyn Host) -> anyhow::Result<()> {
    let (link, user, seconds) = crate::runtime()?.block_on(async {
        let mut api = arguments.api.client()?;
        let made = api.create("/page/links", &json!({})).await.context("requesting a link to the page")?;
        let link = format!("{}{}", api.server(), made.text("path"));
        anyhow::Ok((link, made.text("user").to_owned(), made.int("seconds")))
    })?;
    terminal::print(&format!("{link}\n"))?;
    terminal::remark(&format!(
        "this link works once, within {seconds} seconds, and shows what {user} may see; it allows no changes"
    ));
    terminal::remark(
        "your browser does not know the CA of this server and will warn: docs/page.md shows how to verify the certificate",
    );
    if arguments.open {
        host.run_to_end(Path::new(OPENER), &[OsStr::new(&link)])
            .with_context(|| format!("opening the link with {OPENER}; open it by hand instead"))?;
    }
    Ok(())
}
