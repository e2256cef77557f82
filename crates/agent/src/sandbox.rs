//! The network, the names and the folders of a Pod: made before its containers, taken away after them.
//!
//! In: a Pod, and the files of its volumes. Out: a namespace with a wire and addresses, `/etc/hosts`, `/etc/resolv.conf`, volumes, a
//! control group. What is there is kept, so that an agent that comes back finds its Pods as they were.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use api::value::ValueExt as _;
use kernel::cgroups::Cgroups;
use kernel::pod_network::{Bridge, PodNetworkError, Port, Wire};
use kernel::process::{Handle, Identity, Signal};
use kernel::{mounts, namespace};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::agent::network;
use crate::amounts;
use crate::environment::ConfigError;
use crate::files;
use crate::home::PodHome;
use crate::machine::{Door, Machine};
use crate::names;
use crate::pool::{self, PoolError};
use crate::shim::{self, BEGUN, Begun, Claim};
use crate::volumes::payload::Payload;
use crate::volumes::{self, VolumeError};

/// Why there is no sandbox.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// No address.
    #[error(transparent)]
    Address(#[from] PoolError),
    /// No network.
    #[error(transparent)]
    Network(#[from] PodNetworkError),
    /// No volume.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The disk or the kernel.
    #[error("{doing}: {source}")]
    Machine {
        /// What was being done.
        doing: &'static str,
        /// What went wrong.
        source: io::Error,
    },
}

/// How often what was killed is looked for, each time for a tenth of a second or more.
const ATTEMPTS: usize = 50;

/// How long until a group is tried again that could not be removed.
const PAUSE: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// How long somebody is waited for who has the claim of a container and cannot be told.
const PATIENCE: Duration = Duration::from_secs(5);

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> SandboxError {
    move |source| SandboxError::Machine { doing, source }
}

/// What is written down of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The start of the machine at which it was made.
    pub boot: String,
    /// The Pod's addresses.
    pub addresses: Vec<IpAddr>,
    /// The hardware address of its wire; nothing in the network of the machine, and in what older versions have written.
    #[serde(default)]
    pub hardware: Option<[u8; 6]>,
}

/// The name of a Pod's wire at the bridge.
#[must_use]
pub fn wire_name(uid: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, uid.as_bytes());
    let hex = digest.as_ref().iter().take(6).map(|byte| format!("{byte:02x}"));
    format!("wp{}", hex.collect::<String>())
}

/// The hardware address of a Pod's wire: made up, and the same every time.
#[must_use]
pub fn hardware(uid: &str) -> [u8; 6] {
    let digest = ring::digest::digest(&ring::digest::SHA256, uid.as_bytes());
    let mut out: [u8; 6] = digest.as_ref().first_chunk().copied().unwrap_or_default();
    // Of one device, and given by hand.
    out[0] = out[0] & 0xfe | 0x02;
    out
}

/// The ports of Pods that an earlier agent has left at the bridge, with their addresses.
#[must_use]
pub fn ports(machine: &Machine) -> Vec<Port> {
    let port = |uid: String| {
        let home = machine.home.pod(&uid);
        let kept: Kept = files::get(&home.sandbox()).filter(|_| namespace::is_namespace(&home.netns()))?;
        // Before there was a note of it, nobody had a reason to change it.
        let hardware = kept.hardware.or_else(|| machine.network.lock().hardware(&home.netns()).ok())?;
        Some(Port { name: wire_name(&uid), hardware, addresses: kept.addresses })
    };
    machine.home.uids().into_iter().filter_map(port).collect()
}

/// Makes the sandbox of a Pod. Waits for the kernel.
///
/// # Errors
/// What could not be made.
pub fn make(
    machine: &Machine,
    pod: &Value,
    payloads: &BTreeMap<String, Result<Payload, ConfigError>>,
) -> Result<Vec<IpAddr>, SandboxError> {
    let uid = pod.text("metadata.uid");
    let home = machine.home.pod(uid);
    fs::create_dir_all(home.path().join("volumes")).map_err(failed("making the Pod's folder"))?;
    fs::create_dir_all(home.path().join("containers")).map_err(failed("making the Pod's folder"))?;
    machine
        .groups
        .make(&Machine::pod_group(uid), &amounts::pod_limits(pod))
        .map_err(failed("making a control group"))?;
    let (addresses, hardware) = match pod.flag("spec.hostNetwork") {
        true => (machine.host.clone(), None),
        false => network(machine, uid, &home).map(|(addresses, hardware)| (addresses, Some(hardware)))?,
    };
    let domain = &machine.settings.domain;
    let hosts = match pod.flag("spec.hostNetwork") {
        true => fs::read_to_string("/etc/hosts").unwrap_or_default() + &names::aliases(pod),
        false => names::hosts(pod, &addresses, domain),
    };
    files::write(&home.hosts(), hosts.as_bytes()).map_err(failed("writing /etc/hosts"))?;
    let host = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let (resolver, warnings) = names::resolver(pod, domain, &machine.dns(), &host);
    for warning in warnings {
        let (reason, message) = match warning {
            api::resolv_conf::Warning::Cut(message) => ("DNSConfigForming", message),
            api::resolv_conf::Warning::NoClusterDns(message) => ("MissingClusterDNS", message),
        };
        machine.teller.tell(pod, None, false, reason, message);
    }
    files::write(&home.resolv_conf(), resolver.as_bytes()).map_err(failed("writing /etc/resolv.conf"))?;
    volumes::prepare(pod, &home, payloads)?;
    open_doors(machine, pod, &addresses)?;
    let boot = kernel::process::boot_id().map_err(failed("reading which start of the machine this is"))?;
    let kept = Kept { boot, addresses: addresses.clone(), hardware };
    files::put(&home.sandbox(), &kept).map_err(failed("noting the network"))?;
    Ok(addresses)
}

fn network(machine: &Machine, uid: &str, home: &PodHome) -> Result<(Vec<IpAddr>, [u8; 6]), SandboxError> {
    let ranges = machine.ranges.borrow().clone();
    let addresses = machine.pool.lock().take(uid, &ranges)?;
    namespace::make(&home.netns()).map_err(failed("making a network namespace"))?;
    let gateways: Vec<IpAddr> = ranges.iter().filter_map(pool::gateway).collect();
    let (name, bridge) = (wire_name(uid), machine.settings.bridge.clone());
    let mut network = machine.network.lock();
    // What is longer than the way out of this machine carries would be lost on it, or cut.
    let out = machine.host.iter().find(|ip| !ip.is_loopback());
    let mtu = out.map_or(Ok(None), |ip| network.mtu(*ip))?;
    let (namespace, hardware) = (home.netns(), hardware(uid));
    let wire = Wire { name, bridge, namespace, addresses: addresses.clone(), gateways, mtu, hardware };
    match network.plug(&wire) {
        // Somebody may have taken the bridge away.
        Err(error) if error.errno == kernel::Errno::NODEV => {
            network.bridge(&bridge_of(machine))?;
            network.plug(&wire)?;
        }
        plugged => plugged?,
    }
    // One that was there before may have another.
    let hardware = network.hardware(&wire.namespace)?;
    Ok((addresses, hardware))
}

/// Opens the ports of this machine that a Pod asks for, or closes those it had.
///
/// # Errors
/// When rules cannot be written.
pub fn open_doors(machine: &Machine, pod: &Value, addresses: &[IpAddr]) -> Result<(), SandboxError> {
    let doors = if pod.flag("spec.hostNetwork") { Vec::new() } else { Door::of(pod, addresses) };
    let mut all = machine.doors.lock();
    let before = match doors.is_empty() {
        true => all.remove(pod.text("metadata.uid")),
        false => all.insert(pod.text("metadata.uid").to_owned(), doors.clone()),
    };
    drop(all);
    if before.unwrap_or_default() == doors {
        return Ok(());
    }
    network::write_rules(machine).map_err(failed("opening hostPorts"))
}

/// The bridge that this machine should have.
#[must_use]
pub fn bridge_of(machine: &Machine) -> Bridge {
    let ranges = machine.ranges.borrow();
    let with_prefix = |range: &ipnet::IpNet| {
        let ip = pool::gateway(range)?;
        ipnet::IpNet::new(ip, range.prefix_len()).ok()
    };
    Bridge { name: machine.settings.bridge.clone(), addresses: ranges.iter().filter_map(with_prefix).collect() }
}

/// What is left of a sandbox from before: its addresses, when all of it is still there.
#[must_use]
pub fn find(home: &PodHome, host_network: bool) -> Option<Vec<IpAddr>> {
    let kept: Kept = files::get(&home.sandbox())?;
    let same_boot = kernel::process::boot_id().is_ok_and(|boot| boot == kept.boot);
    let whole = host_network || namespace::is_namespace(&home.netns());
    (same_boot && whole).then_some(kept.addresses)
}

/// Takes a sandbox away: processes that are left, the wire, the namespace, mounts, the control group. The folder stays.
///
/// # Errors
/// What could not be taken away.
pub fn remove(machine: &Machine, pod: &Value) -> Result<(), SandboxError> {
    let uid = pod.text("metadata.uid");
    open_doors(machine, pod, &[])?;
    end_processes(&machine.groups, &machine.home.pod(uid), &Machine::pod_group(uid))
        .map_err(failed("ending processes"))?;
    machine.network.lock().delete(&wire_name(uid))?;
    dismantle(&machine.home.pod(uid))?;
    Ok(machine.pool.lock().give_back(uid)?)
}

/// Kills every process of a Pod that runs now, without waiting for its end.
pub fn kill_processes(groups: &Cgroups, home: &PodHome, group: &str) {
    groups.kill(group);
    // Where there are no control groups: with its first process all of a container goes.
    for container in begun(home, Begun::process) {
        shim::signal(container, Signal::KILL);
    }
}

/// Kills every process of a Pod and removes its control group: containers, and supervisors, which end by themselves after them.
///
/// # Errors
/// When something is still there after a while.
pub fn end_processes(groups: &Cgroups, home: &PodHome, group: &str) -> io::Result<()> {
    take_orders_back(home);
    let mut known = begun(home, Begun::shim);
    known.extend(begun(home, Begun::process));
    for _ in 0..ATTEMPTS {
        kill_processes(groups, home, group);
        let pids = groups.processes(group);
        let all = pids.iter().filter_map(|pid| Identity::of(*pid)).chain(known.iter().copied());
        let mut handles: Vec<Handle> = all.filter_map(|who| who.open().ok().flatten()).collect();
        // Those that only wait for somebody to ask how they ended may wait for ever: not every machine has one who does.
        handles.retain(|handle| !handle.has_ended());
        if handles.is_empty() && groups.remove(group).is_ok() {
            return Ok(());
        }
        for handle in &handles {
            let _ = handle.ends_within(Duration::from_millis(100));
        }
        if handles.is_empty() {
            // The kernel has a little to do until a group without processes can go.
            let _ = rustix::event::poll(&mut [], Some(&PAUSE));
        }
    }
    groups.remove(group)?;
    let left = known.iter().filter_map(|who| who.open().ok().flatten().filter(|handle| !handle.has_ended())).count();
    match left {
        0 => Ok(()),
        _ => {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("{left} of its processes were killed and do not end")))
        }
    }
}

fn folders(path: &Path) -> impl Iterator<Item = std::path::PathBuf> + use<> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir())
}

/// Sees to it that no supervisor begins a container from here on. One that does so just now is ended: what it begins would be, too.
fn take_orders_back(home: &PodHome) {
    for container in folders(&home.path().join("containers")) {
        let claim = Claim::wrest(&container, PATIENCE);
        for instance in folders(&container) {
            let _ = claim.as_ref().map(|claim| claim.settle(&instance));
        }
    }
}

/// Those of a Pod that have begun and are there: the supervisors of its containers, or the first processes of these.
fn begun(home: &PodHome, which: impl Fn(&Begun) -> Identity) -> Vec<Identity> {
    let instances = folders(&home.path().join("containers")).flat_map(|container| folders(&container));
    let begun = instances.filter_map(|instance| files::get::<Begun>(&instance.join(BEGUN)));
    begun.map(|begun| which(&begun)).filter(Identity::is_there).collect()
}

/// Takes away what a Pod's folder holds in mounts.
///
/// # Errors
/// What could not be taken away.
pub fn dismantle(home: &PodHome) -> Result<(), SandboxError> {
    namespace::remove(&home.netns()).map_err(failed("removing the network namespace"))?;
    let below = |path: &Path| mounts::detach_below(path);
    below(home.path()).map_err(failed("taking mounts away"))?;
    Ok(())
}
