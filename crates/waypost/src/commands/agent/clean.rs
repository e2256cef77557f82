//! Removes the state of the agent: processes, namespaces, links, mounts, control groups, rules, sysctls.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::path::Path;

use agent::data_dir::AgentDir;
use agent::machine::{GROUP, Machine};
use agent::sandbox;
use anyhow::Context as _;
use kernel::cgroups::Cgroups;
use kernel::pod_network::{PodNetwork as _, guard, linux::Linux};

/// Removes the state of the agent of a data directory; returns the number of Pods.
///
/// # Errors
/// The first failure.
pub(in crate::commands) fn clean(data_dir: &Path, bridge: &str) -> anyhow::Result<usize> {
    let data_dir = std::path::absolute(data_dir)?;
    let home = AgentDir::new(&data_dir);
    let mut network = Linux::open().context("opening the network of Pods; run this as root")?;
    let uids = home.uids();
    end_all(&home, &uids)?;
    for uid in &uids {
        network.delete(&sandbox::veth_name(uid))?;
        agent::files::remove_folder(home.pod(uid).path()).with_context(|| format!("removing the folder of {uid}"))?;
    }
    network.delete(bridge)?;
    network.routes(&BTreeSet::new())?;
    agent::rules::remove_table().context("removing the rules of Pods")?;
    guard::remove_table().context("removing the rules of the bridge of Pods")?;
    agent::agent::restore_sysctls().context("restoring sysctls")?;
    agent::files::remove_folder(home.path()).context("removing the agent's folder")?;
    let groups = Cgroups::find();
    // Another agent of this machine may use it.
    let _ = groups.remove(&format!("{GROUP}/supervisors"));
    for folder in groups.everywhere(GROUP) {
        let _ = std::fs::remove_dir(folder);
    }
    Ok(uids.len())
}

/// Pods that are removed concurrently.
const CONCURRENCY: usize = 16;

/// Removes Pods concurrently. All processes are killed before any is awaited.
fn end_all(home: &AgentDir, uids: &[String]) -> anyhow::Result<()> {
    let groups = Cgroups::find();
    for uid in uids {
        sandbox::kill_processes(&groups, &home.pod(uid), &Machine::pod_group(uid));
    }
    let share = uids.len().div_ceil(CONCURRENCY).max(1);
    let end_some = |some: &[String]| -> anyhow::Result<()> {
        some.iter().try_for_each(|uid| end(home, uid).with_context(|| format!("removing the Pod {uid}")))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = uids.chunks(share).map(|some| scope.spawn(|| end_some(some))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Ends the processes of a Pod, and removes its state.
fn end(home: &AgentDir, uid: &str) -> anyhow::Result<()> {
    let groups = Cgroups::find();
    sandbox::kill_all_processes(&groups, &home.pod(uid), &Machine::pod_group(uid))?;
    sandbox::dismantle(&home.pod(uid))?;
    Ok(())
}
