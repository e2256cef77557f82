//! A small virtual machine, for what the kernel of this one may lack.
//!
//! In: which tests of the calling test program. Out: whether all went well; what they printed is
//! printed here. The machine has the kernel that `scripts/vm-kernel` fetched, and in its memory a copy of this test program, of the
//! binary under test and of the tools of the testbed; it has no disk and no network but its own. It runs without hardware
//! virtualization, slowly and the same everywhere, and is removed with the test.

mod archive;
mod files;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

/// The last line of the machine: the result of the tests.
const ENDED: &str = "waypost-vm: the tests ended with ";
/// What its memory holds when it begins, and folders that it needs besides. It is copied to where a root can be exchanged for
/// another one, which the kernel's first root cannot be.
const ALL: &str = "/bin /etc /init /lib /lib64 /sbin /tests /usr /waypost /backend";
const MORE: &str = "/root/proc /root/sys /root/dev /root/tmp /root/run /root/started";
/// Timeout of a machine: several times what it needs on an idle host.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// The result of tests in a virtual machine.
#[derive(Debug)]
pub struct Outcome {
    /// Whether all that ran went well.
    pub ok: bool,
    /// How many ran and went well.
    pub passed: usize,
}

/// Runs tests of this program in a virtual machine: those that these arguments of it choose.
///
/// # Panics
/// When there is no machine, or it does not come to an end.
#[must_use]
pub fn run_inside(choice: &[&str], environment: &[(&str, &str)]) -> Outcome {
    let kernel = kernel();
    let memory = NamedTempFile::new().expect("a file for the machine's memory");
    files::write(memory.path(), &kernel, &script(choice, environment));
    let console = Machine::start(&image(&kernel), memory.path()).console();
    let ended = console.lines().find_map(|line| line.trim_end().strip_prefix(ENDED));
    Outcome { ok: ended == Some("0"), passed: passed(&console) }
}

/// The folder with the kernel and its modules.
fn kernel() -> PathBuf {
    let target = std::env::current_exe().expect("the path of this test");
    let target = target.ancestors().nth(3).expect("a target directory");
    let folder = target.join("vm/kernel");
    assert!(
        folder.join("ready").exists(),
        "{} is missing: run ./scripts/vm-kernel, or ./scripts/test",
        folder.display()
    );
    folder
}

fn image(kernel: &Path) -> PathBuf {
    let boot = std::fs::read_dir(kernel.join("boot")).expect("the folder of the kernel");
    let mut found = boot.map(|entry| entry.expect("a file").path());
    found.find(|path| path.to_string_lossy().contains("vmlinuz")).expect("a kernel")
}

/// What the machine does from its first to its last moment.
fn script(choice: &[&str], environment: &[(&str, &str)]) -> String {
    let choice = choice.join(" ");
    let exports: String = environment.iter().map(|(name, value)| format!("export {name}={value}\n")).collect();
    format!(
        "#!/bin/sh\n\
         export PATH=/usr/sbin:/usr/bin:/sbin:/bin WAYPOST_BIN=/waypost RUST_BACKTRACE=0\n{exports}\
         if [ ! -e /started ]; then\n\
         mkdir -p /root && mount -t tmpfs -o size=75% root /root && cp -a {ALL} /root && mkdir {MORE} && cd /root\n\
         mount --move . / && exec chroot . /init\n\
         fi\n\
         mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev && mount -t tmpfs tmp /tmp\n\
         mount -t cgroup2 groups /sys/fs/cgroup\n\
         ip link set lo up\n\
         modprobe ip_vs\n\
         /tests --test-threads 1 {choice}\n\
         echo \"{ENDED}$?\"\n\
         echo o > /proc/sysrq-trigger\n\
         while :; do read -r nothing; done\n"
    )
}

/// How many tests went well, by their own account.
fn passed(console: &str) -> usize {
    let counts = console.lines().filter_map(|line| line.split("test result: ").nth(1)?.split("; ").next());
    counts.filter_map(|part| part.split(". ").nth(1)?.strip_suffix(" passed")?.parse::<usize>().ok()).sum()
}

/// A machine that runs. Dropping it ends it.
struct Machine(Child);

impl Machine {
    fn start(image: &Path, memory: &Path) -> Self {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-nodefaults", "-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot"]);
        command.args(["-accel", "tcg", "-cpu", "qemu64,+rdrand", "-smp", "2", "-m", "2048"]);
        command.arg("-kernel").arg(image).arg("-initrd").arg(memory);
        // A machine that does not run for a moment is slow, its timer is not broken.
        command.args(["-append", "console=ttyS0 quiet panic=-1 random.trust_cpu=on no_timer_check"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn();
        Self(child.unwrap_or_else(|error| {
            panic!("qemu-system-x86_64 cannot be run; install the Debian package qemu-system-x86: {error}")
        }))
    }

    /// Everything that it prints, until its end; also copied to the output of the test.
    fn console(mut self) -> String {
        let (sender, receiver) = channel();
        let output = BufReader::new(self.0.stdout.take().expect("its console"));
        std::thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let (deadline, mut console) = (Instant::now() + TIMEOUT, String::new());
        loop {
            match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    eprintln!("{line}");
                    console = console + &line + "\n";
                }
                Err(RecvTimeoutError::Disconnected) => return console,
                Err(RecvTimeoutError::Timeout) => panic!("the virtual machine takes too long"),
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
