//! Begins containers: gathers what one needs, has its runtime make an order of it, and gives that to a supervisor.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::Value;

use super::{Message, Worker, fetch, image, later};
use crate::decide::{back_off, spec::Spec};
use crate::environment::{self, Given, expand};
use crate::facts::{Health, State};
use crate::home::PodHome;
use crate::machine::{GROUP, Machine};
use crate::runtime::{self, Refused, Wish};
use crate::shim::{BEGUN, Begun, ORDER, Order, ViewMount};
use crate::{amounts, files, names, volumes};

impl Worker {
    /// Begins the next instance of a container.
    pub(super) fn start(&mut self, name: &str) {
        let pod = self.pod.clone();
        let spec = Spec::read(&pod);
        let Some(part) = spec.part(name) else { return };
        let uid = pod.text("metadata.uid").to_owned();
        let container = self.facts.containers.entry(name.to_owned()).or_default();
        if let State::Ended(ending) = &container.state {
            container.last = Some(ending.clone());
            container.restarts += 1;
            container.back_off = back_off::next(container.back_off);
        }
        container.state = State::Starting;
        container.health = Health::default();
        let number = container.restarts;
        container.id = id(&uid, name, number);
        self.keep(name);
        let (machine, home, inbox) = (self.machine.clone(), self.home.clone(), self.inbox.clone());
        let (name, value) = (name.to_owned(), part.value.clone());
        let mut leaving = self.leaving.subscribe();
        self.work.spawn(async move {
            let there = tokio::select! {
                there = image::bring(&machine, &pod, &value) => there,
                _ = leaving.wait_for(|leaving| *leaving) => Err(Refused::create("the Pod is being deleted")),
            };
            let begun = match there {
                Ok(()) => begin(machine, pod, value, home, number).await,
                Err(refused) => Err(refused),
            };
            let _ = inbox.send(Message::Began(name, number, begun));
        });
    }

    /// An instance began, or did not.
    pub(super) fn began(&mut self, name: &str, number: u32, result: Result<(Begun, String), Refused>) {
        let leaves = result.is_err() && *self.leaving.borrow();
        let known = leaves || matches!(&result, Err(refused) if self.is_known_refusal(name, refused));
        if !known {
            self.tell_of_start(name, &result);
        }
        let until = result.as_ref().err().map_or_else(later, |refused| self.look_again(name, refused));
        let Some(container) = self.present(name, number) else { return };
        match result {
            Ok((begun, image)) => {
                container.state = State::Running { since: begun.at, stopping: None };
                container.image = image;
                self.keep(name);
                self.watch(name, number, begun);
                self.greet(name, number);
            }
            Err(refused) if refused.reason == "StartError" => {
                // It was an instance, if a short one.
                let ended = crate::shim::Ended {
                    code: 128,
                    reason: refused.reason.to_owned(),
                    message: refused.message,
                    finished: Timestamp::now(),
                };
                let _ = self.inbox.send(Message::Ended(name.to_owned(), number, ended));
            }
            Err(refused) => {
                container.state = State::Refused { reason: refused.reason.to_owned(), message: refused.message, until };
            }
        }
    }

    /// When a container that was refused is looked at again.
    fn look_again(&self, name: &str, refused: &Refused) -> Timestamp {
        let spec = Spec::read(&self.pod);
        match spec.part(name).filter(|_| image::is_about_images(refused)) {
            Some(part) => {
                let image = part.value.text("image");
                self.machine.image_waits.look_again(self.uid(), image, refused, Timestamp::now())
            }
            None => later(),
        }
    }

    fn is_known_refusal(&self, name: &str, refused: &Refused) -> bool {
        let shown = self.pod.items("status.containerStatuses").iter().find(|status| status.text("name") == name);
        shown.is_some_and(|shown| shown.text("state.waiting.message") == refused.message)
    }

    fn tell_of_start(&self, name: &str, result: &Result<(Begun, String), Refused>) {
        match result {
            Ok(_) => {
                self.tell(Some(name), true, "Created", format!("Container created: {name}"));
                self.tell(Some(name), true, "Started", format!("Container started: {name}"));
            }
            Err(refused) if image::is_about_images(refused) => {
                self.tell(Some(name), false, "Failed", format!("Error: {}", refused.reason));
            }
            Err(refused) => self.tell(Some(name), false, "Failed", format!("Error: {}", refused.message)),
        }
    }

    /// Removes instances of which nobody wants to know any more: the last two stay.
    pub(super) fn tidy(&self, name: &str, number: u32) {
        let home = self.home.clone();
        let name = name.to_owned();
        tokio::task::spawn_blocking(move || {
            let instance = home.instance(&name, number);
            let _ = kernel::mounts::detach_below(&instance);
            let Some(old) = number.checked_sub(2) else { return };
            let _ = files::remove_folder(&home.instance(&name, old));
            let log = home.log(&name, old);
            for file in (1..crate::shim::LOG_NUMBER).map(|older| crate::shim::rotated(&log, older)).chain([log.clone()])
            {
                let _ = fs::remove_file(file);
            }
        });
    }
}

/// What an instance is known as: the same for the same instance, however often it is asked.
fn id(uid: &str, name: &str, number: u32) -> String {
    let text = format!("{uid}/{name}/{number}");
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Begins an instance, and answers when it runs.
async fn begin(
    machine: Arc<Machine>,
    pod: Arc<Value>,
    container: Value,
    home: PodHome,
    number: u32,
) -> Result<(Begun, String), Refused> {
    let references = environment::references(&container);
    let objects = fetch::objects(&machine, pod.text("metadata.namespace"), &references).await;
    let objects = objects.map_err(Refused::config)?;
    let work = move || {
        let given = Given {
            pod: Some(&pod),
            known: fetch::known(&machine, &pod),
            objects,
            services: machine.service_variables(&pod),
            capacity: machine.capacity,
        };
        let environment = environment::variables(&container, &given).map_err(Refused::config)?;
        launch(&machine, &pod, &container, &home, number, environment)
    };
    tokio::task::spawn_blocking(work).await.map_err(Refused::create)?
}

fn launch(
    machine: &Machine,
    pod: &Value,
    container: &Value,
    home: &PodHome,
    number: u32,
    environment: Vec<(String, String)>,
) -> Result<(Begun, String), Refused> {
    let (uid, name) = (pod.text("metadata.uid"), container.text("name"));
    let instance = home.instance(name, number);
    // What an agent left that was killed before it could begin this instance.
    kernel::mounts::detach_below(&instance).map_err(Refused::create)?;
    files::remove_folder(&instance).map_err(Refused::create)?;
    fs::create_dir_all(&instance).map_err(Refused::create)?;
    let host_network = pod.flag("spec.hostNetwork");
    let group = Machine::container_group(uid, name);
    let limits = amounts::limits(container, Some(machine.settings.max_processes));
    machine.groups.kill(&group);
    machine.groups.make(&group, &limits).map_err(Refused::create)?;
    let wish = Wish {
        mounts: mounts(pod, container, home, &instance, &environment)?,
        machine,
        pod,
        container,
        home,
        instance: instance.clone(),
        environment,
        network: (!host_network).then(|| home.netns()),
        host_name: (!host_network).then(|| names::host_name(pod, &machine.settings.domain)),
        group: group.clone(),
    };
    let made = runtime::of(container.text("image")).prepare(&wish)?;
    let own = format!("{GROUP}/supervisors");
    let _ = machine.groups.make(&own, &kernel::cgroups::Limits::default());
    let order = Order {
        program: made.program,
        how: made.how,
        image: made.image.clone(),
        stdin: container.flag("stdin"),
        stdin_once: container.flag("stdinOnce"),
        group,
        own_groups: machine.groups.doors(&own),
        oom_score: Some(amounts::oom_score(pod, container, machine.capacity)),
        log: home.log(name, number),
    };
    files::put(&instance.join(ORDER), &order).map_err(Refused::create)?;
    let words = [OsStr::new("shim"), OsStr::new("run"), instance.as_ref()];
    kernel::process::run_to_end(&machine.settings.program, &words)
        .map_err(|error| Refused { reason: "StartError", message: error.to_string() })?;
    let begun = files::get(&instance.join(BEGUN));
    begun.map(|begun| (begun, made.image)).ok_or_else(|| Refused::create("the supervisor wrote nothing"))
}

/// Where a container may leave its last words.
pub(super) const LAST_WORDS: &str = "termination-log";

/// Where parts of volumes (`subPath`) are mounted for an instance, before its runtime mounts them into it.
const PARTS: &str = "parts";

/// Everything that is mounted for a container: its names, its volumes, the place for its last words.
fn mounts(
    pod: &Value,
    container: &Value,
    home: &PodHome,
    instance: &std::path::Path,
    environment: &[(String, String)],
) -> Result<Vec<ViewMount>, Refused> {
    let get = |name: &str| environment.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
    let parts = instance.join(PARTS);
    fs::create_dir_all(&parts).map_err(Refused::create)?;
    let mut own = Vec::new();
    for (place, mount) in container.items("volumeMounts").iter().enumerate() {
        let sub_path = match mount.text("subPathExpr") {
            "" => mount.text("subPath").to_owned(),
            text => expand(text, get),
        };
        let source = volumes::source(pod, home, mount, &sub_path, &parts.join(place.to_string()));
        let source = source.map_err(|error| {
            let (mount, name) = (mount.text("name"), container.text("name"));
            Refused::config(format!("failed to prepare volumeMount \"{mount}\" of container \"{name}\": {error}"))
        })?;
        let read_only = volumes::is_read_only(pod, mount);
        own.push(ViewMount { source, target: mount.text("mountPath").into(), read_only });
    }
    let is_own = |target: &str| own.iter().any(|mount: &ViewMount| mount.target == std::path::Path::new(target));
    let mut out = Vec::new();
    for (source, target) in [(home.resolv_conf(), "/etc/resolv.conf"), (home.hosts(), "/etc/hosts")] {
        if !is_own(target) {
            out.push(ViewMount { source, target: target.into(), read_only: false });
        }
    }
    let last_words = container.text("terminationMessagePath");
    if last_words.starts_with('/') && !is_own(last_words) {
        let source: PathBuf = instance.join(LAST_WORDS);
        fs::write(&source, "").map_err(Refused::create)?;
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&source, fs::Permissions::from_mode(0o666)).map_err(Refused::create)?;
        out.push(ViewMount { source, target: last_words.into(), read_only: false });
    }
    // What lies in another comes after it.
    own.sort_by_key(|mount| mount.target.components().count());
    out.extend(own);
    Ok(out)
}
