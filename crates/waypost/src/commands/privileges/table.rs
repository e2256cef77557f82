//! The capabilities that the components of a machine use, with reasons. All others are dropped at start.
//!
//! Programs that they start as root get at most these. Where Pods run, the bounding set is unchanged, since a `privileged` Pod has every
//! capability; only the process itself has fewer.

use kernel::privileges::Capabilities;

/// The user of a capability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    /// Proxy, DNS, gateway, announcers: always.
    Services,
    /// Programs that they run, not the process itself.
    Programs,
    /// The agent.
    Agent,
    /// `up --dev`, which removes its data at exit.
    Removal,
}

/// The components of a process.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Parts {
    /// Whether the agent runs.
    pub(in crate::commands) agent: bool,
    /// Whether data are removed at exit.
    pub(in crate::commands) removes_data: bool,
}

/// The table.
const USED: [(Capabilities, &[Who], &str); 17] = [
    (
        Capabilities::NET_ADMIN,
        &[Who::Services],
        "nftables, IPVS, connection tracking, links, addresses, marks, transparent sockets",
    ),
    (Capabilities::NET_RAW, &[Who::Services], "ARP and neighbour discovery for announced addresses; iptables"),
    (Capabilities::NET_BIND_SERVICE, &[Who::Services], "ports below 1024: names, gateways, node ports, health checks"),
    (Capabilities::SYS_MODULE, &[Who::Programs], "modprobe, which iptables runs for what the kernel has as modules"),
    (
        Capabilities::DAC_OVERRIDE,
        &[Who::Agent, Who::Removal],
        "files of volumes and images, and of the API server at the end of --dev",
    ),
    (Capabilities::CHOWN, &[Who::Agent], "owners of files of images, and groups of volumes"),
    (Capabilities::FOWNER, &[Who::Agent], "modes and times of such files"),
    (Capabilities::FSETID, &[Who::Agent], "set-group-ID bits of volumes and of files of images"),
    (Capabilities::SETFCAP, &[Who::Agent], "file capabilities of programs in images"),
    (Capabilities::MKNOD, &[Who::Agent], "devices of images and of containers"),
    (Capabilities::SYS_ADMIN, &[Who::Agent], "namespaces and mounts of Pods, control groups"),
    (Capabilities::SYS_CHROOT, &[Who::Agent], "entering the mount namespace of a container"),
    (Capabilities::SYS_PTRACE, &[Who::Agent], "namespaces and files of containers by way of /proc"),
    (Capabilities::SYS_RESOURCE, &[Who::Agent], "OOM scores and limits of containers"),
    (Capabilities::KILL, &[Who::Agent], "signals to containers of other users"),
    (Capabilities::SETUID, &[Who::Agent], "the user of a probe or hook"),
    (Capabilities::SETGID, &[Who::Agent], "the groups of a probe or hook"),
];

/// The capabilities of the process itself.
pub(super) fn used(parts: Parts) -> Capabilities {
    of(|who| match who {
        Who::Services => true,
        Who::Programs => false,
        Who::Agent => parts.agent,
        Who::Removal => parts.removes_data,
    })
}

/// The capabilities of programs that it starts.
pub(super) fn programs(parts: Parts) -> Capabilities {
    if parts.agent {
        kernel::privileges::bounding_set()
    } else {
        of(|who| matches!(who, Who::Services | Who::Programs))
    }
}

fn of(is_wanted: impl Fn(Who) -> bool) -> Capabilities {
    let wanted = USED.iter().filter(|(_, users, _)| users.iter().any(|who| is_wanted(*who)));
    wanted.fold(Capabilities::empty(), |all, (one, ..)| all | *one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_agent_its_capabilities_are_dropped() {
        let services = Capabilities::NET_ADMIN | Capabilities::NET_RAW | Capabilities::NET_BIND_SERVICE;
        let (alone, all) = (Parts { agent: false, removes_data: false }, Parts { agent: true, removes_data: false });
        assert_eq!(used(alone), services);
        assert_eq!(used(Parts { removes_data: true, ..alone }), services | Capabilities::DAC_OVERRIDE);
        assert_eq!(programs(alone), services | Capabilities::SYS_MODULE);
        assert!(used(all).contains(services | Capabilities::SYS_ADMIN));
        for unused in
            [Capabilities::SYS_MODULE, Capabilities::SYS_BOOT, Capabilities::SYS_TIME, Capabilities::SYS_RAWIO]
        {
            assert!(!used(all).contains(unused));
        }
    }

    #[test]
    fn every_line_has_one_capability_and_a_reason() {
        for (one, who, why) in USED {
            assert!(one.bits().count_ones() == 1 && !who.is_empty() && !why.is_empty(), "{one:?}");
            let lines = USED.iter().filter(|(other, ..)| *other == one).count();
            assert_eq!(lines, 1, "{one:?} of {who:?} has two lines");
        }
    }
}
