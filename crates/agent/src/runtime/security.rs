//! What a container may do to the kernel: capabilities, system calls, files below `/proc` and `/sys`.
//!
//! In: the security contexts of a Pod and a container. Out: [`Security`], which both runtimes apply. What is not said is as in Kubernetes with
//! `--seccomp-default`: the default capabilities, the default seccomp profile, masked paths. A privileged container has no such bounds.

use std::path::PathBuf;

use api::value::ValueExt as _;

use super::program::{all, capabilities, capability_names, setting};
use super::{Refused, Wish};
use crate::seccomp::{self, Choice, Resolved};
use crate::shim::Program;

/// The rights that containers have unless they ask for others: those that are usual elsewhere, without `NET_RAW`, with which a container could
/// send any packet. `ping` works without it (`net.ipv4.ping_group_range`).
pub(crate) const USUAL: [&str; 13] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// Files and folders of the kernel that would tell too much about the machine; as those of kubelet.
const MASKED: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// Files and folders of the kernel that change the machine when they are written.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// What a container sees of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// Looks empty.
    pub(crate) masked: Vec<PathBuf>,
    /// Cannot be written.
    pub(crate) locked: Vec<PathBuf>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Security {
    /// Whether it has no bounds.
    pub(crate) privileged: bool,
    /// The capabilities that it may have at most, as bits.
    pub(crate) capabilities: u64,
    /// Its system calls; none when it may make all.
    pub(crate) seccomp: Option<Resolved>,
}

impl Security {
    /// Reads what a container asks for; the capabilities `usual` are those of one that asks for nothing.
    ///
    /// # Errors
    /// When its seccomp profile cannot be had.
    pub(crate) fn of(wish: &Wish<'_>, usual: u64) -> Result<Self, Refused> {
        let privileged = wish.container.flag("securityContext.privileged");
        let base = if privileged { all() } else { usual };
        // What programs that we start cannot have we cannot give. The agent itself has less.
        let ours = kernel::privileges::bounding_set().bits();
        let capabilities = capabilities(wish.container, base).unwrap_or(base) & ours;
        let choice = seccomp::choose(setting(wish, "seccompProfile"), privileged)?;
        let host = seccomp::Host::of_this_machine(capability_names(capabilities));
        let seccomp = match choice {
            Choice::Unconfined => None,
            // As containerd does where the kernel has no filters and nobody asked for one.
            Choice::Unset if !kernel::seccomp::is_available() => None,
            Choice::Unset | Choice::RuntimeDefault => Some(seccomp::default(&host)?),
            Choice::Localhost(name) => Some(seccomp::localhost(&wish.machine.home.seccomp(), name, &host)?),
        };
        Ok(Self { privileged, capabilities, seccomp })
    }

    /// Bounds a program, and the commands that are run beside it.
    ///
    /// # Errors
    /// When its filter is longer than the kernel takes.
    pub(crate) fn bind(&self, program: &mut Program) -> Result<(), Refused> {
        program.capabilities = Some(self.capabilities);
        program.seccomp = self.seccomp.as_ref().map(Resolved::filter).transpose()?;
        Ok(())
    }

    /// What it sees of the kernel. Counters of temperature are there for each processor.
    pub(crate) fn kernel_files(&self) -> Kernel {
        if self.privileged {
            return Kernel { masked: Vec::new(), locked: Vec::new() };
        }
        let processors = std::fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
        let throttles = processors.map(|entry| entry.path().join("thermal_throttle")).filter(|path| path.is_dir());
        let mut masked: Vec<PathBuf> = MASKED.map(PathBuf::from).into_iter().chain(throttles).collect();
        masked.sort_unstable();
        Kernel { masked, locked: READ_ONLY.map(PathBuf::from).to_vec() }
    }
}
