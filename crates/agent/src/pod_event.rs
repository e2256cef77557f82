//! Events that the worker of a Pod handles: changes of the Pod object, and results of the tasks that it started.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;

use crate::container_error::ContainerError;
use crate::facts::StorageUsage;
use crate::probes::ProbeOutcome;
use crate::probes::run::ProbeError;
use crate::sandbox_error::SandboxError;
use crate::shim::{ExitRecord, StartRecord};

/// An event of a Pod. Numbers are those of container instances, counted from 0.
#[derive(Debug)]
pub enum PodEvent {
    /// The Pod object was created or changed.
    Updated(Arc<Value>),
    /// The Pod object was deleted.
    Deleted,
    /// The sandbox was created, with these addresses, or creation failed.
    SandboxCreated(Result<Vec<IpAddr>, SandboxError>),
    /// The sandbox was removed, or removal failed.
    SandboxRemoved(Result<(), SandboxError>),
    /// An instance of a container was started, with the image ID, or the start failed.
    Started(String, u32, Result<(StartRecord, String), ContainerError>),
    /// A previous agent ended while it started this instance; the instance was not started and will not be.
    NotStarted(String, u32),
    /// An instance exited.
    Exited(String, u32, ExitRecord),
    /// The postStart hook of an instance finished.
    PostStartDone(String, u32, Result<(), ProbeError>),
    /// A probe of an instance changed its result.
    ProbeResult(String, u32, ProbeOutcome),
    /// The ephemeral storage was measured.
    StorageMeasured(StorageUsage),
    /// A ConfigMap or Secret that the Pod mounts changed.
    RefreshVolumes,
    /// Reconcile without another change.
    Resync,
}
