//! `waypost cleanup`: removes every kernel object that Waypost made on this machine, and ends its Pods.

use std::path::Path;

use anyhow::{Context as _, bail};
use kernel::host_names::HostNames;
use kernel::lock::Lock;

use super::agent;
use super::proxy::modes;
use crate::config::CleanupArguments;

/// Runs the command.
pub(crate) fn exec(arguments: &CleanupArguments) -> anyhow::Result<()> {
    clean(&arguments.place.data_dir, &arguments.pod_bridge)
}

/// Removes everything but data.
///
/// # Errors
/// When a proxy or an agent still runs on this machine, or something cannot be removed.
pub(super) fn clean(data_dir: &Path, bridge: &str) -> anyhow::Result<()> {
    let Some(_turn) = Lock::take(super::proxy::LOCK)? else {
        bail!("a waypost serves Services on this machine and would write its rules again; stop it first");
    };
    let Some(_agent) = Lock::take(agent::LOCK)? else {
        bail!("a waypost runs Pods on this machine and would start them again; stop it first");
    };
    let found = modes::clean_rules(None)? | modes::clean_ipvs(None)?;
    tracing::info!("{}", if found { "removed rules" } else { "no rules found" });
    let pods = agent::clean(data_dir, bridge).context("removing Pods")?;
    if pods > 0 {
        tracing::info!(pods, "removed Pods");
    }
    let demos = super::demo::sweep()?;
    if demos > 0 {
        tracing::info!(demos, "removed leftovers of killed demos");
    }
    if HostNames::default().restore().context("restoring the host's resolv.conf")? {
        tracing::info!("restored the host's resolv.conf");
    }
    if modes::restore_settings()? {
        tracing::info!("restored sysctls");
    }
    Ok(())
}
