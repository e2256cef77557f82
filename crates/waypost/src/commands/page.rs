//! `waypost page`: a link that lets whoever opens it look at the page, once, as the user of the kubeconfig.
//!
//! In: a kubeconfig. Out: the link, on standard output and nothing else there, so that it can be passed on to a browser.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Context as _;
use api::value::ValueExt as _;
use clap::Args;
use serde_json::json;

use super::reach::{self, Reach};
use super::server;

/// What opens an address with the program that the person likes best.
const OPENER: &str = "xdg-open";

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub(crate) struct Arguments {
    /// Open the link in your browser, too
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    reach: Reach,
}

/// Runs the command.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    let (link, user, seconds) = server::runtime()?.block_on(async {
        let mut api = arguments.reach.api()?;
        let made = api.create("/page/links", &json!({})).await.context("asking for a link to the page")?;
        let link = format!("{}{}", api.server(), made.text("path"));
        anyhow::Ok((link, made.text("user").to_owned(), made.int("seconds")))
    })?;
    reach::print(&format!("{link}\n"))?;
    reach::remark(&format!(
        "this link works once, within {seconds} seconds, and shows what {user} may see; nothing can be changed with it"
    ));
    reach::remark(
        "your browser does not know who signs for this server and will ask you: docs/page.md says how to be sure",
    );
    if arguments.open {
        kernel::process::run_to_end(Path::new(OPENER), &[OsStr::new(&link)])
            .with_context(|| format!("opening the link with {OPENER}; open it by hand instead"))?;
    }
    Ok(())
}
