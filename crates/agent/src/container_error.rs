//! Why a container cannot be started: the reason and message of its waiting state.

use std::fmt::Display;

use thiserror::Error;

/// An error that is shown in the status of a container. Reasons and messages are those of the kubelet where it has one.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct ContainerError {
    /// `CreateContainerConfigError`, `ErrImagePull`, …
    pub reason: &'static str,
    /// One sentence, with the next step.
    pub message: String,
}

impl ContainerError {
    /// The spec cannot be applied.
    pub(crate) fn config(message: impl Display) -> Self {
        Self { reason: "CreateContainerConfigError", message: message.to_string() }
    }

    /// Creating the container failed.
    pub(crate) fn create(message: impl Display) -> Self {
        Self { reason: "CreateContainerError", message: message.to_string() }
    }
}
