//! What the serving side of the agent asks of the half that runs Pods: logs, commands, standard streams, connections.
//!
//! In: which container, and what is wanted. Out: plain readers and writers. Protocols end before this line, and processes
//! begin behind it, so that either half can be tested without the other; `fake` is the other half for tests.

pub mod fake;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// What the serving side asks of the workloads of this machine.
pub trait Workloads: Send + Sync + 'static {
    /// The log of a container. With `follow` the reader ends by itself when the container has ended.
    fn logs<'a>(&'a self, of: &'a ContainerId, options: &'a LogOptions) -> BoxFuture<'a, Result<LogReader, Refusal>>;

    /// Starts a command in a running container.
    fn exec<'a>(&'a self, of: &'a ContainerId, how: Exec) -> BoxFuture<'a, Result<Running, Refusal>>;

    /// Joins the streams of the process that the container is.
    fn attach<'a>(&'a self, of: &'a ContainerId, how: Attach) -> BoxFuture<'a, Result<Running, Refusal>>;

    /// A connection, made inside the network of a Pod, to its loopback: 127.0.0.1, then ::1.
    fn dial<'a>(&'a self, pod: &'a PodId, port: u16) -> BoxFuture<'a, Result<TcpStream, Refusal>>;

    /// The Pods of this machine, a v1.PodList.
    fn pods(&self) -> serde_json::Value;
}

/// Which Pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodId {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Which container of which Pod; init containers too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerId {
    /// The Pod.
    pub pod: PodId,
    /// The name of the container in it.
    pub container: String,
}

/// Which part of a log is wanted. What the client limits in bytes is cut by the serving side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Goes on as the container writes.
    pub follow: bool,
    /// Only this many lines of the end.
    pub tail_lines: Option<u64>,
    /// Only lines written at this time or later.
    pub since: Option<Timestamp>,
    /// Each line begins with the time it was written at (RFC 3339, nanoseconds) and a space.
    pub timestamps: bool,
    /// The log of the instance of the container before this one.
    pub previous: bool,
}

/// The text of a log.
pub type LogReader = Box<dyn AsyncRead + Send + Unpin>;

/// What a process writes.
pub type Output = Box<dyn AsyncRead + Send + Unpin>;

/// What a process reads.
pub type Input = Box<dyn AsyncWrite + Send + Unpin>;

/// A command for a container, and which of its streams are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "the four switches of the Kubernetes API")]
pub struct Exec {
    /// The program and its arguments; never empty.
    pub command: Vec<String>,
    /// The client writes.
    pub stdin: bool,
    /// The client reads what it says.
    pub stdout: bool,
    /// The client reads what it complains of; never together with `tty`.
    pub stderr: bool,
    /// It has a terminal: one stream out, and a size.
    pub tty: bool,
}

/// Which streams of a container's own process are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "the four switches of the Kubernetes API")]
pub struct Attach {
    /// The client writes.
    pub stdin: bool,
    /// The client reads what it says.
    pub stdout: bool,
    /// The client reads what it complains of; never together with `tty`.
    pub stderr: bool,
    /// It has a terminal: one stream out, and a size.
    pub tty: bool,
}

/// A process whose streams are at hand.
///
/// What was asked for is there, unless the process has no such stream. Dropping or shutting down `stdin` is the end of input.
/// `exit` is done when the process has ended, which may be before its output was read to the end. Dropping `exit` before it is
/// done ends a process that `exec` started, and never one that was attached to.
pub struct Running {
    /// Where its input goes.
    pub stdin: Option<Input>,
    /// Where its output comes from.
    pub stdout: Option<Output>,
    /// Where its complaints come from.
    pub stderr: Option<Output>,
    /// Where sizes of its terminal go.
    pub resize: Option<mpsc::Sender<Size>>,
    /// How it ended.
    pub exit: BoxFuture<'static, Exit>,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: u16,
    /// Lines.
    pub height: u16,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, or by a signal (128 + its number).
    Code(i32),
    /// Nobody knows how, and this is why.
    Failed(String),
}

/// Why the workloads did not do it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// No such Pod on this machine.
    #[error("pod does not exist")]
    NoPod,
    /// The Pod has no such container.
    #[error("container not found ({container:?})")]
    NoContainer {
        /// The name that was asked for.
        container: String,
    },
    /// The container does not run, or not yet, or its previous instance is not there.
    #[error("container {container:?} is not running: {why}")]
    NotRunning {
        /// The container.
        container: String,
        /// What it does instead: `ContainerCreating`, `CrashLoopBackOff`, `exited with 1`.
        why: String,
    },
    /// The request makes no sense, and this is why.
    #[error("{0}")]
    Bad(String),
    /// It should have worked, and this is why it did not.
    #[error("{0}")]
    Failed(String),
}
