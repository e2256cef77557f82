//! `waypost down`: stops what `waypost up` started on this machine, and removes everything it made.
//!
//! In: the data directory, where `up` records its PID. Out: the machine as before: no process, Pod, rule, link, mount, context, file. Other
//! files in the data directory stay, and are listed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use cli::terminal;
use kernel::process::{Identity, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use super::cleanup;
use super::up::context;
use crate::config::DownArguments;

/// Timeout after SIGTERM: requests in progress may end.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a process that the kernel kills with its parent.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(5);
/// The PID file of `up`.
const PID_FILE: &str = "running.json";
/// The PID file of its API server, if that is a child process.
const SERVER_PID_FILE: &str = "api-server.json";
/// The socket of the API server.
pub(super) const SOCKET: &str = "api.sock";
/// Our files in a data directory, except the directory of the agent, which is removed with its Pods.
const OURS: [&str; 7] = ["store", "pki", "kubeconfig", "images", SOCKET, SERVER_PID_FILE, PID_FILE];

/// A PID file of a data directory; removed on drop.
pub(super) struct Running(PathBuf);

impl Running {
    /// Writes the PID file of this process.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn note(data_dir: &Path) -> anyhow::Result<Self> {
        Self::write_pid_file(data_dir, PID_FILE, Identity::own()?)
    }

    /// Writes the PID file of the API server.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn note_server(data_dir: &Path, server: Identity) -> anyhow::Result<Self> {
        Self::write_pid_file(data_dir, SERVER_PID_FILE, server)
    }

    fn write_pid_file(data_dir: &Path, name: &str, who: Identity) -> anyhow::Result<Self> {
        let path = data_dir.join(name);
        fs::write(&path, json!({"pid": who.pid, "began": who.began}).to_string())
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(Self(path))
    }

    /// Waits for the end of the API server of a killed `up`: the kernel kills it after its parent.
    ///
    /// # Errors
    /// When it does not end.
    pub(super) fn await_server(data_dir: &Path) -> anyhow::Result<()> {
        let Some(server) = Self::find(data_dir, SERVER_PID_FILE) else { return Ok(()) };
        let Some(handle) = server.open().context("opening the process")? else { return Ok(()) };
        ensure!(
            handle.ends_within(ORPHAN_TIMEOUT),
            "process {} is the API server of an earlier `waypost up` on {} and does not end; type: kill -9 {}",
            server.pid,
            data_dir.display(),
            server.pid
        );
        Ok(())
    }

    /// The process of a PID file, if it runs.
    fn find(data_dir: &Path, name: &str) -> Option<Identity> {
        let note: Value = serde_json::from_slice(&fs::read(data_dir.join(name)).ok()?).ok()?;
        let pid = i32::try_from(note.int("pid")).ok()?;
        let noted = Identity { pid, began: note.at("began").as_u64()? };
        noted.is_there().then_some(noted)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A PID file without its process is stale.
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs the command.
pub(crate) fn exec(arguments: &DownArguments) -> anyhow::Result<()> {
    let data_dir = &arguments.place.data_dir;
    let stopped = stop(data_dir)?;
    remove_host_state(data_dir, &arguments.pod_bridge, arguments.rootless)?;
    if arguments.keep_data {
        return terminal::print(&format!("{}; data stays in {}\n", stop_message(stopped), data_dir.display()));
    }
    let there = data_dir.exists();
    remove(data_dir)?;
    match stopped || there {
        true => terminal::print(&format!("{}; nothing of it is left\n", stop_message(stopped))),
        false => terminal::print(&format!("nothing was up, and there is no {}\n", data_dir.display())),
    }
}

const fn stop_message(stopped: bool) -> &'static str {
    if stopped { "waypost has stopped" } else { "waypost was not running" }
}

/// Stops the `up` of a data directory, and waits for its end; returns whether there was one.
fn stop(data_dir: &Path) -> anyhow::Result<bool> {
    let stopped = stop_main(data_dir)?;
    Running::await_server(data_dir)?;
    Ok(stopped)
}

fn stop_main(data_dir: &Path) -> anyhow::Result<bool> {
    let Some(running) = Running::find(data_dir, PID_FILE) else { return Ok(false) };
    let Some(handle) = running.open().context("opening the process")? else { return Ok(false) };
    ensure!(
        handle.signal(Signal::TERM),
        "process {} runs `waypost up` and cannot be stopped by this user; run this as the user who started it",
        running.pid
    );
    let limit = Timespec { tv_sec: STOP_TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&handle.0, PollFlags::IN)], Some(&limit)).context("waiting for its end")?;
    ensure!(
        ended > 0,
        "process {} did not end within {} s after SIGTERM; see its log, then `kill -9 {}` and try again",
        running.pid,
        STOP_TIMEOUT.as_secs(),
        running.pid
    );
    Ok(true)
}

/// Removes the state outside of the data directory, and the Pods.
///
/// # Errors
/// The first failure.
pub(super) fn remove_host_state(data_dir: &Path, bridge: &str, rootless: bool) -> anyhow::Result<()> {
    if let Some(name) = context::remove(data_dir)? {
        tracing::info!(name, "removed context from the kubeconfig");
    }
    if rootless {
        return Ok(());
    }
    cleanup::clean(data_dir, bridge)
}

/// Removes the data, and the directory when nothing else is in it.
fn remove(data_dir: &Path) -> anyhow::Result<()> {
    for name in OURS {
        let path = data_dir.join(name);
        let removed = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
            Ok(_) => fs::remove_file(&path),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        removed.with_context(|| format!("removing {}", path.display()))?;
    }
    match fs::remove_dir(data_dir) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            let left = fs::read_dir(data_dir)?.filter_map(Result::ok).map(|entry| entry.file_name());
            let left: Vec<String> = left.map(|name| name.to_string_lossy().into_owned()).collect();
            bail!("{} is kept, since it has other files: {}", data_dir.display(), left.join(", "))
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", data_dir.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_is_valid_while_its_process_runs() {
        let folder = tempfile::TempDir::new().expect("a folder");
        assert!(Running::find(folder.path(), PID_FILE).is_none());
        let note = Running::note(folder.path()).expect("written");
        assert_eq!(Running::find(folder.path(), PID_FILE), Identity::own().ok());
        let own = Identity::own().expect("us");
        fs::write(folder.path().join(PID_FILE), json!({"pid": own.pid, "began": own.began + 1}).to_string())
            .expect("written");
        assert!(Running::find(folder.path(), PID_FILE).is_none(), "the PID was reused");
        drop(note);
        assert!(!folder.path().join(PID_FILE).exists());
    }

    #[test]
    fn files_of_others_are_kept() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let home = folder.path().join("home");
        fs::create_dir_all(home.join("store/log")).expect("made");
        fs::write(home.join("kubeconfig"), "x").expect("written");
        fs::write(home.join("mine.txt"), "x").expect("written");
        let error = remove(&home).expect_err("not empty").to_string();
        assert!(error.contains("mine.txt") && !error.contains("store"), "{error}");
        fs::remove_file(home.join("mine.txt")).expect("removed");
        remove(&home).expect("removed");
        assert!(!home.exists());
        remove(&home).expect("nothing to remove");
    }
}
