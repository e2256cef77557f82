//! [`Workloads`] of the Pods that this agent runs: logs, exec, attach, port-forward.

mod attach;
mod exec;
mod log_files;
mod logs;

use std::path::PathBuf;

use api::value::ValueExt as _;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use self::log_files::PodLogs;
use crate::adapters;
use crate::command;
use crate::data_dir::PodDir;
use crate::files;
use crate::machine::Machine;
use crate::workloads::{
    Attach, ContainerId, Exec, LogFiles, LogOptions, LogReader, PodId, Refusal, Running, Workloads,
};

impl Machine {
    /// Directory and object of a running Pod.
    fn dir_of(&self, id: &PodId) -> Result<(PodDir, std::sync::Arc<Value>), Refusal> {
        let pods = self.pods.lock();
        let slot = pods.get(id).ok_or_else(|| self.refusal(id))?;
        Ok((self.dir.pod(&slot.uid), slot.pod.clone()))
    }

    /// The error for a Pod that this agent does not run.
    fn refusal(&self, id: &PodId) -> Refusal {
        let adopted = self.adopted.lock();
        adopted.get(id).and_then(|pod| adapters::elsewhere(pod)).map_or(Refusal::NoPod, Refusal::Bad)
    }

    /// The Pod directory, the container spec, and the number of its current instance, if any.
    fn container_of(&self, of: &ContainerId) -> Result<(PodDir, Value, Option<u32>), Refusal> {
        let (dir, pod) = self.dir_of(&of.pod)?;
        let mut all = pod.items("spec.initContainers").iter().chain(pod.items("spec.containers"));
        let spec = all.find(|container| container.text("name") == of.container).cloned();
        let spec = spec.ok_or_else(|| Refusal::NoContainer { container: of.container.clone() })?;
        let kept: Option<Value> = files::get(&dir.state(&of.container));
        let number = kept.and_then(|kept| kept["number"].as_u64()).and_then(|number| u32::try_from(number).ok());
        Ok((dir, spec, number))
    }

    /// The directory of the running instance.
    fn running_instance(&self, of: &ContainerId) -> Result<(PathBuf, Value), Refusal> {
        let (dir, spec, number) = self.container_of(of)?;
        let not = |why: &str| Refusal::NotRunning { container: of.container.clone(), why: why.to_owned() };
        let instance = dir.instance(&of.container, number.ok_or_else(|| not("ContainerCreating"))?);
        match command::running(&instance) {
            Some(_) => Ok((instance, spec)),
            None => Err(not("it has exited, or has not started yet")),
        }
    }
}

impl Workloads for Machine {
    fn logs<'a>(&'a self, of: &'a ContainerId, options: &'a LogOptions) -> BoxFuture<'a, Result<LogReader, Refusal>> {
        async move {
            let (dir, _, number) = self.container_of(of)?;
            let not = |why: &str| Refusal::NotRunning { container: of.container.clone(), why: why.to_owned() };
            let number = number.ok_or_else(|| not("ContainerCreating"))?;
            let number = match options.previous {
                false => number,
                true => number.checked_sub(1).ok_or_else(|| {
                    Refusal::Bad(format!(
                        "previous terminated container {:?} in pod {:?} not found",
                        of.container, of.pod.name
                    ))
                })?,
            };
            logs::open(dir.log(&of.container, number), dir.instance(&of.container, number), options)
        }
        .boxed()
    }

    fn exec<'a>(&'a self, of: &'a ContainerId, how: Exec) -> BoxFuture<'a, Result<Running, Refusal>> {
        async move {
            let (instance, _) = self.running_instance(of)?;
            let program = self.settings.program.clone();
            exec::begin(program, instance, how).await
        }
        .boxed()
    }

    fn attach<'a>(&'a self, of: &'a ContainerId, how: Attach) -> BoxFuture<'a, Result<Running, Refusal>> {
        async move {
            let (instance, spec) = self.running_instance(of)?;
            attach::begin(instance, &spec, how).await
        }
        .boxed()
    }

    fn dial<'a>(&'a self, pod: &'a PodId, port: u16) -> BoxFuture<'a, Result<TcpStream, Refusal>> {
        async move {
            let adopted = self.adopted.lock().get(pod).map(|pod| pod.text("status.podIP").to_owned());
            if let Some(address) = adopted {
                let stream = TcpStream::connect((address.as_str(), port)).await;
                return stream
                    .map_err(|error| Refusal::Failed(format!("connecting to {address}, port {port}: {error}")));
            }
            let (dir, object) = self.dir_of(pod)?;
            let host_network = object.flag("spec.hostNetwork");
            let connect = move || {
                std::net::TcpStream::connect(("127.0.0.1", port))
                    .or_else(|first| std::net::TcpStream::connect(("::1", port)).map_err(|_| first))
            };
            let work = move || match host_network {
                true => connect(),
                false => kernel::namespace::inside(&dir.netns(), connect)?,
            };
            let failed = |error: &dyn std::fmt::Display| {
                Refusal::Failed(format!("connecting to port {port} of the Pod: {error}"))
            };
            let stream = tokio::task::spawn_blocking(work).await.map_err(|error| failed(&error))?;
            let stream = stream.map_err(|error| failed(&error))?;
            stream.set_nonblocking(true).map_err(|error| failed(&error))?;
            TcpStream::from_std(stream).map_err(|error| failed(&error))
        }
        .boxed()
    }

    fn log_files<'a>(&'a self, path: &'a [String]) -> BoxFuture<'a, Option<LogFiles>> {
        async move {
            let pods: Vec<PodLogs> =
                self.pods.lock().values().map(|slot| PodLogs::of(&slot.pod, self.dir.pod(&slot.uid))).collect();
            let path = path.to_vec();
            tokio::task::spawn_blocking(move || log_files::find(&pods, &path)).await.ok().flatten()
        }
        .boxed()
    }

    fn metrics(&self) -> String {
        self.metrics.text() + "# EOF\n"
    }

    fn pods(&self) -> Value {
        let pods = self.pods.lock();
        let adopted = self.adopted.lock();
        let items: Vec<&Value> =
            pods.values().map(|slot| &*slot.pod).chain(adopted.values().map(|pod| &**pod)).collect();
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
    }
}
