//! Privilege separation: who the API server runs as, and what the rest of a machine keeps.
//!
//! In: settings, and who started this process. Out: a process that has given up what it does not use, and a data directory in which both
//! users find their files. Processes have one thread as long as this runs: credentials belong to threads.

pub(super) mod data_dir;
mod reach;
mod table;
mod user;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use kernel::privileges::{self, Account, Capabilities};

pub(super) use self::table::Parts;
use self::user::{Choice, Starter};
use crate::config::ServerArguments;

/// Lets a user have what is its own in a data directory.
type Take = fn(&Path, &Account) -> anyhow::Result<()>;

/// The user as which the API server runs, with its files taken over; none: as whoever started it.
///
/// # Errors
/// When the user that was asked for cannot be had, or cannot reach its files. If none was asked for, the API server runs as root then, and a
/// warning says why.
pub(super) fn server_user(settings: &ServerArguments, take: Take) -> anyhow::Result<Option<Account>> {
    let said = settings.user.as_deref();
    let Some(account) = chosen(said)? else { return Ok(None) };
    let data_dir = &settings.place.data_dir;
    // Asked before, because taking over may succeed in part.
    let is_strange = !data_dir::has_files_of(data_dir, &account);
    let (error, may_stay) = match reach::check(settings, &account) {
        Err(error) => (error, true),
        Ok(()) => match take(data_dir, &account) {
            Ok(()) => return Ok(Some(account)),
            // A server that was taken over must not get root back by spoiling its own directory.
            Err(error) => (error, is_strange),
        },
    };
    if said.is_some() || !may_stay {
        return Err(error);
    }
    tracing::warn!("the API server runs as root: {error:#}");
    Ok(None)
}

fn chosen(said: Option<&str>) -> anyhow::Result<Option<Account>> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (passwd, uids, gids) = (read("/etc/passwd"), read("/proc/self/uid_map"), read("/proc/self/gid_map"));
    let starter = Starter {
        is_root: rustix::process::geteuid().is_root(),
        can_change_user: privileges::can_change_user(),
        passwd: &passwd,
        uids: &uids,
        gids: &gids,
    };
    match user::choose(said, &starter).map_err(|why| anyhow!("--user: {why}"))? {
        Choice::As(account) => Ok(Some(account)),
        Choice::Unchanged { warning } => {
            if let Some(warning) = warning {
                tracing::warn!("the API server runs as root: {warning}");
            }
            Ok(None)
        }
    }
}

/// Makes this process the API server: another user, no capabilities.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn become_server(account: &Account, settings: &ServerArguments) -> anyhow::Result<()> {
    let kept = match privileges::is_unprivileged_port(settings.listen.port()) {
        true => Capabilities::empty(),
        false => Capabilities::NET_BIND_SERVICE,
    };
    privileges::become_user(account, kept).with_context(|| format!("becoming {account}"))?;
    tracing::info!(user = %account, "dropped privileges of the API server");
    Ok(())
}

/// Keeps of the rights of root what the other components of a machine use.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn keep_for_components(parts: Parts) -> anyhow::Result<()> {
    privileges::limit(table::used(parts), table::programs(parts)).context("giving up capabilities")
}
