//! Privilege separation: the user of the API server, and the capabilities of the other components.
//!
//! In: settings, and the user of this process. Out: a process without unused privileges, and a data directory with the files of both users.
//! The process must have one thread, since credentials belong to threads.

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

/// Gives a user its files in a data directory.
type Take = fn(&Path, &Account) -> anyhow::Result<()>;

/// The user of the API server, after its files were given to it; none for the current user.
///
/// # Errors
/// When the requested user does not exist or cannot access its files. Without a requested user the API server then runs as root, with a
/// warning.
pub(super) fn server_user(settings: &ServerArguments, take: Take) -> anyhow::Result<Option<Account>> {
    let requested = settings.user.as_deref();
    let Some(account) = chosen(requested)? else { return Ok(None) };
    let data_dir = &settings.place.data_dir;
    // Checked before, since the change of owners may succeed in part.
    let is_strange = !data_dir::has_files_of(data_dir, &account);
    let (error, may_stay) = match reach::check(settings, &account) {
        Err(error) => (error, true),
        Ok(()) => match take(data_dir, &account) {
            Ok(()) => return Ok(Some(account)),
            // A compromised server must not regain root by breaking its own directory.
            Err(error) => (error, is_strange),
        },
    };
    if requested.is_some() || !may_stay {
        return Err(error);
    }
    tracing::warn!("the API server runs as root: {error:#}");
    Ok(None)
}

fn chosen(requested: Option<&str>) -> anyhow::Result<Option<Account>> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (passwd, uids, gids) = (read("/etc/passwd"), read("/proc/self/uid_map"), read("/proc/self/gid_map"));
    let starter = Starter {
        is_root: rustix::process::geteuid().is_root(),
        can_change_user: privileges::can_change_user(),
        passwd: &passwd,
        uids: &uids,
        gids: &gids,
    };
    match user::choose(requested, &starter).map_err(|why| anyhow!("--user: {why}"))? {
        Choice::As(account) => Ok(Some(account)),
        Choice::Unchanged { warning } => {
            if let Some(warning) = warning {
                tracing::warn!("the API server runs as root: {warning}");
            }
            Ok(None)
        }
    }
}

/// Drops the privileges of the API server: another user, no capabilities.
///
/// # Errors
/// When the kernel denies it.
pub(super) fn become_server(account: &Account, settings: &ServerArguments) -> anyhow::Result<()> {
    let kept = match privileges::is_unprivileged_port(settings.listen.port()) {
        true => Capabilities::empty(),
        false => Capabilities::NET_BIND_SERVICE,
    };
    privileges::become_user(account, kept).with_context(|| format!("becoming {account}"))?;
    tracing::info!(user = %account, "dropped privileges of the API server");
    Ok(())
}

/// Keeps only the capabilities that the other components use.
///
/// # Errors
/// When the kernel denies it.
pub(super) fn keep_for_components(parts: Parts) -> anyhow::Result<()> {
    privileges::limit(table::used(parts), table::programs(parts)).context("dropping capabilities")
}
