//! The measured proxies: `waypost node` in each of its modes, and kube-proxy in two of its modes when installed.
//!
//! kube-proxy is set up to its advantage: it may write as often as it likes (its default is once a second), and keeps its
//! hands off the machine's connection tracking. In iptables mode it uses the legacy tools, which are much faster than
//! those that translate to nftables.
#![expect(clippy::disallowed_methods, reason = "a benchmark runs the programs it measures")]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testbed::net::Node;

use crate::kubernetes::{self, version};
use crate::waypost::Waypost;

/// The legacy tools are one program with many names.
const LEGACY: &str = "/usr/sbin/xtables-legacy-multi";
/// The names that kube-proxy calls them by.
const TOOLS: [&str; 6] =
    ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"];
/// The addresses of Pods: what comes from there keeps its address.
const PODS: &str = "10.244.0.0/16";

/// The least time between two writes of kube-proxy; it takes 0 for its default.
const OFTEN: &str = "1ms";

/// How Services are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Waypost(&'static str),
    Nftables,
    Iptables,
}

/// A proxy that can be measured.
#[derive(Clone, Debug)]
pub struct Contender {
    mode: Mode,
    program: PathBuf,
}

impl Contender {
    /// Ours, in its default mode.
    ///
    /// # Errors
    /// When its program is missing.
    pub fn waypost() -> anyhow::Result<Self> {
        Self::waypost_in("nftables")
    }

    /// Ours, in this mode.
    ///
    /// # Errors
    /// When its program is missing.
    pub fn waypost_in(mode: &'static str) -> anyhow::Result<Self> {
        Ok(Self { mode: Mode::Waypost(mode), program: Waypost::find()?.program().to_owned() })
    }

    /// kube-proxy writing nftables.
    ///
    /// # Errors
    /// When its program is missing.
    pub fn nftables() -> anyhow::Result<Self> {
        Ok(Self { mode: Mode::Nftables, program: kubernetes::program("kube-proxy")? })
    }

    /// kube-proxy writing iptables.
    ///
    /// # Errors
    /// When its program or the tools are missing.
    pub fn iptables() -> anyhow::Result<Self> {
        ensure!(Path::new(LEGACY).exists(), "{LEGACY} is missing: install iptables");
        Ok(Self { mode: Mode::Iptables, program: kubernetes::program("kube-proxy")? })
    }

    /// Its name in the report.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.mode {
            Mode::Waypost(_) => "waypost",
            Mode::Nftables => "kube-proxy nftables",
            Mode::Iptables => "kube-proxy iptables",
        }
    }

    /// A name for its node that is short enough for an interface.
    #[must_use]
    pub fn short(&self) -> &'static str {
        match self.mode {
            Mode::Waypost("iptables") => "wp-ipt",
            Mode::Waypost("userspace") => "wp-us",
            Mode::Waypost(_) => "waypost",
            Mode::Nftables => "kp-nft",
            Mode::Iptables => "kp-ipt",
        }
    }

    /// Whether it is ours.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(self.mode, Mode::Waypost(_))
    }

    /// How it serves.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        match self.mode {
            Mode::Waypost(mode) => mode,
            Mode::Nftables => "nftables",
            Mode::Iptables => "iptables",
        }
    }

    /// Whether the kernel reports what it writes.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.mode() != "iptables"
    }

    /// Whether it carries connections itself: it accepts them whatever its endpoints do, and Services stop when it does.
    #[must_use]
    pub fn is_relay(&self) -> bool {
        self.mode() == "userspace"
    }

    /// Makes a node ready for it.
    pub fn prepare(&self, node: &Node) {
        if self.mode == Mode::Waypost("iptables") {
            // The sign by which it takes the same tools as the peer.
            let _ = node.run("iptables-legacy -t mangle -N KUBE-IPTABLES-HINT").success();
        }
    }

    /// What is measured.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.mode {
            Mode::Waypost("iptables") => "waypost node, iptables, legacy tools".to_owned(),
            Mode::Waypost(mode) => format!("waypost node, {mode}"),
            Mode::Nftables => format!("kube-proxy, minSyncPeriod {OFTEN} ({})", version()),
            Mode::Iptables => format!("kube-proxy, minSyncPeriod {OFTEN}, legacy tools ({})", version()),
        }
    }

    /// How it is started on a node. `home` is a directory for what it needs.
    ///
    /// # Errors
    /// When that cannot be prepared.
    pub fn command(&self, kubeconfig: &Path, node: &str, home: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(&self.program);
        match self.mode {
            Mode::Waypost(mode) => {
                command.args(["node", "--node-name", node, "--cluster-cidr", PODS, "--kubeconfig"]).arg(kubeconfig);
                command.args(["--proxy-mode", mode]);
            }
            Mode::Nftables | Mode::Iptables => {
                let file = home.join(format!("{node}.json"));
                let settings = self.settings(kubeconfig, node).to_string();
                std::fs::write(&file, settings).with_context(|| format!("writing {}", file.display()))?;
                command.arg("--config").arg(file);
            }
        }
        if self.mode == Mode::Iptables {
            let tools = legacy_tools(home)?;
            command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", tools.display()));
        }
        Ok(command)
    }

    /// The settings of kube-proxy.
    fn settings(&self, kubeconfig: &Path, node: &str) -> Value {
        json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
            "mode": self.mode(), "hostnameOverride": node, "clusterCIDR": PODS,
            "clientConnection": {"kubeconfig": kubeconfig},
            "nftables": {"minSyncPeriod": OFTEN},
            "iptables": {"minSyncPeriod": OFTEN, "localhostNodePorts": false},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        })
    }
}

/// A directory in which the tools of iptables are the legacy ones, whatever the machine prefers.
fn legacy_tools(home: &Path) -> anyhow::Result<PathBuf> {
    let tools = home.join("iptables");
    if !tools.exists() {
        std::fs::create_dir(&tools).context("making a directory for the tools of iptables")?;
        for name in TOOLS {
            std::os::unix::fs::symlink(LEGACY, tools.join(name)).context("naming a tool of iptables")?;
        }
    }
    Ok(tools)
}
