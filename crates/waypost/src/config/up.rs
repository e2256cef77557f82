//! Settings of `up` and `down`, and the presets of `--rootless` and `--dev`.
//!
//! Presets only change defaults: flags and the configuration file win.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Command};

use super::{AccessLogArguments, AgentArguments, DataDir, DnsArguments, ProxyArguments, ServerArguments, file};

/// Settings of all components on one machine.
#[derive(Args, Debug, Clone)]
pub(crate) struct UpArguments {
    /// Change nothing of this machine: Services on loopback addresses, data in your home directory, no Pods
    #[arg(long, env = "WAYPOST_ROOTLESS")]
    pub(crate) rootless: bool,
    /// For development: data in a temporary directory, any free port; everything is removed at exit
    #[arg(long, env = "WAYPOST_DEV", conflicts_with = "data_dir")]
    pub(crate) dev: bool,
    /// Add a context to your kubeconfig ($KUBECONFIG or ~/.kube/config); `waypost down` removes it
    #[arg(long, env = "WAYPOST_ADD_CONTEXT", num_args = 0..=1, default_missing_value = "waypost", value_name = "NAME")]
    pub(crate) add_context: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    #[command(flatten)]
    pub(crate) proxy: ProxyArguments,
    #[command(flatten)]
    pub(crate) log: AccessLogArguments,
    #[command(flatten)]
    pub(crate) dns: DnsArguments,
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
}

/// Settings of `down`.
#[derive(Args, Debug, Clone)]
pub(crate) struct DownArguments {
    #[command(flatten)]
    pub(crate) place: DataDir,
    /// Stop what `waypost up --rootless` started
    #[arg(long, env = "WAYPOST_ROOTLESS")]
    pub(crate) rootless: bool,
    /// Keep objects, certificates and images
    #[arg(long)]
    pub(crate) keep_data: bool,
    /// The bridge of Pods
    #[arg(long, env = "WAYPOST_POD_BRIDGE", default_value = "waypost0", value_name = "NAME")]
    pub(crate) pod_bridge: String,
}

/// Applies the defaults of `--rootless` and `--dev`.
pub(super) fn presets(mut command: Command, arguments: &[OsString]) -> Command {
    let own = arguments.iter().take_while(|word| *word != "--");
    let given = |flag: &str| own.clone().any(|word| word == flag);
    let set = |name: &str| std::env::var(name).is_ok_and(|value| value == "true" || value == "1");
    if !["up", "down"].iter().any(|word| given(word)) {
        return command;
    }
    if given("--rootless") || set("WAYPOST_ROOTLESS") {
        let home = home(|name| std::env::var_os(name));
        let defaults = [
            ("data-dir", &*home.to_string_lossy()),
            ("service-cluster-ip-range", "127.96.0.0/16"),
            ("nodeport-addresses", "localhost"),
            ("dns-listen", "127.0.0.1:10053"),
            ("workloads", "false"),
        ];
        for (key, value) in defaults {
            command = file::with_default(command, key, value);
        }
    }
    if given("--dev") || set("WAYPOST_DEV") {
        command = file::with_default(command, "listen", "127.0.0.1:0");
    }
    command
}

/// The default data directory of unprivileged users.
fn home(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let given = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let share = given("XDG_DATA_HOME").or_else(|| given("HOME").map(|home| home.join(".local/share")));
    share.unwrap_or_else(|| Path::new(".").to_owned()).join("waypost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Subject, parse};

    fn up(words: &[&str]) -> Result<UpArguments, clap::Error> {
        let all = ["waypost", "up"].iter().chain(words).map(OsString::from);
        match parse(all)?.command {
            Subject::Up(arguments) => Ok(*arguments),
            other => panic!("not `up`: {other:?}"),
        }
    }

    #[test]
    fn rootless_changes_only_defaults() {
        let plain = up(&["--rootless"]).expect("good arguments");
        assert_eq!(plain.server.service_cluster_ip_range, ["127.96.0.0/16".parse().expect("a range")]);
        assert_eq!(plain.agent.workloads, Some(false));
        assert!(
            plain.server.place.data_dir.ends_with("waypost")
                && plain.server.place.data_dir != Path::new("/var/lib/waypost")
        );
        let given = up(&["--rootless", "--data-dir", "/srv/x", "--service-cluster-ip-range", "127.1.0.0/16"]);
        let given = given.expect("good arguments");
        assert_eq!(given.server.place.data_dir, Path::new("/srv/x"));
        assert_eq!(given.server.service_cluster_ip_range, ["127.1.0.0/16".parse().expect("a range")]);
    }

    #[test]
    fn dev_uses_a_free_port_and_a_temporary_directory() {
        assert_eq!(up(&["--dev"]).expect("good arguments").server.listen.port(), 0);
        let error = up(&["--dev", "--data-dir", "/srv/x"]).expect_err("one or the other");
        assert!(error.to_string().contains("--data-dir"), "{error}");
    }

    #[test]
    fn the_data_directory_follows_the_xdg_variables() {
        let of = |known: &[(&str, &str)]| {
            home(|name| known.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
        };
        assert_eq!(of(&[("HOME", "/home/ada")]), Path::new("/home/ada/.local/share/waypost"));
        assert_eq!(of(&[("HOME", "/home/ada"), ("XDG_DATA_HOME", "/data")]), Path::new("/data/waypost"));
        assert_eq!(of(&[("HOME", "")]), Path::new("./waypost"));
    }
}
