//! What commands need from the program that they are part of: its command line, programs of this machine, and the state of announcements.
//!
//! The binary implements [`Host`]. So this crate does not depend on the components that run on nodes.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::api_client::ApiClient;

/// The program that runs a command.
pub trait Host: Sync {
    /// The whole command line, for shell completion and manual pages.
    fn command_line(&self) -> clap::Command;

    /// Runs a program with the standard streams of this process; returns whether it succeeded.
    ///
    /// # Errors
    /// When it cannot be run.
    fn run_in_terminal(&self, program: &Path, arguments: &[&OsStr]) -> io::Result<bool>;

    /// Runs a program without input.
    ///
    /// # Errors
    /// When it cannot be run, or fails; with its standard error.
    fn run_to_end(&self, program: &Path, arguments: &[&OsStr]) -> io::Result<()>;

    /// Reads the Leases, pools, peers and Events that show which nodes announce addresses of load balancers.
    fn announcements<'a>(
        &'a self,
        api: &'a mut ApiClient,
        objects: AnnouncedObjects,
    ) -> BoxFuture<'a, anyhow::Result<Arc<dyn Announcements>>>;
}

/// The objects that decide which addresses are announced, as the API lists them.
#[derive(Clone, Debug, Default)]
pub struct AnnouncedObjects {
    /// Services.
    pub services: Vec<Value>,
    /// EndpointSlices.
    pub slices: Vec<Value>,
    /// Nodes.
    pub nodes: Vec<Value>,
}

/// The announcements of a cluster at one moment.
pub trait Announcements: Debug + Send + Sync {
    /// The announcement of an address of a Service (`namespace/name`).
    fn of(&self, service: &str, address: IpAddr) -> Announcement;
}

/// The announcement of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Announcement {
    /// It is announced.
    Announced {
        /// By which nodes, how, and since when.
        how: String,
        /// The node that answers neighbours, if one does.
        node: Option<Box<str>>,
    },
    /// It should be announced and is not.
    NotAnnounced {
        /// The reason.
        why: String,
        /// The next command.
        fix: String,
    },
    /// It is not announced by Waypost, for this reason.
    NotOurs(String),
    /// It is not known.
    Unknown {
        /// The reason.
        why: String,
        /// How to find out.
        how: String,
    },
}
