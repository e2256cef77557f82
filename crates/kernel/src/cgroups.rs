//! Control groups: resource limits of containers, and their processes.
//!
//! In: a path such as `waypost/UID/web`, and limits. Out: the group in every hierarchy of this machine, one for all
//! controllers (v2) or one for each (v1). Everything is files; a directory with such files is the fake.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::Timespec;

use crate::user_namespace;

/// Controllers in use.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// Period of the CPU quota in microseconds.
const PERIOD: u64 = 100_000;
/// Retry interval for removing a group.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The control groups of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cgroups {
    /// v1: name and mount point of each hierarchy. `systemd` has no controller.
    V1(Vec<(String, PathBuf)>),
    /// v2: one hierarchy.
    V2(PathBuf),
    /// None.
    Nothing,
}

/// Resource limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// CPU weight relative to sibling groups, in thousandths of a CPU. Zero is the minimum; without a value, a group
    /// has the kernel's default, the weight of one CPU.
    pub cpu_request: Option<u64>,
    /// CPU quota in thousandths of a CPU.
    pub cpu: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

impl Cgroups {
    /// Detects the control groups of this machine. Root of a user namespace has none unless they were delegated to it.
    #[must_use]
    pub fn find() -> Self {
        let found = fs::read_to_string("/proc/self/mountinfo").map_or(Self::Nothing, |text| Self::read(&text));
        let may_write = |root: &PathBuf| rustix::fs::access(root, rustix::fs::Access::WRITE_OK).is_ok();
        if user_namespace::is_inside() && !found.folders("").iter().all(may_write) {
            return Self::Nothing;
        }
        found
    }

    fn read(mountinfo: &str) -> Self {
        let (mut v1, mut v2) = (Vec::new(), None);
        for line in mountinfo.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let Some(at) = left.split(' ').nth(4).map(PathBuf::from) else { continue };
            let mut right = right.split(' ');
            match right.next() {
                Some("cgroup2") => v2 = v2.or(Some(at)),
                Some("cgroup") => {
                    let options = right.next_back().unwrap_or_default();
                    let is_ours = |word: &&str| CONTROLLERS.contains(word) || *word == "name=systemd";
                    v1.extend(options.split(',').filter(is_ours).map(|word| (word.replace("name=", ""), at.clone())));
                }
                _ => {}
            }
        }
        let controls = |(name, _): &(String, PathBuf)| CONTROLLERS.contains(&name.as_str());
        match v2 {
            // In hybrid mode the controllers are in v1.
            _ if v1.iter().any(controls) => Self::V1(v1),
            Some(root) => Self::V2(root),
            None => Self::Nothing,
        }
    }

    /// The v2 hierarchy in hybrid mode: some runtimes cannot handle it.
    #[must_use]
    pub fn second(&self) -> Option<PathBuf> {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let line = text.lines().find(|line| line.contains(" - cgroup2 ")).filter(|_| matches!(self, Self::V1(_)))?;
        line.split(' ').nth(4).map(PathBuf::from)
    }

    /// All possible directories of a group, including hierarchies that only runtimes use.
    #[must_use]
    pub fn everywhere(&self, group: &str) -> Vec<PathBuf> {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let others = text.lines().filter(|line| line.contains(" - cgroup ")).filter_map(|line| line.split(' ').nth(4));
        let others = others.filter(|_| matches!(self, Self::V1(_))).map(|root| Path::new(root).join(group));
        self.folders(group).into_iter().chain(others).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Directory of a group in every hierarchy.
    #[must_use]
    pub fn folders(&self, group: &str) -> Vec<PathBuf> {
        match self {
            Self::V1(all) => {
                all.iter().map(|(_, root)| root.join(group)).collect::<BTreeSet<_>>().into_iter().collect()
            }
            Self::V2(root) => vec![root.join(group)],
            Self::Nothing => Vec::new(),
        }
    }

    /// Makes a group appear as the root of the hierarchy in the mount namespace of the caller: groups are then created
    /// only below it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn confine(&self, group: &str) -> io::Result<()> {
        let roots: BTreeSet<&Path> = match self {
            Self::V1(all) => all.iter().map(|(_, root)| root.as_path()).collect(),
            Self::V2(root) => BTreeSet::from([root.as_path()]),
            Self::Nothing => BTreeSet::new(),
        };
        roots.into_iter().try_for_each(|root| crate::mounts::bind(&root.join(group), root, false))
    }

    /// Top-level groups with this prefix.
    #[must_use]
    pub fn beginning(&self, prefix: &str) -> BTreeSet<String> {
        let entries = self.everywhere("").into_iter().filter_map(|root| fs::read_dir(root).ok()).flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    /// The `cgroup.procs` files of a group.
    #[must_use]
    pub fn procs_files(&self, group: &str) -> Vec<PathBuf> {
        self.folders(group).iter().map(|folder| folder.join("cgroup.procs")).collect()
    }

    /// Creates a group with limits, or updates the limits.
    ///
    /// # Errors
    /// When it cannot be created, or a controller that a limit needs is missing.
    pub fn make(&self, group: &str, limits: &Limits) -> io::Result<()> {
        match self {
            Self::V1(all) => {
                for (name, root) in all {
                    let folder = root.join(group);
                    fs::create_dir_all(&folder)?;
                    v1_limits(name, &folder, limits)?;
                }
                Ok(())
            }
            Self::V2(root) => {
                let mut above = root.clone();
                let parts: Vec<&str> = group.split('/').collect();
                for part in &parts {
                    delegate(&above);
                    above.push(part);
                    fs::create_dir_all(&above)?;
                }
                v2_limits(&above, limits)
            }
            // The pids limit is our default, not part of the container spec.
            Self::Nothing if limits.cpu.is_none() && limits.memory.is_none() => Ok(()),
            Self::Nothing => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "this machine has no control groups mounted"))
            }
        }
    }

    /// Processes in a group and its descendants.
    #[must_use]
    pub fn processes(&self, group: &str) -> BTreeSet<i32> {
        let mut out = BTreeSet::new();
        for folder in self.folders(group) {
            gather(&folder, &mut out);
        }
        out
    }

    /// Number of OOM kills in a group.
    #[must_use]
    pub fn out_of_memory(&self, group: &str) -> u64 {
        let counted = |file: PathBuf| -> Option<u64> {
            let text = fs::read_to_string(file).ok()?;
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
        };
        let files = self
            .folders(group)
            .into_iter()
            .flat_map(|folder| ["memory.events", "memory.oom_control"].map(|name| folder.join(name)));
        files.filter_map(counted).max().unwrap_or(0)
    }

    /// Kills all processes in a group; returns whether there were any.
    pub fn kill(&self, group: &str) -> bool {
        if let Self::V2(root) = self
            && !self.processes(group).is_empty()
            && fs::write(root.join(group).join("cgroup.kill"), "1").is_ok()
        {
            return true;
        }
        let all = self.processes(group);
        for pid in all.iter().filter_map(|pid| rustix::process::Pid::from_raw(*pid)) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        !all.is_empty()
    }

    /// Kills and removes a group. Waits for its processes up to the timeout.
    ///
    /// # Errors
    /// When processes remain.
    pub fn end(&self, group: &str, timeout: Duration) -> io::Result<bool> {
        let begun = Instant::now();
        loop {
            self.kill(group);
            match self.remove(group) {
                Err(_) if begun.elapsed() < timeout => {
                    // There is no notification.
                    let _ = rustix::event::poll(&mut [], Some(&PAUSE));
                }
                removed => return removed,
            }
        }
    }

    /// Removes a group and its descendants, which must be empty. Returns whether it existed.
    ///
    /// # Errors
    /// When it is not empty.
    pub fn remove(&self, group: &str) -> io::Result<bool> {
        let mut found = false;
        for folder in self.everywhere(group) {
            found |= remove_tree(&folder)?;
        }
        Ok(found)
    }
}

fn gather(folder: &Path, out: &mut BTreeSet<i32>) {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    out.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            gather(&entry.path(), out);
        }
    }
}

fn remove_tree(folder: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display()))),
    }
}

/// Enables controllers for child groups. A missing one is reported when a limit needs it.
fn delegate(folder: &Path) {
    for controller in CONTROLLERS {
        let _ = fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

fn put(folder: &Path, name: &str, value: &str) -> io::Result<()> {
    let path = folder.join(name);
    fs::write(&path, value).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// CPU shares of a request in v1, as computed by the kubelet: 1024 per CPU.
fn shares(request: u64) -> u64 {
    (request.saturating_mul(1024) / 1000).clamp(2, 262_144)
}

/// The same in v2: from 2..262144 to 1..10000, as converted by the kubelet.
fn weight(request: u64) -> u64 {
    1 + (shares(request) - 2) * 9999 / 262_142
}

fn v1_limits(controller: &str, folder: &Path, limits: &Limits) -> io::Result<()> {
    match controller {
        "cpu" => {
            if let Some(request) = limits.cpu_request {
                put(folder, "cpu.shares", &shares(request).to_string())?;
            }
            if let Some(cpu) = limits.cpu {
                put(folder, "cpu.cfs_period_us", &PERIOD.to_string())?;
                put(folder, "cpu.cfs_quota_us", &(cpu * PERIOD / 1000).max(1000).to_string())?;
            }
        }
        "memory" => {
            if let Some(memory) = limits.memory {
                put(folder, "memory.limit_in_bytes", &memory.to_string())?;
                // Without this, memory above the limit is swapped. Not every kernel has swap accounting.
                let _ = put(folder, "memory.memsw.limit_in_bytes", &memory.to_string());
            }
        }
        "pids" => {
            if let Some(pids) = limits.pids {
                put(folder, "pids.max", &pids.to_string())?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn v2_limits(folder: &Path, limits: &Limits) -> io::Result<()> {
    if let Some(request) = limits.cpu_request {
        put_request(folder, request)?;
    }
    if let Some(cpu) = limits.cpu {
        put(folder, "cpu.max", &format!("{} {PERIOD}", (cpu * PERIOD / 1000).max(1000)))?;
    }
    if let Some(memory) = limits.memory {
        put(folder, "memory.max", &memory.to_string())?;
        let _ = put(folder, "memory.swap.max", "0");
    }
    if let Some(pids) = limits.pids {
        put(folder, "pids.max", &pids.to_string())?;
    }
    Ok(())
}

/// A zero request is not an error where the controller is missing.
fn put_request(folder: &Path, request: u64) -> io::Result<()> {
    match put(folder, "cpu.weight", &weight(request).to_string()) {
        Err(_) if request == 0 => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the kubelet.
    #[test]
    fn cpu_weights_equal_those_of_the_kubelet() {
        let cases = [(0, 2, 1), (1, 2, 1), (100, 102, 4), (500, 512, 20), (1000, 1024, 39), (2000, 2048, 79)];
        let most = [(256_000, 262_144, 10_000), (u64::MAX, 262_144, 10_000)];
        for (request, v1, v2) in cases.into_iter().chain(most) {
            assert_eq!((shares(request), weight(request)), (v1, v2), "{request}");
        }
    }

    #[test]
    fn groups_without_a_request_have_the_default_weight() {
        let root = std::env::temp_dir().join(format!("waypost-cgroups-weights-{}", std::process::id()));
        let (v1, v2) = (root.join("v1"), root.join("v2"));
        let versions = [Cgroups::V1(vec![("cpu".to_owned(), v1.clone())]), Cgroups::V2(v2.clone())];
        for (request, wanted) in
            [(None, [None, None]), (Some(0), [Some("2"), Some("1")]), (Some(100), [Some("102"), Some("4")])]
        {
            let group = format!("group-{request:?}");
            let limits = Limits { cpu_request: request, ..Limits::default() };
            let made = versions.iter().map(|groups| groups.make(&group, &limits));
            made.for_each(|made| made.expect("made"));
            let read = |path: PathBuf| fs::read_to_string(path).ok();
            let found = [read(v1.join(&group).join("cpu.shares")), read(v2.join(&group).join("cpu.weight"))];
            assert_eq!(found.each_ref().map(Option::as_deref), wanted, "{request:?}");
        }
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn hierarchies_are_found() {
        let v1 = "30 29 0:26 / /c/cpu rw - cgroup cgroup rw,cpu,cpuacct\n31 29 0:27 / /c/memory rw - cgroup cgroup rw,memory\n\
                  32 29 0:28 / /c/unified rw - cgroup2 cgroup2 rw\n33 29 0:3 / /c/systemd rw - cgroup cgroup rw,xattr,name=systemd";
        let all = [("cpu", "/c/cpu"), ("memory", "/c/memory"), ("systemd", "/c/systemd")];
        let all = all.map(|(name, at)| (name.to_owned(), PathBuf::from(at)));
        assert_eq!(Cgroups::read(v1), Cgroups::V1(all.to_vec()));
        assert_eq!(Cgroups::read("30 29 0:26 / /c rw - cgroup2 cgroup2 rw"), Cgroups::V2("/c".into()));
        assert_eq!(Cgroups::read("1 2 3:4 / / rw - ext4 /dev/vda rw"), Cgroups::Nothing);
    }

    #[test]
    fn limits_of_version_2_are_files() {
        let root = std::env::temp_dir().join(format!("waypost-cgroups-{}", std::process::id()));
        fs::create_dir_all(&root).expect("made");
        let groups = Cgroups::V2(root.clone());
        let limits = Limits { cpu_request: Some(500), cpu: Some(1500), memory: Some(1 << 20), pids: Some(64) };
        groups.make("waypost/a/b", &limits).expect("made");
        let read = |name: &str| fs::read_to_string(root.join("waypost/a/b").join(name)).expect(name);
        assert_eq!((read("cpu.max"), read("memory.max")), ("150000 100000".to_owned(), "1048576".to_owned()));
        assert_eq!((read("cpu.weight"), read("pids.max")), ("20".to_owned(), "64".to_owned()));
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn version_2_delegates_controllers_and_has_one_procs_file() {
        let root = std::env::temp_dir().join(format!("waypost-cgroups-2-{}", std::process::id()));
        fs::create_dir_all(&root).expect("made");
        let groups = Cgroups::V2(root.clone());
        groups.make("waypost/a/b", &Limits::default()).expect("made");
        // Processes are only in leaf groups: only inner ones delegate controllers.
        for (above, gives) in [("", true), ("waypost", true), ("waypost/a", true), ("waypost/a/b", false)] {
            assert_eq!(root.join(above).join("cgroup.subtree_control").exists(), gives, "{above:?}");
        }
        assert_eq!(groups.procs_files("waypost/a/b"), [root.join("waypost/a/b/cgroup.procs")]);
        // Without limits none are written.
        assert!(!root.join("waypost/a/b/memory.max").exists() && !root.join("waypost/a/b/cpu.weight").exists());
        assert_eq!((groups.out_of_memory("waypost/a/b"), groups.processes("waypost").len()), (0, 0));
        fs::write(root.join("waypost/a/b/memory.events"), "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n")
            .expect("written");
        fs::write(root.join("waypost/a/b/cgroup.procs"), "1999999999\n").expect("written");
        assert_eq!(groups.out_of_memory("waypost/a/b"), 1);
        assert_eq!(groups.processes("waypost/a"), BTreeSet::from([1_999_999_999]));
        // cgroup.kill kills all at once.
        fs::write(root.join("waypost/a/cgroup.kill"), "").expect("written");
        assert!(groups.kill("waypost/a"));
        assert_eq!(fs::read_to_string(root.join("waypost/a/cgroup.kill")).expect("read"), "1");
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn a_group_is_created_and_removed() {
        let groups = Cgroups::find();
        assert_ne!(groups, Cgroups::Nothing, "this test needs control groups");
        let name = format!("waypost-test-{}", std::process::id());
        groups
            .make(&format!("{name}/x"), &Limits { pids: Some(7), ..Limits::default() })
            .expect("made; this test needs root");
        assert!(groups.processes(&name).is_empty() && !groups.kill(&name));
        assert_eq!(groups.beginning(&name), BTreeSet::from([name.clone()]));
        assert!(groups.remove(&name).expect("removed") && !groups.remove(&name).expect("gone"));
    }

    #[test]
    fn processes_are_killed_with_their_group() {
        let groups = Cgroups::find();
        let name = format!("waypost-test-end-{}", std::process::id());
        groups.make(&name, &Limits::default()).expect("made; this test needs root");
        let joins: String =
            groups.procs_files(&name).iter().map(|file| format!("echo $$ > {}; ", file.display())).collect();
        let null = || fs::File::options().read(true).write(true).open("/dev/null").expect("a device").into();
        let script = format!("{joins} exec sleep 600");
        let words = ["-c", &script].map(std::ffi::OsStr::new);
        let program =
            crate::process::Spawned::begin(Path::new("/bin/sh"), &words, [null(), null(), null()]).expect("begun");
        while groups.processes(&name).is_empty() {
            assert!(!program.handle.ends_within(Duration::from_millis(10)), "it does not run");
        }
        assert!(groups.end(&name, Duration::from_secs(20)).expect("ended"));
        assert!(program.handle.has_ended() && groups.beginning(&name).is_empty());
    }
}
