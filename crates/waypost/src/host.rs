//! The host of the commands of [`cli`]: the command line, programs of this machine, and announcements.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use clap::CommandFactory as _;
use cli::api_client::ApiClient;
use cli::host::{AnnouncedObjects, Announcements, Host};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::commands::announced;

/// This program.
pub(crate) struct Waypost;

impl Host for Waypost {
    fn command_line(&self) -> clap::Command {
        crate::config::Arguments::command()
    }

    fn run_in_terminal(&self, program: &Path, arguments: &[&OsStr]) -> io::Result<bool> {
        let streams = [
            io::stdin().as_fd().try_clone_to_owned()?,
            io::stdout().as_fd().try_clone_to_owned()?,
            io::stderr().as_fd().try_clone_to_owned()?,
        ];
        kernel::process::run_with_streams(program, arguments, streams, None)
    }

    fn run_to_end(&self, program: &Path, arguments: &[&OsStr]) -> io::Result<()> {
        kernel::process::run_to_end(program, arguments).map(drop)
    }

    fn announcements<'a>(
        &'a self,
        api: &'a mut ApiClient,
        objects: AnnouncedObjects,
    ) -> BoxFuture<'a, anyhow::Result<Arc<dyn Announcements>>> {
        async move { Ok(Arc::new(announced::read(api, objects).await?) as Arc<dyn Announcements>) }.boxed()
    }
}
