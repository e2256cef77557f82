//! Security settings of a container: capabilities, seccomp, masked and read-only paths.
//!
//! In: the security contexts of a Pod and a container. Out: [`Security`], which both runtimes apply. Defaults are those of Kubernetes with
//! `--seccomp-default`: default capabilities, default seccomp profile, masked paths. A privileged container has none of these restrictions.

use std::path::PathBuf;

use api::value::ValueExt as _;

use super::ContainerConfig;
use super::program::{all, capabilities, capability_names, setting};
use crate::container_error::ContainerError;
use crate::seccomp::{self, Choice, Resolved};
use crate::shim::Program;

/// The default capabilities: those of containerd and CRI-O without `NET_RAW`, which allows spoofed packets. `ping` works without it
/// (`net.ipv4.ping_group_range`).
pub(crate) const DEFAULT_CAPABILITIES: [&str; 13] = [
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

/// Masked paths, which would leak information about the host; those of the kubelet.
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

/// Read-only paths, whose files change the host.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Restrictions on kernel files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// Masked paths.
    pub(crate) masked: Vec<PathBuf>,
    /// Read-only paths.
    pub(crate) locked: Vec<PathBuf>,
}

/// Security settings of a container.
#[derive(Debug)]
pub(crate) struct Security {
    /// Whether it is privileged.
    pub(crate) privileged: bool,
    /// The capability bounding set, as bits.
    pub(crate) capabilities: u64,
    /// The seccomp profile; `None` is unconfined.
    pub(crate) seccomp: Option<Resolved>,
}

impl Security {
    /// Reads the security contexts; `default_capabilities` are the default capabilities.
    ///
    /// # Errors
    /// When its seccomp profile cannot be loaded.
    pub(crate) fn of(config: &ContainerConfig<'_>, default_capabilities: u64) -> Result<Self, ContainerError> {
        let privileged = config.container.flag("securityContext.privileged");
        let base = if privileged { all() } else { default_capabilities };
        // The bounding set of the agent's children is the upper limit.
        let ours = kernel::privileges::bounding_set().bits();
        let capabilities = capabilities(config.container, base).unwrap_or(base) & ours;
        let choice = seccomp::choose(setting(config, "seccompProfile"), privileged)?;
        let host = seccomp::Host::of_this_machine(capability_names(capabilities));
        let seccomp = match choice {
            Choice::Unconfined => None,
            // As containerd does on kernels without seccomp when no profile is requested.
            Choice::Unset if !kernel::seccomp::is_available() => None,
            Choice::Unset | Choice::RuntimeDefault => Some(seccomp::default(&host)?),
            Choice::Localhost(name) => Some(seccomp::localhost(&config.machine.dir.seccomp(), name, &host)?),
        };
        Ok(Self { privileged, capabilities, seccomp })
    }

    /// Applies the settings to a program and to commands executed in its container.
    ///
    /// # Errors
    /// When the seccomp filter is too long for the kernel.
    pub(crate) fn apply(&self, program: &mut Program) -> Result<(), ContainerError> {
        program.capabilities = Some(self.capabilities);
        program.seccomp = self.seccomp.as_ref().map(Resolved::filter).transpose()?;
        Ok(())
    }

    /// Masked and read-only paths; thermal throttle counters exist per CPU.
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
