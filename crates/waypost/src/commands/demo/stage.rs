//! The init process of the demo's namespaces: prepares mounts and network, starts the story, and reaps processes.
//!
//! In: new namespaces without a link, and a control group. Out: mounts and a network in which the story can begin:
//!
//! ```text
//!   outside                          the node
//!   192.0.2.100 ── eth0 ─────────── uplink0 192.0.2.1/24          (Pods: a bridge of the agent, as everywhere)
//! ```
//! Nothing is written to disk: a tmpfs is mounted over `/run`, and is removed with the namespaces.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::exit;

use anyhow::Context as _;
use ipnet::IpNet;
use kernel::cgroups::Cgroups;
use kernel::pod_network::linux::Linux;
use kernel::pod_network::{Bridge, PodNetwork as _, Wire};
use kernel::process::apart;
use kernel::{mounts, namespace};

use super::Arguments;

/// This program, as it is running.
const PROGRAM: &str = "/proc/self/exe";
/// The directory over which a tmpfs is mounted.
const RUN: &str = "/run";
/// The directory of the demo.
const HOME: &str = "/run/waypost-demo";
/// The resolver configuration.
const RESOLVER: &str = "/etc/resolv.conf";
/// The size of the tmpfs, in bytes.
const ROOM: u64 = 512 << 20;

/// The address of the node.
pub(super) const NODE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The address of the client outside.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);
/// The hardware address of the client outside.
const OUTSIDE_HARDWARE: [u8; 6] = [0x0a, 0x58, 192, 0, 2, 100];

/// This program, where Pods find it.
pub(super) fn program() -> PathBuf {
    Path::new(HOME).join("waypost")
}

/// The data directory of the node.
pub(super) fn data_dir() -> PathBuf {
    Path::new(HOME).join("data")
}

/// The log of the node.
pub(super) fn log() -> PathBuf {
    Path::new(HOME).join("log")
}

/// The network namespace outside.
pub(super) fn outside() -> PathBuf {
    Path::new(HOME).join("outside")
}

/// Prepares the namespaces, runs the story, and exits with its code.
pub(super) fn exec(arguments: &Arguments, group: &str) -> anyhow::Result<()> {
    Cgroups::find().confine(group).context("entering the control group")?;
    apart::show_processes().context("mounting /proc")?;
    cover().context("covering /run")?;
    connect().context("creating the network")?;
    let words = arguments.words(&["story"]);
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    exit(apart::lead(Path::new(PROGRAM), &words).context("starting the story")?)
}

/// Mounts an empty tmpfs over `/run`, which contains only this program and the resolver configuration.
fn cover() -> std::io::Result<()> {
    // On many machines it is a symbolic link to a file below `/run`.
    let resolver = fs::canonicalize(RESOLVER).ok().filter(|real| real.starts_with(RUN));
    let resolver = resolver.and_then(|real| Some((fs::read(&real).ok()?, real)));
    // Opened by its path, not by the link in /proc: that one leads to the mounts of the old namespace, which cannot be bind-mounted. Kept
    // open, because the program may be below `/run`, too.
    let own = File::open(std::env::current_exe()?)?;
    mounts::memory(Path::new(RUN), Some(ROOM), 0o755)?;
    if let Some((content, real)) = resolver {
        real.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(real, content)?;
    }
    fs::create_dir_all(HOME)?;
    File::create(program())?;
    mounts::bind(Path::new(&format!("/proc/self/fd/{}", own.as_raw_fd())), &program(), true)
}

/// Creates the uplink of the node, and the client at its other end.
fn connect() -> anyhow::Result<()> {
    let mut network = Linux::open()?;
    network.wake_loopback()?;
    let uplink = "uplink0".to_owned();
    network.bridge(&Bridge { name: uplink.clone(), addresses: vec![IpNet::new(NODE.into(), 24)?] })?;
    namespace::make(&outside())?;
    Ok(network.plug(&Wire {
        name: "outside0".to_owned(),
        bridge: uplink,
        namespace: outside(),
        addresses: vec![IpAddr::V4(OUTSIDE)],
        gateways: vec![IpAddr::V4(NODE)],
        mtu: None,
        hardware: OUTSIDE_HARDWARE,
    })?)
}
