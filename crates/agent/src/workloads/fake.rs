//! Workloads in memory, for tests of the endpoint: containers with a log, and a few small programs.
//!
//! In: `Fake::container` and `Fake::log`. Out: the same errors, half-closes and exits as real ones. Connections into a Pod are connections to the
//! loopback of the host. The programs: `echo WORDS`, `complain WORDS` (to stderr), `cat`, `exit CODE`,
//! `sizes COUNT` (of the terminal, one a line), `flood BYTES`, `hang`, `deaf` (reads nothing, never exits), `vanish` (unknown exit status).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use futures_util::future::{self, BoxFuture};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    Attach, ContainerId, Exec, Exit, LogFiles, LogOptions, LogReader, PodId, Refusal, Running, Size, Workloads,
};

/// The size of a pipe, in bytes; small, so that writers block in tests.
const PIPE: usize = 4096;

/// Workloads in memory.
#[derive(Default)]
pub struct Fake {
    containers: Mutex<BTreeMap<ContainerId, Container>>,
    ended_early: watch::Sender<usize>,
}

struct Container {
    program: Vec<String>,
    running: bool,
    log: watch::Sender<Log>,
    previous: Option<Vec<Line>>,
}

#[derive(Clone, Default)]
struct Log {
    lines: Vec<Line>,
    ended: bool,
}

type Line = (Timestamp, String);

impl Fake {
    /// Adds a container whose own process is one of the programs.
    pub fn container(&self, of: &ContainerId, program: &[&str]) {
        let container = Container {
            program: program.iter().map(ToString::to_string).collect(),
            running: true,
            log: watch::Sender::new(Log::default()),
            previous: None,
        };
        self.containers.lock().insert(of.clone(), container);
    }

    /// Appends a line to the log.
    pub fn log(&self, of: &ContainerId, at: Timestamp, line: &str) {
        if let Some(container) = self.containers.lock().get(of) {
            container.log.send_modify(|log| log.lines.push((at, line.to_owned())));
        }
    }

    /// Restarts the container: its log becomes the previous one.
    pub fn restart(&self, of: &ContainerId) {
        if let Some(container) = self.containers.lock().get_mut(of) {
            let old = container.log.send_replace(Log::default());
            container.previous = Some(old.lines);
        }
    }

    /// Ends the container and the streams of its log.
    pub fn end(&self, of: &ContainerId) {
        if let Some(container) = self.containers.lock().get_mut(of) {
            container.running = false;
            container.log.send_modify(|log| log.ended = true);
        }
    }

    /// How many processes of `exec` were dropped before their exit.
    #[must_use]
    pub fn ended_early(&self) -> usize {
        *self.ended_early.borrow()
    }

    /// Waits until `count` processes were dropped.
    pub async fn until_ended_early(&self, count: usize) {
        // The sender is a field of `self`.
        let _ = self.ended_early.subscribe().wait_for(|have| *have >= count).await;
    }

    /// Calls a function with a running container.
    fn running<T>(&self, of: &ContainerId, then: impl FnOnce(&Container) -> T) -> Result<T, Refusal> {
        let containers = self.containers.lock();
        if !containers.keys().any(|have| have.pod == of.pod) {
            return Err(Refusal::NoPod);
        }
        let missing = || Refusal::NoContainer { container: of.container.clone() };
        let container = containers.get(of).ok_or_else(missing)?;
        if container.running {
            Ok(then(container))
        } else {
            Err(Refusal::NotRunning { container: of.container.clone(), why: "exited with 0".to_owned() })
        }
    }

    fn open_log(&self, of: &ContainerId, options: &LogOptions) -> Result<LogReader, Refusal> {
        let containers = self.containers.lock();
        if !containers.keys().any(|have| have.pod == of.pod) {
            return Err(Refusal::NoPod);
        }
        let missing = || Refusal::NoContainer { container: of.container.clone() };
        let container = containers.get(of).ok_or_else(missing)?;
        let (reader, writer) = tokio::io::duplex(PIPE);
        if options.previous {
            let none =
                || Refusal::NotRunning { container: of.container.clone(), why: "no previous instance".to_owned() };
            let lines = container.previous.clone().ok_or_else(none)?;
            let (_, log) = watch::channel(Log { lines, ended: true });
            tokio::spawn(write_log(log, options.clone(), writer));
        } else {
            tokio::spawn(write_log(container.log.subscribe(), options.clone(), writer));
        }
        Ok(Box::new(reader))
    }
}

/// Writes a log with these options until it ends or the reader is closed.
async fn write_log(mut log: watch::Receiver<Log>, options: LogOptions, mut writer: DuplexStream) {
    let mut written = None;
    loop {
        let Log { lines, ended } = log.borrow_and_update().clone();
        let first = match written {
            Some(count) => count,
            None => lines.len() - options.tail_lines.map_or(lines.len(), |tail| lines.len().min(clamp(tail))),
        };
        for (at, line) in &lines[first..] {
            if options.since.is_some_and(|since| *at < since) {
                continue;
            }
            let text = if options.timestamps { format!("{at:.9} {line}\n") } else { format!("{line}\n") };
            if writer.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
        written = Some(lines.len());
        if ended || !options.follow || log.changed().await.is_err() {
            return;
        }
    }
}

fn clamp(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl Workloads for Fake {
    fn logs<'a>(&'a self, of: &'a ContainerId, options: &'a LogOptions) -> BoxFuture<'a, Result<LogReader, Refusal>> {
        Box::pin(future::ready(self.open_log(of, options)))
    }

    fn exec<'a>(&'a self, of: &'a ContainerId, how: Exec) -> BoxFuture<'a, Result<Running, Refusal>> {
        let streams = Attach { stdin: how.stdin, stdout: how.stdout, stderr: how.stderr, tty: how.tty };
        let early = self.ended_early.clone();
        let known = ["echo", "complain", "cat", "exit", "sizes", "flood", "hang", "deaf", "vanish"];
        let unknown = |name: &String| Refusal::Failed(format!("exec: {name:?}: executable file not found in $PATH"));
        let done = self.running(of, |_| match how.command.first() {
            Some(name) if known.contains(&name.as_str()) => Ok(start(how.command, streams, Some(early))),
            Some(name) => Err(unknown(name)),
            None => Err(Refusal::Bad("you must specify at least 1 command".to_owned())),
        });
        Box::pin(future::ready(done.and_then(|started| started)))
    }

    fn attach<'a>(&'a self, of: &'a ContainerId, how: Attach) -> BoxFuture<'a, Result<Running, Refusal>> {
        let done = self.running(of, |container| start(container.program.clone(), how, None));
        Box::pin(future::ready(done))
    }

    fn dial<'a>(&'a self, pod: &'a PodId, port: u16) -> BoxFuture<'a, Result<TcpStream, Refusal>> {
        let known = self.containers.lock().keys().any(|have| have.pod == *pod);
        Box::pin(async move {
            if !known {
                return Err(Refusal::NoPod);
            }
            let four = match TcpStream::connect(("127.0.0.1", port)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            let failed =
                |six| Refusal::Failed(format!("failed to connect to localhost:{port}, IPv4: {four}, IPv6: {six}"));
            TcpStream::connect(("::1", port)).await.map_err(failed)
        })
    }

    fn log_files<'a>(&'a self, path: &'a [String]) -> BoxFuture<'a, Option<LogFiles>> {
        let names = match path {
            [] => Some(vec!["pods/".to_owned()]),
            _ => None,
        };
        Box::pin(future::ready(names.map(LogFiles::Directory)))
    }

    fn metrics(&self) -> String {
        "# EOF\n".to_owned()
    }

    fn pods(&self) -> serde_json::Value {
        let mut items: Vec<serde_json::Value> = Vec::new();
        for of in self.containers.lock().keys() {
            let metadata = json!({"namespace": of.pod.namespace, "name": of.pod.name});
            if items.last().is_none_or(|last| last["metadata"] != metadata) {
                items.push(json!({"metadata": metadata}));
            }
        }
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
    }
}

/// The streams of a program.
struct Streams {
    stdin: Option<DuplexStream>,
    stdout: Option<DuplexStream>,
    stderr: Option<DuplexStream>,
    sizes: mpsc::Receiver<Size>,
}

fn start(command: Vec<String>, how: Attach, early: Option<watch::Sender<usize>>) -> Running {
    let pipe = |wanted: bool| if wanted { Some(tokio::io::duplex(PIPE)) } else { None }.unzip();
    let (stdin, its_stdin) = pipe(how.stdin);
    let (stdout, its_stdout) = pipe(how.stdout);
    let (stderr, its_stderr) = pipe(how.stderr && !how.tty);
    let (resize, sizes) = mpsc::channel(8);
    let (done, exit) = oneshot::channel();
    let (alive, mut let_go) = mpsc::channel::<()>(1);
    tokio::spawn(async move {
        let streams = Streams { stdin: its_stdin, stdout: its_stdout, stderr: its_stderr, sizes };
        tokio::select! {
            exit = run(&command, streams) => {
                let _ = done.send(exit);
            }
            _ = let_go.recv(), if early.is_some() => {
                early.expect("just looked").send_modify(|count| *count += 1);
            }
        }
    });
    let exit = async move {
        let _alive = alive;
        exit.await.unwrap_or_else(|_| Exit::Failed("the process is gone".to_owned()))
    };
    Running {
        stdin: stdin.map(|stream| Box::new(stream) as _),
        stdout: stdout.map(|stream| Box::new(stream) as _),
        stderr: stderr.map(|stream| Box::new(stream) as _),
        resize: how.tty.then_some(resize),
        exit: Box::pin(exit),
    }
}

async fn run(command: &[String], mut streams: Streams) -> Exit {
    let words = command.get(1..).unwrap_or_default();
    let number = words.first().and_then(|word| word.parse::<usize>().ok()).unwrap_or_default();
    match command.first().map_or("", String::as_str) {
        "echo" => say(&mut streams.stdout, &format!("{}\n", words.join(" "))).await,
        "complain" => say(&mut streams.stderr, &format!("{}\n", words.join(" "))).await,
        "cat" => cat(&mut streams).await,
        "sizes" => {
            let mut text = String::new();
            for _ in 0..number {
                let Some(size) = streams.sizes.recv().await else { break };
                let _ = writeln!(text, "{}x{}", size.width, size.height);
            }
            say(&mut streams.stdout, &text).await;
        }
        "flood" => say(&mut streams.stdout, &"x".repeat(number)).await,
        "hang" | "deaf" => future::pending().await,
        "exit" => return Exit::Code(i32::try_from(number).unwrap_or(255)),
        "vanish" => return Exit::Failed("the process is gone".to_owned()),
        _ => return Exit::Code(127),
    }
    Exit::Code(0)
}

async fn say(stream: &mut Option<DuplexStream>, text: &str) {
    if let Some(stream) = stream {
        // A closed reader is no error.
        let _ = stream.write_all(text.as_bytes()).await;
    }
}

/// Copies input to output until the input ends; without input there is none.
async fn cat(streams: &mut Streams) {
    let Some(stdin) = &mut streams.stdin else { return };
    let mut buffer = [0; 1024];
    while let Ok(count) = stdin.read(&mut buffer).await {
        if count == 0 {
            break;
        }
        let Some(stdout) = &mut streams.stdout else { continue };
        if stdout.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
}
