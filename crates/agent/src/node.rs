//! Registers the Node, reports its status, and renews its Lease.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::value::ValueExt as _;
use api::view::labels;
use client::requests::{ApiError, Verb, find};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::quantities::Capacity;

/// How often the Lease is renewed.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// `leaseDurationSeconds`
const LEASE_SECONDS: u32 = 40;
/// The status is written at least every this many heartbeats.
const STATUS_EVERY: u32 = 30;

/// Resources of this node.
#[must_use]
pub fn capacity(data_dir: &Path) -> Capacity {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let storage = rustix::fs::statvfs(data_dir).map_or(0, |disk| disk.f_blocks * disk.f_frsize);
    Capacity { cpu: processors * 1000, memory: memory.unwrap_or(0) * 1024, storage }
}

fn path(machine: &Machine) -> String {
    format!("/api/v1/nodes/{}", machine.settings.node)
}

/// Creates the Node or updates its labels, and writes its status.
///
/// # Errors
/// When a request fails.
pub async fn register(machine: &Machine) -> Result<(), ApiError> {
    let name = &machine.settings.node;
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let labels = json!({
        labels::HOSTNAME: name, labels::OS: "linux", labels::ARCH: arch,
        labels::BETA_OS: "linux", labels::BETA_ARCH: arch,
    });
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    match machine.api.request(Verb::Create, "/api/v1/nodes", Some(&node)).await {
        Ok(_) => {}
        Err(error) if error.is_conflict() => {
            let change = json!({"metadata": {"labels": labels}});
            machine.api.request(Verb::Patch, &path(machine), Some(&change)).await?;
        }
        Err(error) => return Err(error),
    }
    update_status(machine).await
}

/// Writes the status of the Node.
async fn update_status(machine: &Machine) -> Result<(), ApiError> {
    let now = find(&*machine.api, &path(machine)).await?.unwrap_or_default();
    let change = json!({"status": status(machine, &now, Timestamp::now())});
    machine.api.request(Verb::Patch, &format!("{}/status", path(machine)), Some(&change)).await.map(|_| ())
}

fn status(machine: &Machine, node: &Value, now: Timestamp) -> Value {
    let uname = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let Capacity { cpu, memory, storage } = machine.capacity;
    let resources = json!({
        "cpu": (cpu / 1000).to_string(), "memory": format!("{}Ki", memory / 1024),
        "ephemeral-storage": format!("{}Ki", storage / 1024), "pods": machine.settings.max_pods.to_string(),
    });
    let addresses = machine.host.iter().map(|ip| json!({"type": "InternalIP", "address": ip.to_string()}));
    let host_name = json!({"type": "Hostname", "address": machine.settings.node});
    // The merge key is `type`: without `replace`, two addresses of one type would be merged into one.
    let whole = json!({"$patch": "replace"});
    let addresses: Vec<Value> = std::iter::once(whole).chain(addresses).chain([host_name]).collect();
    let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let os = file("/etc/os-release");
    let os = os.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux").trim_matches('"');
    json!({
        "capacity": resources,
        "allocatable": resources,
        "addresses": addresses,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": machine.settings.port}},
        "nodeInfo": {
            "machineID": file("/etc/machine-id"), "systemUUID": file("/etc/machine-id"),
            "bootID": file("/proc/sys/kernel/random/boot_id"), "kernelVersion": text(uname.release()), "osImage": os,
            "containerRuntimeVersion": concat!("waypost://", env!("CARGO_PKG_VERSION")),
            "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION"), "-waypost"), "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64"),
        },
        "conditions": conditions(node, now),
    })
}

fn conditions(node: &Value, now: Timestamp) -> Value {
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let all = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "the Waypost agent is ready"),
    ];
    let one = |(kind, status, reason, message): (&str, &str, &str, &str)| {
        let old = node.items("status.conditions").iter().find(|condition| condition.text("type") == kind);
        let since = old.filter(|old| old.text("status") == status).map(|old| old.text("lastTransitionTime").to_owned());
        json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": time,
            "lastTransitionTime": since.unwrap_or_else(|| time.clone()),
        })
    };
    all.into_iter().map(one).collect()
}

/// Renews the Lease, and writes the status periodically and whenever the Node is not Ready.
pub async fn keep_alive(machine: Arc<Machine>) {
    let mut beats: u32 = 0;
    let mut every = tokio::time::interval(HEARTBEAT);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let node = find(&*machine.api, &path(&machine)).await;
        let uid = node.as_ref().ok().and_then(Option::as_ref).map(|node| node.text("metadata.uid"));
        if let Err(error) = renew_lease(&machine, uid).await {
            tracing::warn!(%error, "failed to renew the Node Lease");
            continue;
        }
        beats += 1;
        let ready = |node: &Value| {
            let mut all = node.items("status.conditions").iter();
            all.any(|condition| condition.text("type") == "Ready" && condition.text("status") == "True")
        };
        let done = match node {
            Ok(None) => register(&machine).await,
            Ok(Some(node)) if beats.is_multiple_of(STATUS_EVERY) || !ready(&node) => update_status(&machine).await,
            Ok(Some(_)) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            tracing::warn!(%error, "failed to write the Node status");
        }
    }
}

/// Renews the Lease of the Node; the Node with this UID owns it.
async fn renew_lease(machine: &Machine, uid: Option<&str>) -> Result<(), ApiError> {
    let name = &machine.settings.node;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let owner = |uid: &str| json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]);
    let mut change = json!({"spec": {"renewTime": now}});
    if let Some(uid) = uid {
        change.put("metadata.ownerReferences", owner(uid));
    }
    match machine.api.request(Verb::Patch, &format!("{leases}/{name}"), Some(&change)).await {
        Err(error) if error.is_not_found() => {
            let mut lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
            });
            if let Some(uid) = uid {
                lease.put("metadata.ownerReferences", owner(uid));
            }
            machine.api.request(Verb::Create, leases, Some(&lease)).await.map(|_| ())
        }
        done => done.map(|_| ()),
    }
}
