//! What the agent leaves on a machine, taken away: processes, namespaces, links, mounts, control groups, rules, settings.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::path::Path;

use agent::data_dir::AgentDir;
use agent::machine::{GROUP, Machine};
use agent::sandbox;
use anyhow::Context as _;
use kernel::cgroups::Cgroups;
use kernel::pod_network::{PodNetwork as _, guard, linux::Linux};

/// Takes everything away that belongs to the agent of a data directory; answers how many Pods there were.
///
/// # Errors
/// The first thing that could not be taken away.
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
    agent::agent::restore_sysctls().context("putting settings of this machine back")?;
    agent::files::remove_folder(home.path()).context("removing the agent's folder")?;
    let groups = Cgroups::find();
    // Another agent of this machine may have its own in there.
    let _ = groups.remove(&format!("{GROUP}/supervisors"));
    for folder in groups.everywhere(GROUP) {
        let _ = std::fs::remove_dir(folder);
    }
    Ok(uids.len())
}

/// How many Pods are ended at once.
const AT_ONCE: usize = 16;

/// Ends what runs for these Pods, several at once: most of the time is waiting for processes to go, so all are killed before any is
/// waited for.
fn end_all(home: &AgentDir, uids: &[String]) -> anyhow::Result<()> {
    let groups = Cgroups::find();
    for uid in uids {
        sandbox::kill_processes(&groups, &home.pod(uid), &Machine::pod_group(uid));
    }
    let share = uids.len().div_ceil(AT_ONCE).max(1);
    let end_some = |some: &[String]| -> anyhow::Result<()> {
        some.iter().try_for_each(|uid| end(home, uid).with_context(|| format!("removing the Pod {uid}")))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = uids.chunks(share).map(|some| scope.spawn(|| end_some(some))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Ends everything that runs for a Pod, and takes away what it was given.
fn end(home: &AgentDir, uid: &str) -> anyhow::Result<()> {
    let groups = Cgroups::find();
    sandbox::kill_all_processes(&groups, &home.pod(uid), &Machine::pod_group(uid))?;
    sandbox::dismantle(&home.pod(uid))?;
    Ok(())
}
