//! Sysctls that IPVS needs, written only where they differ and recorded for restoring.

use std::io;

use kernel::sysctl::{Ledger, Sysctl};

/// IPVS must use conntrack (masquerading needs it) and expire connections and persistence templates of deleted
/// destinations.
const ALWAYS: [(&str, &str); 4] = [
    ("net/ipv4/vs/conntrack", "1"),
    ("net/ipv4/vs/expire_nodest_conn", "1"),
    ("net/ipv4/vs/expire_quiescent_template", "1"),
    ("net/ipv4/ip_forward", "1"),
];
/// With reuse mode 1, kernels 4.1 to 5.8 delay a connection by a second when a client port is reused.
const REUSE: (&str, &str) = ("net/ipv4/vs/conn_reuse_mode", "0");
/// Do not answer ARP for Service addresses on other interfaces.
const STRICT_ARP: [(&str, &str); 2] = [("net/ipv4/conf/all/arp_ignore", "1"), ("net/ipv4/conf/all/arp_announce", "2")];

/// Sets the sysctls and records the changes in the ledger.
///
/// # Errors
/// The sysctl that could not be set, and the cause.
pub fn prepare(sysctl: &mut dyn Sysctl, ledger: &mut Ledger, strict_arp: bool) -> Result<(), (String, io::Error)> {
    let reuse = sysctl.read("kernel/osrelease").is_ok_and(|release| has_reuse_delay(&release)).then_some(REUSE);
    let arp = STRICT_ARP.into_iter().filter(|_| strict_arp);
    for (name, value) in ALWAYS.into_iter().chain(reuse).chain(arp) {
        ledger.set(sysctl, name, value).map_err(|error| (name.to_owned(), error))?;
    }
    Ok(())
}

/// Whether the kernel is between 4.1 and 5.8.
fn has_reuse_delay(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    ((4, 1)..=(5, 8)).contains(&version)
}

#[cfg(test)]
mod tests {
    use kernel::sysctl::Fake;

    use super::*;

    fn machine(release: &str) -> Fake {
        let names = ALWAYS.into_iter().chain([REUSE]).chain(STRICT_ARP).map(|(name, _)| (name, "9"));
        Fake::new(names.chain([("kernel/osrelease", release)]))
    }

    #[test]
    fn sysctls_depend_on_the_kernel_version_and_are_recorded() {
        for (release, strict, count) in [("6.1.0-54-cloud", false, 4), ("5.4.0", false, 5), ("5.10.1", true, 6)] {
            let (mut sysctl, mut ledger) = (machine(release), Ledger::default());
            prepare(&mut sysctl, &mut ledger, strict).expect("set");
            assert_eq!(ledger.changed.len(), count, "{release}");
            assert!(ledger.restore(&mut sysctl).is_empty());
            assert_eq!(sysctl.read("net/ipv4/vs/conntrack").expect("read"), "9");
        }
    }

    #[test]
    fn a_missing_sysctl_is_named_in_the_error() {
        let (name, _) = prepare(&mut Fake::default(), &mut Ledger::default(), false).expect_err("nothing is there");
        assert_eq!(name, "net/ipv4/vs/conntrack");
    }
}
