//! The program of a container: command line, environment, working directory, credentials.

use api::value::ValueExt as _;
use serde_json::Value;

use super::ContainerConfig;
use crate::container_error::ContainerError;
use crate::environment::expand;
use crate::shim::Program;

/// The default PATH.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Capability names by number.
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Defaults from the image configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    pub(crate) entrypoint: Vec<String>,
    pub(crate) command: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) folder: String,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) home: String,
}

/// A field of the container's security context, or else of the Pod's.
pub(super) fn setting<'a>(config: &ContainerConfig<'a>, name: &str) -> &'a Value {
    let own = config.container.at("securityContext").at(name);
    if own.is_null() { config.pod.at("spec.securityContext").at(name) } else { own }
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

pub(crate) fn program(config: &ContainerConfig<'_>, defaults: &Defaults) -> Result<Program, ContainerError> {
    let container = config.container;
    let environment = environment(config, defaults);
    let get = |name: &str| environment.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
    let words = |list: &str| container.texts(list).into_iter().map(|word| expand(word, get)).collect::<Vec<_>>();
    let (command, arguments) = (words("command"), words("args"));
    let mut all = match (command.is_empty(), arguments.is_empty()) {
        (true, true) => [defaults.entrypoint.clone(), defaults.command.clone()].concat(),
        (true, false) => [defaults.entrypoint.clone(), arguments].concat(),
        (false, _) => [command, arguments].concat(),
    };
    all.retain(|word| !word.is_empty() || defaults.entrypoint.is_empty());
    if all.is_empty() {
        return Err(ContainerError::create("no command specified: give the container a command"));
    }
    if config.pod.at("spec.hostUsers") == &Value::Bool(false) {
        // Pod Security allows root in such a Pod: it must not be root of the host.
        return Err(ContainerError::config(
            "hostUsers: false needs a user namespace, which this node does not support: remove hostUsers",
        ));
    }
    let user = number(setting(config, "runAsUser")).or(defaults.user);
    let group = number(setting(config, "runAsGroup")).or(defaults.group).or(user.map(|_| 0));
    if setting(config, "runAsNonRoot").as_bool() == Some(true) && user.unwrap_or(0) == 0 {
        return Err(ContainerError::config(
            "container has runAsNonRoot and image will run as root: set securityContext.runAsUser to another number than 0",
        ));
    }
    let mut groups: Vec<u32> =
        config.pod.items("spec.securityContext.supplementalGroups").iter().filter_map(number).collect();
    groups.extend(number(config.pod.at("spec.securityContext.fsGroup")));
    let own_groups = user.is_some() || group.is_some() || !groups.is_empty();
    let folder = match container.text("workingDir") {
        "" => &defaults.folder,
        folder => folder,
    };
    Ok(Program {
        words: all,
        folder: folder.into(),
        user,
        group,
        groups: own_groups.then_some(groups),
        no_new_privileges: setting(config, "allowPrivilegeEscalation").as_bool() == Some(false),
        capabilities: None,
        seccomp: None,
        terminal: container.flag("tty"),
        environment,
    })
}

/// Default variables, those of the image and those of the container; later ones win.
fn environment(config: &ContainerConfig<'_>, defaults: &Defaults) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = vec![("PATH".to_owned(), PATH.to_owned())];
    if let Some(name) = &config.host_name {
        out.push(("HOSTNAME".to_owned(), name.clone()));
    }
    if config.container.flag("tty") {
        out.push(("TERM".to_owned(), "xterm".to_owned()));
    }
    let home = if defaults.home.is_empty() { "/root" } else { &defaults.home };
    out.push(("HOME".to_owned(), home.to_owned()));
    for (name, value) in defaults.environment.iter().chain(&config.environment) {
        match out.iter_mut().find(|(own, _)| own == name) {
            Some((_, old)) => value.clone_into(old),
            None => out.push((name.clone(), value.clone())),
        }
    }
    out
}

/// The capabilities of a container, relative to a base set; nothing when its spec sets none.
pub(crate) fn capabilities(container: &Value, base: u64) -> Option<u64> {
    let asked = container.at("securityContext.capabilities");
    if asked.is_null() {
        return None;
    }
    let bits = |word: &str| match word.strip_prefix("CAP_").unwrap_or(word) {
        "ALL" => all(),
        name => CAPABILITIES.iter().position(|own| *own == name).map_or(0, |place| 1 << place),
    };
    let dropped = asked.texts("drop").into_iter().fold(base, |have, word| have & !bits(word));
    Some(asked.texts("add").into_iter().fold(dropped, |have, word| have | bits(word)))
}

/// All capabilities.
pub(crate) const fn all() -> u64 {
    (1 << CAPABILITIES.len()) - 1
}

/// Capability names with the prefix `CAP_`.
pub(crate) fn capability_names(bits: u64) -> Vec<String> {
    let has = |place: &usize| bits & (1 << place) != 0;
    (0..CAPABILITIES.len())
        .filter(has)
        .filter_map(|place| CAPABILITIES.get(place))
        .map(|name| format!("CAP_{name}"))
        .collect()
}

/// The bits of capabilities by name.
pub(crate) fn capability_bits(names: &[&str]) -> u64 {
    CAPABILITIES
        .iter()
        .enumerate()
        .filter(|(_, name)| names.contains(name))
        .fold(0, |bits, (place, _)| bits | 1 << place)
}
