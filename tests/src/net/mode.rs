//! The proxy modes, and the limitations of each that tests must respect.
//!
//! In: the name of a mode. Out: the arguments of a proxy in that mode, and its documented differences. Tests check these
//! instead of naming modes, so a new mode is one more row.

use super::Protocol;

/// Which mode the suite runs in; without it, the default of the program.
const CHOICE: &str = "WAYPOST_TEST_PROXY_MODE";

/// A proxy mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Its name, as in `--proxy-mode` and at `/proxyMode`.
    pub name: &'static str,
    /// Its supported protocols.
    pub protocols: &'static [Protocol],
    /// Whether an endpoint sees the address of a Pod that connects to a cluster IP.
    pub keeps_source: bool,
    /// Whether unknown ports of a Service and unknown Service addresses are refused, and not routed away.
    pub refuses_unknown: bool,
    /// Whether Services work while the program is stopped.
    pub outlives_program: bool,
    /// Whether the affinity of an absent client expires as soon as its timeout is over.
    pub forgets_soon: bool,
    /// Whether all endpoints are as likely for every connection.
    pub is_random: bool,
    /// Whether changes that are written together come into force at one moment. With iptables each table does by itself: what
    /// refuses goes after what leads to endpoints has come.
    pub writes_at_once: bool,
}

/// Every mode.
pub const MODES: &[Mode] = &[
    NFTABLES,
    Mode { name: "iptables", writes_at_once: false, ..NFTABLES },
    Mode { name: "ipvs", is_random: false, forgets_soon: false, writes_at_once: false, ..NFTABLES },
    Mode {
        name: "userspace",
        protocols: &[Protocol::Tcp, Protocol::Udp],
        keeps_source: false,
        outlives_program: false,
        is_random: false,
        ..NFTABLES
    },
];

/// The one that others are measured by.
const NFTABLES: Mode = Mode {
    name: "nftables",
    protocols: &Protocol::ALL,
    keeps_source: true,
    refuses_unknown: true,
    outlives_program: true,
    forgets_soon: true,
    is_random: true,
    writes_at_once: true,
};

impl Mode {
    /// The mode that is under test.
    #[must_use]
    pub fn under_test() -> Self {
        let Ok(name) = std::env::var(CHOICE) else { return MODES[0] };
        let found = MODES.iter().find(|mode| mode.name == name);
        *found.unwrap_or_else(|| panic!("{CHOICE}={name}: there is no such mode"))
    }
}
