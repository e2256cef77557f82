//! `waypost down`: stops what `waypost up` started on this machine, and removes everything it made.
//!
//! In: the data directory, in which `up` notes who it is. Out: a machine as it was before: no process, Pod, rule, link, mount, context,
//! file. What somebody else put into the data directory stays, and is named.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use kernel::process::{Identity, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use super::up::context;
use super::{cleanup, reach};
use crate::config::DownArguments;

/// How long a program that was asked to end may take: requests that are under way are let end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a process may take that was killed with its parent.
const ORPHAN: Duration = Duration::from_secs(5);
/// Where `up` notes who it is.
const NOTE: &str = "running.json";
/// Where it notes which process its API server is, if that is another.
const SERVER_NOTE: &str = "api-server.json";
/// The socket of that one.
pub(super) const SOCKET: &str = "api.sock";
/// What we put into a data directory, beside the folder of the agent, which goes with its Pods.
const OURS: [&str; 7] = ["store", "pki", "kubeconfig", "images", SOCKET, SERVER_NOTE, NOTE];

/// A note that this process serves a data directory. Dropping it takes it back.
pub(super) struct Running(PathBuf);

impl Running {
    /// Notes it.
    ///
    /// # Errors
    /// The note cannot be written.
    pub(super) fn note(data_dir: &Path) -> anyhow::Result<Self> {
        Self::note_as(data_dir, NOTE, Identity::own()?)
    }

    /// Notes which process the API server is.
    ///
    /// # Errors
    /// The note cannot be written.
    pub(super) fn note_server(data_dir: &Path, server: Identity) -> anyhow::Result<Self> {
        Self::note_as(data_dir, SERVER_NOTE, server)
    }

    fn note_as(data_dir: &Path, name: &str, who: Identity) -> anyhow::Result<Self> {
        let path = data_dir.join(name);
        fs::write(&path, json!({"pid": who.pid, "began": who.began}).to_string())
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(Self(path))
    }

    /// Waits for the end of the API server of an `up` that was killed: it ends with its parent, but not before it.
    ///
    /// # Errors
    /// When it does not end.
    pub(super) fn await_server(data_dir: &Path) -> anyhow::Result<()> {
        let Some(server) = Self::find(data_dir, SERVER_NOTE) else { return Ok(()) };
        let Some(handle) = server.open().context("opening the process")? else { return Ok(()) };
        ensure!(
            handle.ends_within(ORPHAN),
            "process {} is the API server of an earlier `waypost up` on {} and does not end; type: kill -9 {}",
            server.pid,
            data_dir.display(),
            server.pid
        );
        Ok(())
    }

    /// Who serves a data directory, if somebody does.
    fn find(data_dir: &Path, name: &str) -> Option<Identity> {
        let note: Value = serde_json::from_slice(&fs::read(data_dir.join(name)).ok()?).ok()?;
        let pid = i32::try_from(note.int("pid")).ok()?;
        let noted = Identity { pid, began: note.at("began").as_u64()? };
        noted.is_there().then_some(noted)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Without the process the note means nothing.
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs the command.
pub(crate) fn exec(arguments: &DownArguments) -> anyhow::Result<()> {
    let data_dir = &arguments.place.data_dir;
    let stopped = stop(data_dir)?;
    take_away(data_dir, &arguments.pod_bridge, arguments.rootless)?;
    if arguments.keep_data {
        return reach::print(&format!("{}; data stays in {}\n", said(stopped), data_dir.display()));
    }
    let there = data_dir.exists();
    remove(data_dir)?;
    match stopped || there {
        true => reach::print(&format!("{}; nothing of it is left\n", said(stopped))),
        false => reach::print(&format!("nothing was up, and there is no {}\n", data_dir.display())),
    }
}

const fn said(stopped: bool) -> &'static str {
    if stopped { "waypost has stopped" } else { "waypost was not running" }
}

/// Has the `up` of a data directory end, and waits for that; answers whether there was one.
fn stop(data_dir: &Path) -> anyhow::Result<bool> {
    let stopped = stop_main(data_dir)?;
    Running::await_server(data_dir)?;
    Ok(stopped)
}

fn stop_main(data_dir: &Path) -> anyhow::Result<bool> {
    let Some(running) = Running::find(data_dir, NOTE) else { return Ok(false) };
    let Some(handle) = running.open().context("opening the process")? else { return Ok(false) };
    ensure!(
        handle.signal(Signal::TERM),
        "process {} runs `waypost up` and cannot be stopped by you; run this as whoever started it",
        running.pid
    );
    let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&handle.0, PollFlags::IN)], Some(&limit)).context("waiting for its end")?;
    ensure!(
        ended > 0,
        "process {} was asked to end and has not within {} s; look at its log, then `kill -9 {}` and try again",
        running.pid,
        PATIENCE.as_secs(),
        running.pid
    );
    Ok(true)
}

/// Removes what is outside of the data directory, and the Pods.
///
/// # Errors
/// The first thing that could not be removed.
pub(super) fn take_away(data_dir: &Path, bridge: &str, rootless: bool) -> anyhow::Result<()> {
    if let Some(name) = context::take_out(data_dir)? {
        tracing::info!(name, "the context is out of your kubeconfig");
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
            bail!("{} holds what waypost did not make, and stays: {}", data_dir.display(), left.join(", "))
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
    fn a_note_is_believed_as_long_as_its_process_is_there() {
        let folder = tempfile::TempDir::new().expect("a folder");
        assert!(Running::find(folder.path(), NOTE).is_none());
        let note = Running::note(folder.path()).expect("written");
        assert_eq!(Running::find(folder.path(), NOTE), Identity::own().ok());
        let own = Identity::own().expect("us");
        fs::write(folder.path().join(NOTE), json!({"pid": own.pid, "began": own.began + 1}).to_string())
            .expect("written");
        assert!(Running::find(folder.path(), NOTE).is_none(), "another process has the number now");
        drop(note);
        assert!(!folder.path().join(NOTE).exists());
    }

    #[test]
    fn what_others_put_there_stays() {
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
