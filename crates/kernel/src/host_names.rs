//! Where the programs of this machine ask for names: told of a server of ours, and put back.
//!
//! In: the addresses of the server and the domain it knows. Out: systemd-resolved knows whom to ask for that domain, by a file of
//! ours among its settings; or, where there is none, `/etc/resolv.conf` names the server first, between two marks, and everything
//! else in it stays. Both go away with [`HostNames::restore`], whoever calls it.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

const BEGIN: &str = "# waypost begins";
const END: &str = "# waypost ends";

/// The files that say whom to ask.
#[derive(Clone, Debug)]
pub struct HostNames {
    /// Settings that systemd-resolved reads besides its own, if it runs.
    resolved: PathBuf,
    /// Where it would say that it runs.
    running: PathBuf,
    /// For everybody else.
    resolv_conf: PathBuf,
}

/// Who was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// systemd-resolved, about the domain.
    Resolved,
    /// Everybody, about everything.
    ResolvConf,
}

impl Default for HostNames {
    fn default() -> Self {
        Self::below(Path::new("/"))
    }
}

impl HostNames {
    /// Those of a machine whose files are below this one.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self {
            resolved: root.join("run/systemd/resolved.conf.d/waypost.conf"),
            running: root.join("run/systemd/resolve/stub-resolv.conf"),
            resolv_conf: root.join("etc/resolv.conf"),
        }
    }

    /// Tells of a server.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn tell(&self, servers: &[IpAddr], domain: &str) -> io::Result<Told> {
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
            return Ok(Told::Resolved);
        }
        let lines: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
        let rest = without_ours(&self.read()?);
        // The path may be a mount of its own, so the file is written and not replaced.
        std::fs::write(&self.resolv_conf, format!("{BEGIN}\n{lines}{END}\n{rest}"))?;
        Ok(Told::ResolvConf)
    }

    /// Puts everything back; answers whether there was something.
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

/// A resolv.conf without what we wrote into it.
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

/// Has systemd-resolved read its settings again.
fn reload() -> io::Result<()> {
    // The port to it is its manager's program: the bus has no smaller door.
    #[allow(clippy::disallowed_methods)]
    let status = Command::new("systemctl").args(["try-reload-or-restart", "systemd-resolved"]).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other("systemctl could not have systemd-resolved read its settings"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolv_conf_gets_our_server_first_and_is_put_back() {
        let root = std::env::temp_dir().join(format!("waypost-names-{}", std::process::id()));
        std::fs::create_dir_all(root.join("etc")).expect("made");
        let (names, path) = (HostNames::below(&root), root.join("etc/resolv.conf"));
        let before = "search example.org\nnameserver 192.0.2.1\n";
        std::fs::write(&path, before).expect("written");
        let servers = ["10.96.0.10".parse().expect("an address")];
        for _ in 0..2 {
            assert_eq!(names.tell(&servers, "cluster.local").expect("told"), Told::ResolvConf);
        }
        let text = std::fs::read_to_string(&path).expect("read");
        assert_eq!(text, format!("{BEGIN}\nnameserver 10.96.0.10\n{END}\n{before}"));
        assert_eq!(without_ours(&text), before);
        assert!(names.restore().expect("restored") && !names.restore().expect("nothing left"));
        assert_eq!(std::fs::read_to_string(&path).expect("read"), before);
        std::fs::remove_dir_all(root).expect("removed");
    }
}
