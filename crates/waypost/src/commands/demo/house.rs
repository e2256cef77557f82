//! The parent process of the demo: starts it in new namespaces, waits for it, removes its control group.
//!
//! In: root. Out: the exit code of the story. The control group is the only state outside of the namespaces. It is named after this process, so
//! that leftovers of killed demos can be recognised and removed ([`sweep`]).

use std::ffi::OsStr;
use std::io::PipeWriter;
use std::path::Path;
use std::process::exit;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kernel::cgroups::{Cgroups, Limits};
use kernel::process::apart::Apart;
use kernel::process::{Handle, Identity, Signal};
use kernel::user_namespace;

use super::{Arguments, Output, tell};
use crate::commands::{agent, server};

/// The prefix of control groups of demos.
const PREFIX: &str = "waypost-demo-";
/// Timeout of the story after a signal, and then of its processes.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The exit code of an interrupted demo.
const INTERRUPTED: i32 = 1;

/// Runs the demo.
pub(super) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    if !agent::may_run_pods() {
        user_namespace::enter().context(
            "the demo runs Pods, and this machine does not let ordinary users create namespaces: type `sudo waypost demo`, or allow it \
             (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)",
        )?;
    }
    let begun = Instant::now();
    let code = server::runtime()?.block_on(watch_over(arguments))?;
    if code != 0 {
        exit(1);
    }
    if arguments.output == Output::Text {
        tell::line(&format!(
            "All eleven acts were seen, in {:.1} s. Processes, namespaces, rules and files of the demo are gone.",
            begun.elapsed().as_secs_f64()
        ));
    }
    Ok(())
}

/// Starts the demo and waits for its end, or for a signal.
async fn watch_over(arguments: &Arguments) -> anyhow::Result<i32> {
    // Signals are handled from here on, so that everything below is removed.
    let asked = server::stop_signal();
    sweep()?;
    let group = Group::make()?;
    let words = arguments.words(&["stage", &group.name]);
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    let (input, alive) = std::io::pipe().context("creating a pipe")?;
    let apart = Apart::begin(Path::new("/proc/self/exe"), &words, input.into())
        .context("making namespaces; this takes root, and a kernel that has them")?;
    let code = ended(apart, alive, asked).await?;
    group.remove()?;
    Ok(code)
}

/// Waits for the end of the demo or for a signal; returns the exit code.
async fn ended(mut apart: Apart, alive: PipeWriter, asked: impl Future<Output = ()>) -> anyhow::Result<i32> {
    let handle = Handle(apart.handle.0.try_clone().context("watching the demo")?);
    let mut code = tokio::task::spawn_blocking(move || apart.wait());
    let code = tokio::select! {
        code = &mut code => code?,
        () = asked => {
            // The story ends when the pipe is closed.
            drop(alive);
            if !matches!(tokio::time::timeout(STOP_TIMEOUT, &mut code).await, Ok(Ok(Ok(_)))) {
                handle.signal(Signal::KILL);
            }
            Ok(INTERRUPTED)
        }
    };
    code.context("waiting for the demo")
}

/// The control group of a demo.
struct Group {
    groups: Cgroups,
    name: String,
}

impl Group {
    fn make() -> anyhow::Result<Self> {
        let groups = Cgroups::find();
        let own = Identity::own().context("reading /proc")?;
        let name = format!("{PREFIX}{}-{}", own.pid, own.began);
        let group = Self { groups, name };
        group.groups.make(&group.name, &Limits::default()).context("creating a control group")?;
        Ok(group)
    }

    fn remove(self) -> anyhow::Result<()> {
        let removed = self.groups.end(&self.name, STOP_TIMEOUT).map(drop);
        removed.context("act 11 of 11, the end: the control group of the demo is left")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next demo, or by `waypost cleanup`.
        let _ = self.groups.remove(&self.name);
    }
}

/// Removes leftovers of killed demos; returns their number.
pub(in crate::commands) fn sweep() -> anyhow::Result<usize> {
    let groups = Cgroups::find();
    let left: Vec<String> = groups.beginning(PREFIX).into_iter().filter(|name| !is_alive(name)).collect();
    for name in &left {
        groups
            .end(name, STOP_TIMEOUT)
            .with_context(|| format!("removing the control group {name} of a demo that was killed"))?;
    }
    Ok(left.len())
}

/// Whether the demo of a group still runs. Groups with other names are not ours.
fn is_alive(name: &str) -> bool {
    let who = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    let who = who.and_then(|(pid, began)| Some(Identity { pid: pid.parse().ok()?, began: began.parse().ok()? }));
    who.is_none_or(|who| who.is_there())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_known_by_the_process_that_made_them() {
        let own = Identity::own().expect("this process");
        assert!(is_alive(&format!("{PREFIX}{}-{}", own.pid, own.began)));
        assert!(!is_alive(&format!("{PREFIX}{}-{}", own.pid, own.began + 1)));
        assert!(is_alive(&format!("{PREFIX}of-somebody-else")));
    }
}
