//! Arguments of adapters for workloads that already run on a machine: containers and systemd units.

use std::path::PathBuf;

use agent::settings::Adapters;
use clap::Args;

/// Container runtimes whose containers are adopted.
#[derive(Args, Debug, Clone)]
pub(crate) struct AdoptArguments {
    /// Show the containers of podman as Pods
    #[arg(
        long,
        env = "WAYPOST_PODMAN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/run/podman/podman.sock",
        value_name = "SOCKET"
    )]
    podman: Option<PathBuf>,
    /// Show the containers of docker as Pods
    #[arg(
        long,
        env = "WAYPOST_DOCKER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/var/run/docker.sock",
        value_name = "SOCKET"
    )]
    docker: Option<PathBuf>,
    /// Show units of systemd that have a section [X-Waypost] as Pods: all of them, or these
    #[arg(
        long,
        env = "WAYPOST_SYSTEMD",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        value_delimiter = ',',
        value_name = "UNIT,…"
    )]
    systemd: Option<Vec<String>>,
    /// The systemctl program
    #[arg(long, env = "WAYPOST_SYSTEMCTL", default_value = "systemctl", value_name = "PROGRAM")]
    systemctl: PathBuf,
}

impl AdoptArguments {
    /// The adapters of the agent.
    pub(crate) fn adapters(&self) -> Adapters {
        let all = |units: &Vec<String>| match &units[..] {
            [all] if all == "all" => Vec::new(),
            units => units.to_vec(),
        };
        Adapters {
            podman: self.podman.clone(),
            docker: self.docker.clone(),
            systemd: self.systemd.as_ref().map(all),
            systemctl: self.systemctl.clone(),
        }
    }

    /// The first of these flags that is set.
    pub(crate) fn flag(&self) -> Option<&'static str> {
        let podman = ("--podman", self.podman.is_some());
        let docker = ("--docker", self.docker.is_some());
        let systemd = ("--systemd", self.systemd.is_some());
        [podman, docker, systemd].into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }
}
