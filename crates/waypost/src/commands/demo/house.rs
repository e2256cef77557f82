//! The side of the demo that stays outside: begins it apart from this machine, waits for it, takes away the one thing that is left.
//!
//! In: root. Out: the exit code of the story. The control group is the only thing of a demo that is not in namespaces of its own. It is
//! named after this process, so that whoever comes later knows a group whose demo is gone, and takes it away ([`sweep`]).

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

/// How control groups of demos begin.
const PREFIX: &str = "waypost-demo-";
/// How long a story that is told to stop may take, and then its processes; it has nothing to tidy up.
const LEAVE: Duration = Duration::from_secs(10);

/// The exit code of a demo that was asked to stop, whatever its own was.
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
            "All ten acts were seen, in {:.1} s. Processes, namespaces, rules and files of the demo are gone.",
            begun.elapsed().as_secs_f64()
        ));
    }
    Ok(())
}

/// Begins the demo and waits for its end, which comes soon when somebody asks for it.
async fn watch_over(arguments: &Arguments) -> anyhow::Result<i32> {
    // Heard from here on: what is made below is taken away again.
    let asked = server::stop_signal();
    sweep()?;
    let group = Group::make()?;
    let words = arguments.words(&["stage", &group.name]);
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    let (input, alive) = std::io::pipe().context("making a pipe")?;
    let apart = Apart::begin(Path::new("/proc/self/exe"), &words, input.into())
        .context("making namespaces; this takes root, and a kernel that has them")?;
    let code = ended(apart, alive, asked).await?;
    group.remove()?;
    Ok(code)
}

/// Waits until the demo has ended by itself, or was asked to; answers its exit code.
async fn ended(mut apart: Apart, alive: PipeWriter, asked: impl Future<Output = ()>) -> anyhow::Result<i32> {
    let handle = Handle(apart.handle.0.try_clone().context("watching the demo")?);
    let mut code = tokio::task::spawn_blocking(move || apart.wait());
    let code = tokio::select! {
        code = &mut code => code?,
        () = asked => {
            // The story ends when nobody is there any more to whom it is told.
            drop(alive);
            if !matches!(tokio::time::timeout(LEAVE, &mut code).await, Ok(Ok(Ok(_)))) {
                handle.signal(Signal::KILL);
            }
            Ok(INTERRUPTED)
        }
    };
    code.context("waiting for the demo")
}

/// The control group in which all of a demo is.
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
        group.groups.make(&group.name, &Limits::default()).context("making a control group")?;
        Ok(group)
    }

    fn remove(self) -> anyhow::Result<()> {
        let removed = self.groups.end(&self.name, LEAVE).map(drop);
        removed.context("act 10 of 10, the end: the control group of the demo is left")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What does not go now goes with the next demo, or with `waypost cleanup`.
        let _ = self.groups.remove(&self.name);
    }
}

/// Takes away what demos have left that were killed. Answers how many there were.
pub(in crate::commands) fn sweep() -> anyhow::Result<usize> {
    let groups = Cgroups::find();
    let left: Vec<String> = groups.beginning(PREFIX).into_iter().filter(|name| !is_alive(name)).collect();
    for name in &left {
        groups
            .end(name, LEAVE)
            .with_context(|| format!("removing the control group {name} of a demo that was killed"))?;
    }
    Ok(left.len())
}

/// Whether the demo of a group is still there. Names that say nothing are not ours.
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
