//! Registers our DNS server with the resolver of this machine, and restores it.
//!
//! In: the addresses of the server and its domain. Out: a drop-in file that routes the domain in systemd-resolved; or,
//! where that does not run, `/etc/resolv.conf` with the server first, between two markers, and everything else
//! unchanged. [`HostNames::restore`] undoes both.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

const BEGIN: &str = "# waypost begins";
const END: &str = "# waypost ends";

/// Resolver configuration files.
#[derive(Clone, Debug)]
pub struct HostNames {
    /// Drop-in file of systemd-resolved.
    resolved: PathBuf,
    /// Exists while systemd-resolved runs.
    running: PathBuf,
    /// resolv.conf.
    resolv_conf: PathBuf,
}

/// Which resolver was configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolver {
    /// systemd-resolved, for the domain.
    Resolved,
    /// resolv.conf, for all names.
    ResolvConf,
}

impl Default for HostNames {
    fn default() -> Self {
        Self::below(Path::new("/"))
    }
}

impl HostNames {
    /// The files below another root.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self {
            resolved: root.join("run/systemd/resolved.conf.d/waypost.conf"),
            running: root.join("run/systemd/resolve/stub-resolv.conf"),
            resolv_conf: root.join("etc/resolv.conf"),
        }
    }

    /// Configures a server.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn configure(&self, servers: &[IpAddr], domain: &str) -> io::Result<Resolver> {
        if self.running.exists() {
            let all: Vec<String> = servers.iter().map(ToString::to_string).collect();
            let text = format!(
                "# By waypost; `waypost cleanup` removes it.\n[Resolve]\nDNS={}\nDomains=~{domain}\n",
                all.join(" ")
            );
            if let Some(folder) = self.resolved.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&self.resolved, text)?;
            reload()?;
            return Ok(Resolver::Resolved);
        }
        let lines: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
        let rest = without_ours(&self.read()?);
        // It may be a bind mount, so the file is written in place, not replaced.
        std::fs::write(&self.resolv_conf, format!("{BEGIN}\n{lines}{END}\n{rest}"))?;
        Ok(Resolver::ResolvConf)
    }

    /// Restores everything; returns whether there was something.
    ///
    /// # Errors
    /// When a file of ours cannot be removed.
    pub fn restore(&self) -> io::Result<bool> {
        let mut found = false;
        if self.resolved.exists() {
            std::fs::remove_file(&self.resolved)?;
            reload()?;
            found = true;
        }
        let text = self.read()?;
        if text.contains(BEGIN) {
            std::fs::write(&self.resolv_conf, without_ours(&text))?;
            found = true;
        }
        Ok(found)
    }

    fn read(&self) -> io::Result<String> {
        match std::fs::read_to_string(&self.resolv_conf) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read,
        }
    }
}

/// A resolv.conf without our lines.
#[must_use]
pub fn without_ours(text: &str) -> String {
    let mut ours = false;
    let kept = text.lines().filter(|line| {
        ours |= *line == BEGIN;
        let keep = !ours;
        ours &= *line != END;
        keep
    });
    kept.map(|line| format!("{line}\n")).collect()
}

/// Makes systemd-resolved reload its configuration.
fn reload() -> io::Result<()> {
    // Through systemctl: there is no smaller D-Bus interface.
    #[allow(clippy::disallowed_methods)]
    let status = Command::new("systemctl").args(["try-reload-or-restart", "systemd-resolved"]).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("systemctl could not reload systemd-resolved")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_lists_our_server_first_and_is_restored() {
        let root = std::env::temp_dir().join(format!("waypost-names-{}", std::process::id()));
        std::fs::create_dir_all(root.join("etc")).expect("made");
        let (names, path) = (HostNames::below(&root), root.join("etc/resolv.conf"));
        let before = "search example.org\nnameserver 192.0.2.1\n";
        std::fs::write(&path, before).expect("written");
        let servers = ["10.96.0.10".parse().expect("an address")];
        for _ in 0..2 {
            assert_eq!(names.configure(&servers, "cluster.local").expect("told"), Resolver::ResolvConf);
        }
        let text = std::fs::read_to_string(&path).expect("read");
        assert_eq!(text, format!("{BEGIN}\nnameserver 10.96.0.10\n{END}\n{before}"));
        assert_eq!(without_ours(&text), before);
        assert!(names.restore().expect("restored") && !names.restore().expect("nothing left"));
        assert_eq!(std::fs::read_to_string(&path).expect("read"), before);
        std::fs::remove_dir_all(root).expect("removed");
    }
}
