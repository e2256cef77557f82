//! Why a sandbox cannot be created or removed.

use std::io;

use client::requests::ApiError;
use kernel::pod_network::PodNetworkError;
use thiserror::Error;

use crate::pool::PoolError;
use crate::volumes::VolumeError;
/// Why a sandbox cannot be created or removed.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// No Pod IP.
    #[error(transparent)]
    Address(#[from] PoolError),
    /// The network could not be set up.
    #[error(transparent)]
    Network(#[from] PodNetworkError),
    /// A volume could not be set up.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// An object of a volume could not be read.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The task did not finish.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    /// A program of this machine listens on a hostPort.
    #[error("hostPort {0} is used by another program of this node; select another port or stop the program")]
    HostPort(u16),
    /// A file system or kernel operation failed.
    #[error("{doing}: {source}")]
    Machine {
        /// The operation.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
}

impl SandboxError {
    /// The reason of the Event when a sandbox cannot be created.
    pub(crate) fn event_reason(&self) -> &'static str {
        match self {
            Self::Volume(VolumeError::Config { .. } | VolumeError::HostPath { .. }) => "FailedMount",
            _ => "FailedCreatePodSandBox",
        }
    }
}
