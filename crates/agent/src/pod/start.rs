//! Starts containers: resolves environment and mounts, has the runtime prepare a [`ShimSpec`], and runs the shim.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::Value;

use super::{PodEvent, Worker, fetch, image, retry_at};
use crate::container_error::ContainerError;
use crate::data_dir::PodDir;
use crate::decide::{backoff, spec::Spec};
use crate::environment::{self, Given, expand};
use crate::facts::{Health, State};
use crate::machine::{GROUP, Machine};
use crate::metrics::Operation;
use crate::runtime::{self, ContainerConfig};
use crate::shim::{SPEC_FILE, START_FILE, ShimSpec, StartRecord, ViewMount};
use crate::{files, names, quantities, volumes};

impl Worker {
    /// Starts the next instance of a container.
    pub(super) fn start(&mut self, name: &str) {
        let pod = self.pod.clone();
        let spec = Spec::read(&pod);
        let Some(part) = spec.part(name) else { return };
        let uid = pod.text("metadata.uid").to_owned();
        let container = self.facts.containers.entry(name.to_owned()).or_default();
        if let State::Terminated(ending) = &container.state {
            container.last = Some(ending.clone());
            container.restarts += 1;
            container.backoff = backoff::next(container.backoff);
        }
        container.state = State::Starting;
        container.health = Health::default();
        let number = container.restarts;
        container.id = id(&uid, name, number);
        self.save_state(name);
        let (machine, dir, queue) = (self.machine.clone(), self.dir.clone(), self.queue.clone());
        let (name, value) = (name.to_owned(), part.value.clone());
        let mut terminating = self.terminating.subscribe();
        self.work.spawn(async move {
            let there = tokio::select! {
                there = image::ensure(&machine, &pod, &value) => there,
                _ = terminating.wait_for(|terminating| *terminating) => Err(ContainerError::create("the Pod is being deleted")),
            };
            let start = match there {
                Ok(()) => begin(machine, pod, value, dir, number).await,
                Err(error) => Err(error),
            };
            let _ = queue.send(PodEvent::Started(name, number, start));
        });
    }

    /// Handles the result of a start.
    pub(super) fn started(&mut self, name: &str, number: u32, result: Result<(StartRecord, String), ContainerError>) {
        let leaves = result.is_err() && *self.terminating.borrow();
        let known = leaves || matches!(&result, Err(error) if self.is_already_reported(name, error));
        if !known {
            self.record_start(name, &result);
        }
        self.count_start(number, &result);
        let until = result.as_ref().err().map_or_else(retry_at, |error| self.retry_time(name, error));
        let Some(container) = self.current(name, number) else { return };
        match result {
            Ok((start, image)) => {
                container.state = State::Running { since: start.at, stopping: None };
                container.image = image;
                self.save_state(name);
                self.watch(name, number, start);
                self.run_post_start(name, number);
            }
            Err(error) if error.reason == "StartError" => {
                // The start failed inside the shim: count it as an instance that exited.
                let exited = crate::shim::ExitRecord {
                    code: 128,
                    reason: error.reason.to_owned(),
                    message: error.message,
                    finished: Timestamp::now(),
                };
                let _ = self.queue.send(PodEvent::Exited(name.to_owned(), number, exited));
            }
            Err(error) => {
                container.state = State::StartFailed { reason: error.reason.to_owned(), message: error.message, until };
            }
        }
    }

    fn count_start(&self, number: u32, result: &Result<(StartRecord, String), ContainerError>) {
        let metrics = &self.machine.metrics;
        match result {
            Ok(_) => metrics.started(number > 0),
            // The failed pull was counted before.
            Err(error) if error.reason == "ImagePullBackOff" => {}
            Err(error) if image::is_image_error(error) => metrics.failed(Operation::PullImage),
            Err(_) => metrics.failed(Operation::StartContainer),
        }
    }

    /// When a failed start is retried.
    fn retry_time(&self, name: &str, error: &ContainerError) -> Timestamp {
        let spec = Spec::read(&self.pod);
        match spec.part(name).filter(|_| image::is_image_error(error)) {
            Some(part) => {
                let image = part.value.text("image");
                self.machine.pull_backoff.retry_at(self.uid(), image, error.reason, Timestamp::now())
            }
            None => retry_at(),
        }
    }

    fn is_already_reported(&self, name: &str, error: &ContainerError) -> bool {
        let shown = self.pod.items("status.containerStatuses").iter().find(|status| status.text("name") == name);
        shown.is_some_and(|shown| shown.text("state.waiting.message") == error.message)
    }

    fn record_start(&self, name: &str, result: &Result<(StartRecord, String), ContainerError>) {
        match result {
            Ok(_) => {
                self.record(Some(name), true, "Created", format!("Container created: {name}"));
                self.record(Some(name), true, "Started", format!("Container started: {name}"));
            }
            Err(error) if image::is_image_error(error) => {
                self.record(Some(name), false, "Failed", format!("Error: {}", error.reason));
            }
            Err(error) => self.record(Some(name), false, "Failed", format!("Error: {}", error.message)),
        }
    }

    /// Removes the files of old instances; the last two are kept.
    pub(super) fn remove_old_instances(&self, name: &str, number: u32) {
        let dir = self.dir.clone();
        let name = name.to_owned();
        tokio::task::spawn_blocking(move || {
            let instance = dir.instance(&name, number);
            let _ = kernel::mounts::detach_below(&instance);
            let Some(old) = number.checked_sub(2) else { return };
            let _ = files::remove_folder(&dir.instance(&name, old));
            let log = dir.log(&name, old);
            for file in (1..crate::shim::LOG_NUMBER).map(|older| crate::shim::rotated(&log, older)).chain([log.clone()])
            {
                let _ = fs::remove_file(file);
            }
        });
    }
}

/// The container ID of an instance: a hash of Pod UID, name and number.
fn id(uid: &str, name: &str, number: u32) -> String {
    let text = format!("{uid}/{name}/{number}");
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Starts an instance; returns when it runs.
async fn begin(
    machine: Arc<Machine>,
    pod: Arc<Value>,
    container: Value,
    dir: PodDir,
    number: u32,
) -> Result<(StartRecord, String), ContainerError> {
    let references = environment::references(&container);
    let objects = fetch::objects(&machine, pod.text("metadata.namespace"), &references).await;
    let objects = objects.map_err(ContainerError::config)?;
    let work = move || {
        let given = Given {
            pod: Some(&pod),
            known: fetch::known(&machine, &pod),
            objects,
            services: machine.service_variables(&pod),
            capacity: machine.capacity,
        };
        let environment = environment::variables(&container, &given).map_err(ContainerError::config)?;
        launch(&machine, &pod, &container, &dir, number, environment)
    };
    tokio::task::spawn_blocking(work).await.map_err(ContainerError::create)?
}

fn launch(
    machine: &Machine,
    pod: &Value,
    container: &Value,
    dir: &PodDir,
    number: u32,
    environment: Vec<(String, String)>,
) -> Result<(StartRecord, String), ContainerError> {
    let (uid, name) = (pod.text("metadata.uid"), container.text("name"));
    let instance = dir.instance(name, number);
    // Left by an agent that was killed while it started this instance.
    kernel::mounts::detach_below(&instance).map_err(ContainerError::create)?;
    files::remove_folder(&instance).map_err(ContainerError::create)?;
    fs::create_dir_all(&instance).map_err(ContainerError::create)?;
    let host_network = pod.flag("spec.hostNetwork");
    let group = Machine::container_group(uid, name);
    let limits = quantities::limits(container, Some(machine.settings.max_processes));
    machine.groups.kill(&group);
    machine.groups.make(&group, &limits).map_err(ContainerError::create)?;
    let config = ContainerConfig {
        mounts: mounts(pod, container, dir, &instance, &environment)?,
        machine,
        pod,
        container,
        pod_dir: dir,
        instance: instance.clone(),
        environment,
        network: (!host_network).then(|| dir.netns()),
        host_name: (!host_network).then(|| names::host_name(pod, &machine.settings.domain)),
        group: group.clone(),
    };
    let prepared = runtime::of(container.text("image")).prepare(&config)?;
    let own = format!("{GROUP}/supervisors");
    let _ = machine.groups.make(&own, &kernel::cgroups::Limits::default());
    let spec = ShimSpec {
        program: prepared.program,
        how: prepared.how,
        image: prepared.image.clone(),
        stdin: container.flag("stdin"),
        stdin_once: container.flag("stdinOnce"),
        group,
        own_groups: machine.groups.procs_files(&own),
        oom_score: Some(quantities::oom_score(pod, container, machine.capacity)),
        log: dir.log(name, number),
    };
    files::put(&instance.join(SPEC_FILE), &spec).map_err(ContainerError::create)?;
    let words = [OsStr::new("shim"), OsStr::new("run"), instance.as_ref()];
    kernel::process::run_to_end(&machine.settings.program, &words)
        .map_err(|error| ContainerError { reason: "StartError", message: error.to_string() })?;
    let start = files::get(&instance.join(START_FILE));
    start.map(|start| (start, prepared.image)).ok_or_else(|| ContainerError::create("the shim did not report a start"))
}

/// The file that is mounted at `terminationMessagePath`.
pub(super) const TERMINATION_LOG: &str = "termination-log";

/// Where `subPath` mounts are prepared for an instance, before its runtime mounts them into the container.
const SUB_PATHS: &str = "parts";

/// All mounts of a container: hosts and resolv.conf, volumes, the termination message file.
fn mounts(
    pod: &Value,
    container: &Value,
    dir: &PodDir,
    instance: &std::path::Path,
    environment: &[(String, String)],
) -> Result<Vec<ViewMount>, ContainerError> {
    let get = |name: &str| environment.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
    let parts = instance.join(SUB_PATHS);
    fs::create_dir_all(&parts).map_err(ContainerError::create)?;
    let mut own = Vec::new();
    for (probe_target, mount) in container.items("volumeMounts").iter().enumerate() {
        let sub_path = match mount.text("subPathExpr") {
            "" => mount.text("subPath").to_owned(),
            text => expand(text, get),
        };
        let source = volumes::source(pod, dir, mount, &sub_path, &parts.join(probe_target.to_string()));
        let source = source.map_err(|error| {
            let (mount, name) = (mount.text("name"), container.text("name"));
            ContainerError::config(format!(
                "failed to prepare volumeMount \"{mount}\" of container \"{name}\": {error}"
            ))
        })?;
        let read_only = volumes::is_read_only(pod, mount);
        own.push(ViewMount { source, target: mount.text("mountPath").into(), read_only });
    }
    let is_own = |target: &str| own.iter().any(|mount: &ViewMount| mount.target == std::path::Path::new(target));
    let mut out = Vec::new();
    for (source, target) in [(dir.resolv_conf(), "/etc/resolv.conf"), (dir.hosts(), "/etc/hosts")] {
        if !is_own(target) {
            out.push(ViewMount { source, target: target.into(), read_only: false });
        }
    }
    let termination_message = container.text("terminationMessagePath");
    if termination_message.starts_with('/') && !is_own(termination_message) {
        let source: PathBuf = instance.join(TERMINATION_LOG);
        fs::write(&source, "").map_err(ContainerError::create)?;
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&source, fs::Permissions::from_mode(0o666)).map_err(ContainerError::create)?;
        out.push(ViewMount { source, target: termination_message.into(), read_only: false });
    }
    // A mount inside another one comes after it.
    own.sort_by_key(|mount| mount.target.components().count());
    out.extend(own);
    Ok(out)
}
