//! Profiles in the JSON format of Docker and of the OCI runtime specification, resolved for one container.
//!
//! In: a file, and the [`Host`] for which its `includes`, `excludes` and `archMap` are evaluated. Out: [`Resolved`], without conditions. Pure.

use kernel::seccomp::{Action, Architecture, Compare, Condition, FLAG_LOG, FLAG_SPEC_ALLOW, Policy, Rule};
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::container_error::ContainerError;

/// Inputs of conditions in a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// The architecture.
    pub(crate) architecture: Architecture,
    /// Version and patch level of the kernel.
    pub(crate) kernel: (u32, u32),
    /// The capabilities of the container, as `CAP_…`.
    pub(crate) capabilities: Vec<String>,
}

impl Host {
    /// This host, for a container with these capabilities.
    pub(crate) fn of_this_machine(capabilities: Vec<String>) -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        Self { architecture: Architecture::NATIVE, kernel: version(&release).unwrap_or((0, 0)), capabilities }
    }
}

/// Why a profile cannot be used.
#[derive(Debug, Error)]
pub(super) enum Invalid {
    #[error("not a seccomp profile: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{field} {value:?} is not supported: {hint}")]
    Unsupported { field: String, value: String, hint: &'static str },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    default_action: String,
    default_errno_ret: Option<u32>,
    #[serde(default)]
    architectures: Option<Vec<String>>,
    #[serde(default)]
    arch_map: Option<Vec<ArchMap>>,
    #[serde(default)]
    flags: Option<Vec<String>>,
    #[serde(default)]
    listener_path: Option<String>,
    #[serde(default)]
    syscalls: Option<Vec<Syscall>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchMap {
    architecture: String,
    #[serde(default)]
    sub_architectures: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Syscall {
    #[serde(default)]
    names: Option<Vec<String>>,
    /// Legacy form with one name.
    #[serde(default)]
    name: Option<String>,
    action: String,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Option<Vec<Arg>>,
    #[serde(default)]
    includes: Option<When>,
    #[serde(default)]
    excludes: Option<When>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arg {
    index: u8,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct When {
    #[serde(default)]
    caps: Option<Vec<String>>,
    #[serde(default)]
    arches: Option<Vec<String>>,
    #[serde(default)]
    min_kernel: Option<String>,
}

impl When {
    /// Whether all conditions of `includes` hold; a missing condition holds.
    fn includes(&self, host: &Host) -> bool {
        let fits = |list: &Option<Vec<String>>, has: &dyn Fn(&String) -> bool, all: bool| match list {
            Some(list) if !list.is_empty() => {
                if all {
                    list.iter().all(has)
                } else {
                    list.iter().any(has)
                }
            }
            _ => true,
        };
        fits(&self.caps, &|cap| host.capabilities.contains(cap), true)
            && fits(&self.arches, &|arch| arch == go_name(host.architecture), false)
            && self.min_kernel.as_deref().is_none_or(|least| version(least).is_some_and(|least| host.kernel >= least))
    }

    /// Whether any condition of `excludes` holds.
    fn excludes(&self, host: &Host) -> bool {
        self.caps.iter().flatten().any(|cap| host.capabilities.contains(cap))
            || self.arches.iter().flatten().any(|arch| arch == go_name(host.architecture))
            || self.min_kernel.as_deref().and_then(version).is_some_and(|least| host.kernel >= least)
    }
}

/// `5.10.0-1-amd64` is version 5, patch level 10.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The name in `includes.arches`.
const fn go_name(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::X86_64 => "amd64",
        Architecture::X86 => "x86",
        Architecture::Aarch64 => "arm64",
        Architecture::Arm => "arm",
    }
}

/// The name in `architectures`.
const fn scmp_name(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::X86_64 => "SCMP_ARCH_X86_64",
        Architecture::X86 => "SCMP_ARCH_X86",
        Architecture::Aarch64 => "SCMP_ARCH_AARCH64",
        Architecture::Arm => "SCMP_ARCH_ARM",
    }
}

/// A profile for one container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resolved {
    policy: Policy,
    flags: u32,
    oci: Value,
}

impl Resolved {
    /// `linux.seccomp` of `config.json`.
    pub(crate) fn oci(&self) -> Value {
        self.oci.clone()
    }

    #[cfg(test)]
    pub(super) const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The BPF program and flags.
    ///
    /// # Errors
    /// When the filter is too long for the kernel.
    pub(crate) fn filter(&self) -> Result<(Vec<u64>, u32), ContainerError> {
        let filter = self.policy.assemble(self.flags);
        let filter = filter.map_err(|error| ContainerError::create(format!("seccomp profile: {error}")))?;
        Ok((filter.program, filter.flags))
    }
}

/// Resolves a profile.
pub(super) fn resolve(bytes: &[u8], host: &Host) -> Result<Resolved, Invalid> {
    let file: File = serde_json::from_slice(bytes)?;
    if let Some(path) = file.listener_path.filter(|path| !path.is_empty()) {
        return Err(unsupported("listenerPath", &path, "remove it"));
    }
    let mut rules = Vec::new();
    let mut oci = Vec::new();
    for (place, call) in file.syscalls.unwrap_or_default().into_iter().enumerate() {
        let included = call.includes.as_ref().is_none_or(|when| when.includes(host));
        if !included || call.excludes.as_ref().is_some_and(|when| when.excludes(host)) {
            continue;
        }
        let at = |field: &str| format!("syscalls[{place}].{field}");
        let action = action(&at("action"), &call.action, call.errno_ret)?;
        let args = call.args.unwrap_or_default();
        let names: Vec<String> = call.names.unwrap_or_default().into_iter().chain(call.name).collect();
        let mut wanted =
            json!({"names": names, "action": call.action, "args": args.iter().map(Arg::oci).collect::<Vec<_>>()});
        if let Some(number) = call.errno_ret {
            wanted["errnoRet"] = number.into();
        }
        oci.push(wanted);
        for conditions in alternatives(&args, &at("args"))? {
            let rule = |call: &String| Rule { call: call.clone(), conditions: conditions.clone(), action };
            rules.extend(names.iter().map(rule));
        }
    }
    let wanted = architectures(file.architectures, file.arch_map, host);
    let known = [Architecture::X86_64, Architecture::X86, Architecture::Aarch64, Architecture::Arm];
    let known = known.into_iter().filter(|one| wanted.iter().any(|name| name == scmp_name(*one))).collect();
    let default = action("defaultAction", &file.default_action, file.default_errno_ret)?;
    let flags = file.flags.unwrap_or_default();
    let mut seccomp = json!({"defaultAction": file.default_action, "architectures": wanted, "syscalls": oci});
    if let Some(number) = file.default_errno_ret {
        seccomp["defaultErrnoRet"] = number.into();
    }
    if !flags.is_empty() {
        seccomp["flags"] = json!(flags);
    }
    let policy = Policy { default, architectures: known, rules };
    Ok(Resolved { policy, flags: flag_bits(&flags)?, oci: seccomp })
}

/// The architectures of a profile; always includes the host's.
fn architectures(listed: Option<Vec<String>>, map: Option<Vec<ArchMap>>, host: &Host) -> Vec<String> {
    let native = scmp_name(host.architecture);
    let mapped = map.into_iter().flatten().find(|entry| entry.architecture == native);
    let subs = mapped.and_then(|entry| entry.sub_architectures).unwrap_or_default();
    let mut out = vec![native.to_owned()];
    for name in listed.unwrap_or_default().into_iter().chain(subs) {
        if !out.contains(&name) {
            out.push(name);
        }
    }
    out
}

fn unsupported(field: &str, value: &str, hint: &'static str) -> Invalid {
    Invalid::Unsupported { field: field.to_owned(), value: value.to_owned(), hint }
}

fn action(field: &str, name: &str, errno: Option<u32>) -> Result<Action, Invalid> {
    // errno is at most 4095; the default is EPERM.
    let errno = u16::try_from(errno.unwrap_or(1)).ok().filter(|errno| *errno <= 4095);
    let errno = errno.ok_or_else(|| unsupported(field, name, "its errnoRet must be at most 4095"))?;
    Ok(match name {
        "SCMP_ACT_ALLOW" => Action::Allow,
        "SCMP_ACT_ERRNO" => Action::Errno(errno),
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Action::KillThread,
        "SCMP_ACT_KILL_PROCESS" => Action::KillProcess,
        "SCMP_ACT_LOG" => Action::Log,
        "SCMP_ACT_TRACE" => Action::Trace(errno),
        "SCMP_ACT_TRAP" => Action::Trap,
        _ => return Err(unsupported(field, name, "use SCMP_ACT_ALLOW, _ERRNO, _KILL_PROCESS, _LOG, _TRAP or _TRACE")),
    })
}

fn flag_bits(flags: &[String]) -> Result<u32, Invalid> {
    flags.iter().try_fold(0, |bits, flag| match flag.as_str() {
        "SECCOMP_FILTER_FLAG_LOG" => Ok(bits | FLAG_LOG),
        "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => Ok(bits | FLAG_SPEC_ALLOW),
        // The filter is installed before the program has threads.
        "SECCOMP_FILTER_FLAG_TSYNC" => Ok(bits),
        other => Err(unsupported("flags", other, "remove it")),
    })
}

/// Alternative condition sets. Conditions on different arguments must all hold; if an argument has several, runtimes treat each condition as a
/// rule of its own.
fn alternatives(args: &[Arg], field: &str) -> Result<Vec<Vec<Condition>>, Invalid> {
    let all = args.iter().map(|arg| arg.condition(field)).collect::<Result<Vec<_>, _>>()?;
    let repeated = all.iter().enumerate().any(|(at, one)| all.iter().take(at).any(|own| own.argument == one.argument));
    Ok(if repeated { all.into_iter().map(|one| vec![one]).collect() } else { vec![all] })
}

impl Arg {
    fn oci(&self) -> Value {
        json!({"index": self.index, "value": self.value, "valueTwo": self.value_two, "op": self.op})
    }

    fn condition(&self, field: &str) -> Result<Condition, Invalid> {
        if self.index > 5 {
            return Err(unsupported(field, &self.index.to_string(), "calls have the arguments 0 to 5"));
        }
        let compare = match self.op.as_str() {
            "SCMP_CMP_EQ" => Compare::Equal(self.value),
            "SCMP_CMP_NE" => Compare::NotEqual(self.value),
            "SCMP_CMP_LT" => Compare::Less(self.value),
            "SCMP_CMP_LE" => Compare::LessOrEqual(self.value),
            "SCMP_CMP_GT" => Compare::Greater(self.value),
            "SCMP_CMP_GE" => Compare::GreaterOrEqual(self.value),
            "SCMP_CMP_MASKED_EQ" => Compare::Masked { mask: self.value, value: self.value_two },
            other => return Err(unsupported(field, other, "use SCMP_CMP_EQ, _NE, _LT, _LE, _GT, _GE or _MASKED_EQ")),
        };
        Ok(Condition { argument: self.index, compare })
    }
}
