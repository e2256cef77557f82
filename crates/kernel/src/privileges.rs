//! Drops privileges permanently: user and capabilities.
//!
//! In: a user, or the capabilities in use. Out: a process with no more than that. Credentials belong to threads, so
//! everything here refuses to run in a multi-threaded process.

mod account;
mod owner;

use std::fs;
use std::io;

use rustix::process::Signal;
use rustix::thread as credentials;
use rustix::thread::{CapabilitySet, CapabilitySets};

pub use account::{Account, maps};
pub use owner::{OwnerError, directory, take_over};
pub use rustix::thread::CapabilitySet as Capabilities;

/// Whether this process may change its user and chown files.
#[must_use]
pub fn can_change_user() -> bool {
    let wanted = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SETPCAP | CapabilitySet::CHOWN;
    rustix::process::geteuid().is_root() && held().is_ok_and(|sets| sets.effective.contains(wanted))
}

/// The capabilities of this process.
fn held() -> io::Result<CapabilitySets> {
    Ok(credentials::capabilities(None)?)
}

/// Changes to this user permanently: no supplementary groups, only the capabilities `kept`, and no_new_privs.
///
/// # Errors
/// When the process has several threads, or the kernel refuses. The process must exit then: it may have lost part of its privileges.
pub fn become_user(account: &Account, kept: CapabilitySet) -> io::Result<()> {
    single_threaded()?;
    bound(kept)?;
    credentials::set_thread_groups(&[])?;
    credentials::set_thread_res_gid(account.gid(), account.gid(), account.gid())?;
    if !kept.is_empty() {
        credentials::set_keep_capabilities(true)?;
    }
    credentials::set_thread_res_uid(account.uid(), account.uid(), account.uid())?;
    credentials::clear_ambient_capability_set()?;
    let inheritable = CapabilitySet::empty();
    credentials::set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    credentials::set_keep_capabilities(false)?;
    Ok(credentials::set_no_new_privs(true)?)
}

/// Limits this process to the capabilities `used`, and programs that it starts as root to those in `programs`.
///
/// # Errors
/// When the process has several threads, or the kernel refuses.
pub fn limit(used: CapabilitySet, programs: CapabilitySet) -> io::Result<()> {
    single_threaded()?;
    bound(programs | used)?;
    credentials::clear_ambient_capability_set()?;
    let sets = held()?;
    let (effective, permitted) = (sets.effective & used, sets.permitted & used);
    Ok(credentials::set_capabilities(
        None,
        CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() },
    )?)
}

/// Maximum capabilities of programs started as root.
#[must_use]
pub fn bounding_set() -> CapabilitySet {
    let is_in = |one: &CapabilitySet| credentials::capability_is_in_bounding_set(*one).unwrap_or(false);
    every().filter(is_in).fold(CapabilitySet::empty(), |all, one| all | one)
}

/// Removes everything but `kept` from the bounding set.
fn bound(kept: CapabilitySet) -> io::Result<()> {
    for one in every().filter(|one| !kept.contains(*one)) {
        if credentials::capability_is_in_bounding_set(one)? {
            credentials::remove_capability_from_bounding_set(one)?;
        }
    }
    Ok(())
}

/// All capabilities of this kernel, including unknown ones.
fn every() -> impl Iterator<Item = CapabilitySet> {
    let all = (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
    all.take_while(|one| credentials::capability_is_in_bounding_set(*one).is_ok())
}

/// Kills this process when its parent thread ends. Call it after changing the user, which resets it.
///
/// # Errors
/// When the kernel refuses.
pub fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Whether this process may bind a port without a capability.
#[must_use]
pub fn is_unprivileged_port(port: u16) -> bool {
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first = first.ok().and_then(|text| text.trim().parse::<u16>().ok()).unwrap_or(1024);
    port == 0 || port >= first
}

fn single_threaded() -> io::Result<()> {
    match fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        several => Err(io::Error::other(format!("the process has {several} threads, and each keeps its credentials"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_changed_in_multi_threaded_processes() {
        // Tests run on their own thread.
        let error = become_user(&Account::numbered(60_643, 60_643), CapabilitySet::empty()).expect_err("two threads");
        assert!(error.to_string().contains("threads"), "{error}");
        let error = limit(CapabilitySet::empty(), CapabilitySet::empty()).expect_err("two threads");
        assert!(error.to_string().contains("threads"), "{error}");
    }

    #[test]
    fn unprivileged_ports_start_at_the_sysctl() {
        assert!(is_unprivileged_port(0) && is_unprivileged_port(6443));
    }

    #[test]
    fn the_kernel_knows_its_capabilities() {
        assert!(every().count() >= 41);
    }
}
