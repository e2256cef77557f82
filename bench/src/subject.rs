//! A server under measurement: its processes, readiness, memory and shutdown.
//!
//! In: programs and a directory. Out: a [`Running`] with a client for it. Dropping it kills its processes, so that an
//! error or an interrupted run leaves none behind; its directory belongs to the caller.
#![expect(clippy::disallowed_methods, reason = "a benchmark runs the programs it measures")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use client::http::{Client, Method};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

/// How long a server may take to become ready, and to end.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The polling interval meanwhile.
const LOOK: Duration = Duration::from_millis(1);
/// The unit in which Linux reports processor time (`USER_HZ`), independent of the kernel's own clock rate.
const TICK: Duration = Duration::from_millis(10);

/// A server on its way up.
pub type Starting<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Running>> + 'a>>;

/// Something that can be started and measured.
pub trait Subject {
    /// Its name in the report.
    fn name(&self) -> &'static str;

    /// What is measured: programs and versions.
    fn describe(&self) -> String;

    /// Starts it in a directory, empty or left by an earlier run of it, and waits until it is ready.
    fn start<'a>(&'a self, home: &'a Path) -> Starting<'a>;
}

/// One process of a subject, killed when it is dropped.
pub struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

/// How much memory a process has, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Now (`VmRSS`).
    pub resident: u64,
    /// At most so far (`VmHWM`).
    pub peak: u64,
}

/// A subject that is ready.
pub struct Running {
    processes: Vec<Process>,
    client: Client,
    /// From the start of the process that answers to its `/readyz` saying yes.
    pub ready_in: Duration,
}

// === impl Process ===

impl Process {
    /// Starts a program with its output in `<home>/<name>.log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(program: &Path, arguments: &[String], home: &Path, name: &'static str) -> anyhow::Result<Self> {
        let log = home.join(format!("{name}.log"));
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("writing {}", log.display()))?;
        let err = out.try_clone().context("sharing the log")?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self { name, child, log })
    }

    /// Fails when the process has ended, with the end of its log.
    ///
    /// # Errors
    /// See above.
    pub fn check(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait().context("asking for a process")? else { return Ok(()) };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(15)..];
        bail!("{} ended with {status}:\n{}", self.log.display(), last.join("\n"))
    }

    /// Whether it has not ended yet; fails when it ended badly.
    ///
    /// # Errors
    /// See above.
    pub fn is_running(&mut self) -> anyhow::Result<bool> {
        match self.child.try_wait().context("asking for a process")? {
            Some(status) if status.success() => Ok(false),
            Some(_) => self.check().map(|()| false),
            None => Ok(true),
        }
    }

    /// Its memory, and that of its children: the API server of `waypost up` is one.
    ///
    /// # Errors
    /// When it has ended.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        self.family().try_fold(Memory::default(), |sum, pid| {
            let path = format!("/proc/{pid}/status");
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
            let own = parse_status(&text).with_context(|| format!("{path} does not tell the memory"))?;
            Ok(Memory { resident: sum.resident + own.resident, peak: sum.peak + own.peak })
        })
    }

    /// The processor time that it and its children have used so far.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        self.family().try_fold(Duration::ZERO, |sum, pid| {
            let path = format!("/proc/{pid}/stat");
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
            Ok(sum + parse_stat(&text, 2).with_context(|| format!("{path} does not tell the processor time"))?)
        })
    }

    /// The process and its children, by number.
    fn family(&self) -> impl Iterator<Item = u32> {
        let own = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        let children: Vec<u32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        std::iter::once(own).chain(children)
    }

    /// Sends SIGTERM.
    ///
    /// # Errors
    /// When it does not; it is killed then.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).context("stopping a process")?;
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            if self.child.try_wait().context("waiting for a process")?.is_some() {
                return Ok(());
            }
            sleep(LOOK).await;
        }
        bail!("{}: it did not end in time", self.log.display())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// === impl Running ===

impl Running {
    /// Waits until the last of the processes, which was started at `begun`, reports that it is ready.
    ///
    /// # Errors
    /// When one of them ends or none becomes ready in time.
    pub async fn when_ready(mut processes: Vec<Process>, kubeconfig: &Path, begun: Instant) -> anyhow::Result<Self> {
        while begun.elapsed() < TIMEOUT {
            if let Some(client) = ready(kubeconfig).await {
                return Ok(Self { processes, client, ready_in: begun.elapsed() });
            }
            for process in &mut processes {
                process.check()?;
            }
            sleep(LOOK).await;
        }
        bail!("no answer from {} that it is ready", kubeconfig.display())
    }

    /// A client with its own connection.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.another()
    }

    /// The memory of all processes together.
    ///
    /// # Errors
    /// When one has ended.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        self.processes.iter().try_fold(Memory::default(), |sum, process| {
            let memory = process.memory()?;
            Ok(Memory { resident: sum.resident + memory.resident, peak: sum.peak + memory.peak })
        })
    }

    /// The memory of each process, by its name.
    ///
    /// # Errors
    /// When one has ended.
    pub fn memory_of_each(&self) -> anyhow::Result<Vec<(&'static str, Memory)>> {
        self.processes.iter().map(|process| Ok((process.name, process.memory()?))).collect()
    }

    /// Takes in a process that was started later.
    pub fn join(&mut self, process: Process) {
        self.processes.push(process);
    }

    /// Stops the process that was started last; the others go on.
    ///
    /// # Errors
    /// When it does not end; it is killed then.
    pub async fn stop_last(&mut self) -> anyhow::Result<()> {
        match self.processes.pop() {
            Some(mut process) => process.stop().await,
            None => Ok(()),
        }
    }

    /// Fails when one of the processes has ended.
    ///
    /// # Errors
    /// See above.
    pub fn check(&mut self) -> anyhow::Result<()> {
        self.processes.iter_mut().try_for_each(Process::check)
    }

    /// The processor time that all processes together have used so far.
    ///
    /// # Errors
    /// When one has ended.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        self.processes.iter().try_fold(Duration::ZERO, |sum, process| Ok(sum + process.cpu()?))
    }

    /// Sends SIGTERM to the processes, in reverse order of their start.
    ///
    /// # Errors
    /// When one does not; it is killed then.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        for process in self.processes.iter_mut().rev() {
            process.stop().await?;
        }
        Ok(())
    }
}

/// A client, if there is a kubeconfig and its server is ready.
async fn ready(kubeconfig: &Path) -> Option<Client> {
    let mut client = Client::from_kubeconfig(kubeconfig).ok()?;
    let (code, _) = client.bytes(Method::GET, "/readyz", None, Bytes::new()).await.ok()?;
    (code == 200).then_some(client)
}

pub(crate) fn parse_status(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
    };
    Some(Memory { resident: field("VmRSS")?, peak: field("VmHWM")? })
}

/// User and system time: the 14th and 15th field, counted from the end of the name, which may hold anything; with four
/// fields also those of children that have ended and were waited for.
pub(crate) fn parse_stat(text: &str, count: usize) -> Option<Duration> {
    let (_, fields) = text.rsplit_once(')')?;
    let fields = fields.split_whitespace().skip(11).take(count);
    let ticks: Vec<u32> = fields.map_while(|field| field.parse().ok()).collect();
    (ticks.len() == count).then(|| TICK * ticks.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_whatever_the_name_of_the_process() {
        let text = "42 (a ) b) S 1 1 1 0 -1 4194304 1 0 0 0 150 50 70 30 20 0 3 0 99 0 0";
        assert_eq!(parse_stat(text, 2), Some(Duration::from_secs(2)));
        assert_eq!(parse_stat(text, 4), Some(Duration::from_secs(3)));
        assert_eq!(parse_stat("42 (a) S 1", 2), None);
    }

    #[test]
    fn memory_is_read_from_the_status_of_a_process() {
        let text = "Name:\twaypost\nVmPeak:\t  999 kB\nVmHWM:\t     64 kB\nVmRSS:\t     16 kB\n";
        assert_eq!(parse_status(text), Some(Memory { resident: 16 << 10, peak: 64 << 10 }));
        assert_eq!(parse_status("Name:\tkthreadd\n"), None);
    }
}
