//! The sandbox of a Pod: created before its containers, removed after them.
//!
//! In: a Pod, and the files of its volumes. Out: a network namespace with a veth pair and addresses, `/etc/hosts`, `/etc/resolv.conf`, volumes, a
//! control group. Existing parts are kept, so that a restarted agent finds its Pods unchanged.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::time::Duration;

use api::value::ValueExt as _;
use kernel::cgroups::Cgroups;
use kernel::pod_network::{Bridge, Port, Wire};
use kernel::process::{Handle, Identity, Signal};
use kernel::{mounts, namespace};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::data_dir::PodDir;
use crate::environment::ConfigError;
use crate::files;
use crate::machine::{HostPort, Machine, TCP, UDP};
use crate::names;
use crate::pool;
use crate::quantities;
use crate::rules;
use crate::sandbox_error::SandboxError;
use crate::shim::{self, START_FILE, StartLock, StartRecord};
use crate::volumes;
use crate::volumes::payload::Payload;

/// How often killed processes are checked, at least 100 ms each time.
const KILL_ATTEMPTS: usize = 50;

/// The pause before the removal of a control group is retried.
const CGROUP_RETRY_DELAY: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// How long to wait for a start lock whose holder cannot be determined.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> SandboxError {
    move |source| SandboxError::Machine { doing, source }
}

/// The saved sandbox (`sandbox.json`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSandbox {
    /// The boot ID of the host when it was created.
    pub boot: String,
    /// The Pod IPs.
    pub addresses: Vec<IpAddr>,
    /// The MAC address in the Pod; none on the host network and in files of older versions.
    #[serde(default)]
    pub hardware: Option<[u8; 6]>,
}

/// The name of a Pod's veth interface on the host.
#[must_use]
pub fn veth_name(uid: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, uid.as_bytes());
    let hex = digest.as_ref().iter().take(6).map(|byte| format!("{byte:02x}"));
    format!("wp{}", hex.collect::<String>())
}

/// The MAC address of a Pod: derived from its UID.
#[must_use]
pub fn hardware(uid: &str) -> [u8; 6] {
    let digest = ring::digest::digest(&ring::digest::SHA256, uid.as_bytes());
    let mut out: [u8; 6] = digest.as_ref().first_chunk().copied().unwrap_or_default();
    // Unicast, locally administered.
    out[0] = out[0] & 0xfe | 0x02;
    out
}

/// The bridge ports of existing Pods, with their addresses.
#[must_use]
pub fn ports(machine: &Machine) -> Vec<Port> {
    let port = |uid: String| {
        let dir = machine.dir.pod(&uid);
        let saved: SavedSandbox = files::get(&dir.sandbox()).filter(|_| namespace::is_namespace(&dir.netns()))?;
        // Older versions did not save it: read the current one.
        let hardware = saved.hardware.or_else(|| machine.network.lock().hardware(&dir.netns()).ok())?;
        Some(Port { name: veth_name(&uid), hardware, addresses: saved.addresses })
    };
    machine.dir.uids().into_iter().filter_map(port).collect()
}

/// Creates the sandbox of a Pod. Blocks.
///
/// # Errors
/// The first operation that failed.
pub fn create(
    machine: &Machine,
    pod: &Value,
    payloads: &BTreeMap<String, Result<Payload, ConfigError>>,
) -> Result<Vec<IpAddr>, SandboxError> {
    let uid = pod.text("metadata.uid");
    let dir = machine.dir.pod(uid);
    fs::create_dir_all(dir.path().join("volumes")).map_err(failed("creating the Pod directory"))?;
    fs::create_dir_all(dir.path().join("containers")).map_err(failed("creating the Pod directory"))?;
    machine
        .groups
        .make(&Machine::pod_group(uid), &quantities::pod_limits(pod))
        .map_err(failed("creating the control group"))?;
    let (addresses, hardware) = match pod.flag("spec.hostNetwork") {
        true => (machine.host.clone(), None),
        false => network(machine, uid, &dir).map(|(addresses, hardware)| (addresses, Some(hardware)))?,
    };
    let domain = &machine.settings.domain;
    let hosts = match pod.flag("spec.hostNetwork") {
        true => fs::read_to_string("/etc/hosts").unwrap_or_default() + &names::aliases(pod),
        false => names::hosts(pod, &addresses, domain),
    };
    files::write(&dir.hosts(), hosts.as_bytes()).map_err(failed("writing /etc/hosts"))?;
    let host = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let (resolver, warnings) = names::resolver(pod, domain, &machine.dns(), &host);
    for warning in warnings {
        let (reason, message) = match warning {
            api::resolv_conf::Warning::Cut(message) => ("DNSConfigForming", message),
            api::resolv_conf::Warning::NoClusterDns(message) => ("MissingClusterDNS", message),
        };
        machine.recorder.record(pod, None, false, reason, message);
    }
    files::write(&dir.resolv_conf(), resolver.as_bytes()).map_err(failed("writing /etc/resolv.conf"))?;
    volumes::prepare(pod, &dir, payloads)?;
    sync_host_ports(machine, pod, &addresses)?;
    let boot = kernel::process::boot_id().map_err(failed("reading the boot ID"))?;
    let saved = SavedSandbox { boot, addresses: addresses.clone(), hardware };
    files::put(&dir.sandbox(), &saved).map_err(failed("saving the sandbox"))?;
    Ok(addresses)
}

fn network(machine: &Machine, uid: &str, dir: &PodDir) -> Result<(Vec<IpAddr>, [u8; 6]), SandboxError> {
    let ranges = machine.ranges.borrow().clone();
    let addresses = machine.pool.lock().allocate(uid, &ranges)?;
    namespace::make(&dir.netns()).map_err(failed("creating the network namespace"))?;
    let gateways: Vec<IpAddr> = ranges.iter().filter_map(pool::gateway).collect();
    let (name, bridge) = (veth_name(uid), machine.settings.bridge.clone());
    let mut network = machine.network.lock();
    // Larger packets than the uplink's MTU would be dropped or fragmented.
    let out = machine.host.iter().find(|ip| !ip.is_loopback());
    let mtu = out.map_or(Ok(None), |ip| network.mtu(*ip))?;
    let (namespace, hardware) = (dir.netns(), hardware(uid));
    let veth = Wire { name, bridge, namespace, addresses: addresses.clone(), gateways, mtu, hardware };
    match network.plug(&veth) {
        // The bridge may have been deleted.
        Err(error) if error.errno == kernel::Errno::NODEV => {
            network.bridge(&bridge_of(machine))?;
            network.plug(&veth)?;
        }
        plugged => plugged?,
    }
    // An existing interface may have another address.
    let hardware = network.hardware(&veth.namespace)?;
    Ok((addresses, hardware))
}

/// Adds or removes the hostPorts of a Pod.
///
/// # Errors
/// When a program of this machine listens on one of them, or the rules cannot be written.
pub fn sync_host_ports(machine: &Machine, pod: &Value, addresses: &[IpAddr]) -> Result<(), SandboxError> {
    let host_ports = if pod.flag("spec.hostNetwork") { Vec::new() } else { HostPort::of(pod, addresses) };
    let key = (pod.text("metadata.creationTimestamp").to_owned(), pod.text("metadata.uid").to_owned());
    let mut all = machine.host_ports.lock();
    if !all.contains_key(&key)
        && let Some(port) = host_ports.iter().find(|port| is_in_use(port))
    {
        return Err(SandboxError::HostPort(port.host_port));
    }
    let before = match host_ports.is_empty() {
        true => all.remove(&key),
        false => all.insert(key, host_ports.clone()),
    };
    drop(all);
    if before.unwrap_or_default() == host_ports {
        return Ok(());
    }
    rules::sync(machine).map_err(failed("writing hostPort rules"))
}

/// Whether a program of this machine uses a hostPort. The rules would take its connections away: who may create Pods must not receive
/// those of the API server, of the agent or of sshd.
fn is_in_use(port: &HostPort) -> bool {
    let any = if port.to.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let at = SocketAddr::new(port.at.unwrap_or(any), port.host_port);
    let bound = match port.protocol {
        TCP => TcpListener::bind(at).map(drop),
        UDP => UdpSocket::bind(at).map(drop),
        _ => return false,
    };
    // Any other error means that nothing can listen there.
    bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// The desired bridge of this node.
#[must_use]
pub fn bridge_of(machine: &Machine) -> Bridge {
    let ranges = machine.ranges.borrow();
    let with_prefix = |range: &ipnet::IpNet| {
        let ip = pool::gateway(range)?;
        ipnet::IpNet::new(ip, range.prefix_len()).ok()
    };
    Bridge { name: machine.settings.bridge.clone(), addresses: ranges.iter().filter_map(with_prefix).collect() }
}

/// The Pod IPs of an existing sandbox that is complete.
#[must_use]
pub fn find(dir: &PodDir, host_network: bool) -> Option<Vec<IpAddr>> {
    let saved: SavedSandbox = files::get(&dir.sandbox())?;
    let same_boot = kernel::process::boot_id().is_ok_and(|boot| boot == saved.boot);
    let whole = host_network || namespace::is_namespace(&dir.netns());
    (same_boot && whole).then_some(saved.addresses)
}

/// Removes a sandbox: processes, veth pair, network namespace, mounts, control group, Pod IPs. The directory stays.
///
/// # Errors
/// The first operation that failed.
pub fn remove(machine: &Machine, pod: &Value) -> Result<(), SandboxError> {
    let uid = pod.text("metadata.uid");
    sync_host_ports(machine, pod, &[])?;
    kill_all_processes(&machine.groups, &machine.dir.pod(uid), &Machine::pod_group(uid))
        .map_err(failed("killing processes"))?;
    machine.network.lock().delete(&veth_name(uid))?;
    dismantle(&machine.dir.pod(uid))?;
    Ok(machine.pool.lock().release(uid)?)
}

/// Kills every process of a Pod without waiting.
pub fn kill_processes(groups: &Cgroups, dir: &PodDir, group: &str) {
    groups.kill(group);
    // Without control groups: the first process is the init of the container's PID namespace.
    for container in started(dir, StartRecord::process) {
        shim::signal(container, Signal::KILL);
    }
}

/// Kills every process of a Pod and removes its control group. Shims exit after their containers.
///
/// # Errors
/// When processes remain.
pub fn kill_all_processes(groups: &Cgroups, dir: &PodDir, group: &str) -> io::Result<()> {
    revoke_starts(dir);
    let mut known = started(dir, StartRecord::shim);
    known.extend(started(dir, StartRecord::process));
    for _ in 0..KILL_ATTEMPTS {
        kill_processes(groups, dir, group);
        let pids = groups.processes(group);
        let all = pids.iter().filter_map(|pid| Identity::of(*pid)).chain(known.iter().copied());
        let mut handles: Vec<Handle> = all.filter_map(|identity| identity.open().ok().flatten()).collect();
        // Zombies do not count: their parent may never reap them.
        handles.retain(|handle| !handle.has_ended());
        if handles.is_empty() && groups.remove(group).is_ok() {
            return Ok(());
        }
        for handle in &handles {
            let _ = handle.ends_within(Duration::from_millis(100));
        }
        if handles.is_empty() {
            // The kernel may need a moment before an empty group can be removed.
            let _ = rustix::event::poll(&mut [], Some(&CGROUP_RETRY_DELAY));
        }
    }
    groups.remove(group)?;
    let left =
        known.iter().filter_map(|identity| identity.open().ok().flatten().filter(|handle| !handle.has_ended())).count();
    match left {
        0 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{left} processes were killed and do not exit"))),
    }
}

fn folders(path: &Path) -> impl Iterator<Item = std::path::PathBuf> + use<> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir())
}

/// Prevents shims from starting containers from here on. A shim that is starting one is killed.
fn revoke_starts(dir: &PodDir) {
    for container in folders(&dir.path().join("containers")) {
        let lock = StartLock::take_from_holder(&container, LOCK_TIMEOUT);
        for instance in folders(&container) {
            let _ = lock.as_ref().map(|lock| lock.resolve(&instance));
        }
    }
}

/// Live processes of a Pod's start records: its shims, or the first processes of its containers.
fn started(dir: &PodDir, which: impl Fn(&StartRecord) -> Identity) -> Vec<Identity> {
    let instances = folders(&dir.path().join("containers")).flat_map(|container| folders(&container));
    let started = instances.filter_map(|instance| files::get::<StartRecord>(&instance.join(START_FILE)));
    started.map(|started| which(&started)).filter(Identity::is_there).collect()
}

/// Removes the network namespace and all mounts below a Pod's directory.
///
/// # Errors
/// When one cannot be removed.
pub fn dismantle(dir: &PodDir) -> Result<(), SandboxError> {
    namespace::remove(&dir.netns()).map_err(failed("removing the network namespace"))?;
    let below = |path: &Path| mounts::detach_below(path);
    below(dir.path()).map_err(failed("unmounting"))?;
    Ok(())
}
