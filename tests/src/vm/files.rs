//! What the virtual machine has in its memory: this test program, the binary under test, the tools of the testbed with the
//! libraries they need, and modules of the kernel.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::archive::Archive;

/// The tools that tests run.
const TOOLS: [&str; 16] = [
    "sh",
    "mount",
    "ip",
    "nft",
    "setpriv",
    "modprobe",
    "cat",
    "chroot",
    "cp",
    "mkdir",
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
];
/// What iptables loads when a rule needs it.
const EXTENSIONS: &str = "/usr/lib/x86_64-linux-gnu/xtables";
/// The modules that are worth their room: networks, devices that are made of nothing, and what these need.
const MODULES: [&str; 6] = [
    "kernel/net/",
    "kernel/drivers/net/veth",
    "kernel/drivers/net/dummy",
    "kernel/lib/",
    "kernel/crypto/",
    "kernel/arch/",
];
/// One that is left out, so that something is missing.
const LEFT_OUT: &str = "ip_vs_lblcr.ko";

/// Writes the memory of a machine that runs this script.
pub(super) fn write(path: &Path, kernel: &Path, script: &str) {
    let out = BufWriter::new(File::create(path).expect("the machine's memory"));
    let mut archive = Archive::new(out);
    for folder in ["proc", "sys", "dev", "tmp", "run", "etc"] {
        archive.folder(folder).expect("written");
    }
    for tool in TOOLS {
        add_program(&mut archive, &format!("/usr/sbin/{tool}"), &which(tool));
    }
    for extension in std::fs::read_dir(EXTENSIONS).unwrap_or_else(|error| panic!("{EXTENSIONS}: {error}")) {
        let path = extension.expect("a file").path();
        archive.copy(&path.to_string_lossy(), &path).expect("written");
    }
    // The kernel and scripts look for these where they have always been.
    add_program(&mut archive, "/sbin/modprobe", &which("modprobe"));
    add_program(&mut archive, "/bin/sh", &which("sh"));
    add_program(&mut archive, "/tests", &std::env::current_exe().expect("the path of this test"));
    add_program(&mut archive, "/waypost", &crate::binary());
    add_program(&mut archive, "/backend", &crate::backend());
    add_modules(&mut archive, &kernel.join("lib/modules"));
    archive.file("/init", script.as_bytes()).expect("written");
    archive.finish().expect("written");
}

fn which(tool: &str) -> PathBuf {
    let path = std::env::var_os("PATH").expect("a path");
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.map(|folder| folder.join(tool)).find(|path| path.exists());
    let found = found.unwrap_or_else(|| panic!("{tool} is missing: run ./scripts/test"));
    found.canonicalize().expect("a program")
}

/// Adds a program and the libraries that it needs, which keep their places.
fn add_program(archive: &mut Archive<impl Write>, path: &str, from: &Path) {
    archive.copy(path, from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    let listed = crate::run(Command::new("ldd").arg(from), "");
    for library in listed.out.split_whitespace().filter(|word| word.starts_with('/')) {
        archive.copy(library, Path::new(library)).unwrap_or_else(|error| panic!("{library}: {error}"));
    }
}

fn add_modules(archive: &mut Archive<impl Write>, modules: &Path) {
    let mut open = vec![modules.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("a file").path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(modules).expect("below it").to_string_lossy().into_owned();
            // The first part of the name is the version of the kernel.
            let rest = name.split_once('/').map_or("", |(_, rest)| rest);
            let wanted = !rest.starts_with("kernel/") || MODULES.iter().any(|module| rest.starts_with(module));
            if wanted && !rest.ends_with(LEFT_OUT) {
                archive.copy(&format!("lib/modules/{name}"), &path).expect("written");
            }
        }
    }
}
