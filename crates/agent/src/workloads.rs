//! The interface between the HTTPS endpoint and the Pods: logs, exec, attach, port-forward.
//!
//! In: a container and options. Out: plain readers and writers, independent of the wire protocol, so that both sides can be tested alone; `fake`
//! is an implementation for tests.

pub mod fake;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Access to the containers of this node.
pub trait Workloads: Send + Sync + 'static {
    /// The log of a container. With `follow` the reader ends when the container exits.
    fn logs<'a>(&'a self, of: &'a ContainerId, options: &'a LogOptions) -> BoxFuture<'a, Result<LogReader, Refusal>>;

    /// Starts a command in a running container.
    fn exec<'a>(&'a self, of: &'a ContainerId, how: Exec) -> BoxFuture<'a, Result<Running, Refusal>>;

    /// Attaches to the streams of the container's main process.
    fn attach<'a>(&'a self, of: &'a ContainerId, how: Attach) -> BoxFuture<'a, Result<Running, Refusal>>;

    /// Connects to a port on the loopback of a Pod's network namespace: 127.0.0.1, then ::1.
    fn dial<'a>(&'a self, pod: &'a PodId, port: u16) -> BoxFuture<'a, Result<TcpStream, Refusal>>;

    /// A directory or file of the logs of this node (`pods/NAMESPACE_NAME_UID/CONTAINER/N.log`); `None` when there is none at this path.
    fn log_files<'a>(&'a self, path: &'a [String]) -> BoxFuture<'a, Option<LogFiles>>;

    /// Prometheus metrics of the agent, in the text format of OpenMetrics.
    fn metrics(&self) -> String;

    /// The Pods of this node, a v1.PodList.
    fn pods(&self) -> serde_json::Value;
}

/// Identifies a Pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodId {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Identifies a container, init containers included.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerId {
    /// The Pod.
    pub pod: PodId,
    /// The name of the container in it.
    pub container: String,
}

/// Log options. `limitBytes` is applied by the endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Stream new lines.
    pub follow: bool,
    /// Only this many lines from the end.
    pub tail_lines: Option<u64>,
    /// Only lines written at this time or later.
    pub since: Option<Timestamp>,
    /// Prefix each line with its timestamp (RFC 3339, nanoseconds) and a space.
    pub timestamps: bool,
    /// The log of the previous instance.
    pub previous: bool,
}

/// A directory or file of logs.
pub enum LogFiles {
    /// The names in a directory; those of directories end with a slash.
    Directory(Vec<String>),
    /// The content of a file.
    File(LogReader),
}

/// The content of a log.
pub type LogReader = Box<dyn AsyncRead + Send + Unpin>;

/// An output stream of a process.
pub type Output = Box<dyn AsyncRead + Send + Unpin>;

/// The input stream of a process.
pub type Input = Box<dyn AsyncWrite + Send + Unpin>;

/// A command for a container, and the requested streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "the four switches of the Kubernetes API")]
pub struct Exec {
    /// The program and its arguments; never empty.
    pub command: Vec<String>,
    /// Whether stdin is attached.
    pub stdin: bool,
    /// Whether stdout is attached.
    pub stdout: bool,
    /// Whether stderr is attached; never together with `tty`.
    pub stderr: bool,
    /// Whether it has a terminal: one output stream, and a size.
    pub tty: bool,
}

/// The requested streams of a container's main process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "the four switches of the Kubernetes API")]
pub struct Attach {
    /// Whether stdin is attached.
    pub stdin: bool,
    /// Whether stdout is attached.
    pub stdout: bool,
    /// Whether stderr is attached; never together with `tty`.
    pub stderr: bool,
    /// Whether it has a terminal: one output stream, and a size.
    pub tty: bool,
}

/// A process with its streams.
///
/// Requested streams are present unless the process has no such stream. Dropping or shutting down `stdin` is end of input. `exit` resolves when the
/// process has exited, which may be before all output was read. Dropping `exit` earlier kills a process that `exec` started, but never one that was
/// attached to.
pub struct Running {
    /// Standard input.
    pub stdin: Option<Input>,
    /// Standard output.
    pub stdout: Option<Output>,
    /// Standard error.
    pub stderr: Option<Output>,
    /// Terminal sizes.
    pub resize: Option<mpsc::Sender<Size>>,
    /// The exit status.
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

/// The exit status of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The exit code; 128 + N for signal N.
    Code(i32),
    /// Unknown, with the reason.
    Failed(String),
}

/// Why a request to a workload failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// No such Pod on this node.
    #[error("pod does not exist")]
    NoPod,
    /// The Pod has no such container.
    #[error("container not found ({container:?})")]
    NoContainer {
        /// The requested name.
        container: String,
    },
    /// The container is not running, or has no previous instance.
    #[error("container {container:?} is not running: {why}")]
    NotRunning {
        /// The container.
        container: String,
        /// Its state: `ContainerCreating`, `CrashLoopBackOff`, `exited with 1`.
        why: String,
    },
    /// The request is invalid.
    #[error("{0}")]
    Bad(String),
    /// An operation failed.
    #[error("{0}")]
    Failed(String),
}
