//! The actions of each act, and their observations.
//!
//! In: the number of an act. Out: [`Seen`]: an observation that passed its check, or the last one before the deadline. Requests are sent from the
//! Pod `visitor`, or from the network namespace outside.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::data_dir::AgentDir;
use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use dns::wire::{rcode, rtype, to_text};
use kernel::namespace;
use kernel::process::{Identity, Signal};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::cluster::{CORE, Cluster, DEPLOYMENTS, Deadline, HTTP_ROUTES, addresses, frontend, is_ready, name, names};
use super::load::{Load, ask_many, is_there};
use super::seen::{Seen, Tally, judge};
use super::{http, objects, stage};
use crate::commands::dig::query;

/// Requests that show whether all Pods are reached: the probability that one is missed by chance is 1e-10.
const MANY: usize = 60;
/// The share of the requests that the canary gets, in percent.
const CANARY: usize = 20;
/// The domain of the demo's namespace.
const DOMAIN: &str = "default.svc.cluster.local.";
/// The port of the visitor, and of every backend.
const PORT: u16 = 8080;

/// The state between acts.
pub(super) struct Play {
    cluster: Cluster,
    program: String,
    /// The cluster IP of the Service `images`, and its port.
    images: Option<SocketAddr>,
    /// The node and the port of `images-outside`.
    outside: Option<SocketAddr>,
    /// The visitor's address and its network namespace.
    visitor: Option<(IpAddr, PathBuf)>,
}

/// A result of an earlier act.
fn had<T: Clone>(earlier: &Option<T>) -> anyhow::Result<T> {
    earlier.clone().context("an earlier act was left out")
}

/// Repeats an observation until it passes its check or the deadline has passed; returns the last one.
macro_rules! until_good {
    ($deadline:expr, $look:expr) => {
        loop {
            let seen: Seen = $look;
            if judge(&seen).is_ok() || !$deadline.wait_retry().await {
                break Ok(seen);
            }
        }
    };
}

impl Play {
    /// Before the first act.
    pub(super) fn new(cluster: Cluster) -> Self {
        let program = stage::program().display().to_string();
        Self { cluster, program, images: None, outside: None, visitor: None }
    }

    /// Runs an act.
    pub(super) async fn act(&mut self, number: usize, deadline: Deadline) -> anyhow::Result<Seen> {
        match number {
            1 => self.backends(deadline).await,
            2 => self.cluster_ip(deadline).await,
            3 => self.node_port(deadline).await,
            4 => self.headless(deadline).await,
            5 => self.external_name(deadline).await,
            6 => self.discovery(deadline).await,
            7 => self.affinity(deadline).await,
            8 => self.update(deadline).await,
            9 => self.kill(deadline).await,
            10 => self.canary(deadline).await,
            11 => self.tear_down(deadline).await,
            other => bail!("there is no act {other}"),
        }
    }

    /// After the last act.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        self.cluster.stop().await
    }

    async fn backends(&mut self, deadline: Deadline) -> anyhow::Result<Seen> {
        self.cluster.create(DEPLOYMENTS, &objects::deployment(&self.program, "v1")).await?;
        until_good!(deadline, {
            let pods = self.cluster.pods("images").await?;
            let (ready, others): (Vec<Value>, Vec<Value>) = pods.into_iter().partition(is_ready);
            Seen::Ready { pods: addresses(&ready), others: others.iter().map(state).collect() }
        })
    }

    async fn cluster_ip(&mut self, deadline: Deadline) -> anyhow::Result<Seen> {
        let images = frontend(&self.cluster.serve(&objects::images()).await?)?;
        self.images = Some(images);
        let visitor = self.cluster.create(&format!("{CORE}/pods"), &objects::visitor(&self.program)).await?;
        let home = AgentDir::new(&stage::data_dir()).pod(visitor.text("metadata.uid"));
        loop {
            let pods = self.cluster.pods("visitor").await?;
            if let Some(ip) = addresses(&pods).get("visitor").filter(|_| pods.iter().all(is_ready)) {
                self.visitor = Some((*ip, home.netns()));
                break;
            }
            ensure!(deadline.wait_retry().await, "{}", pods.first().map_or_else(|| "no visitor".to_owned(), state));
        }
        self.spread(images, home.netns(), deadline).await
    }

    async fn node_port(&mut self, deadline: Deadline) -> anyhow::Result<Seen> {
        let service = self.cluster.serve(&objects::outside()).await?;
        let port = service.items("spec.ports").first().map_or(0, |port| port.int("nodePort"));
        let to = SocketAddr::new(stage::NODE.into(), u16::try_from(port)?);
        self.outside = Some(to);
        self.spread(to, stage::outside(), deadline).await
    }

    /// Sends many requests; each Pod should respond.
    async fn spread(&mut self, to: SocketAddr, from: PathBuf, deadline: Deadline) -> anyhow::Result<Seen> {
        let pods = names(&self.cluster.pods("images").await?);
        until_there(&from, to, deadline).await?;
        until_good!(deadline, {
            let from = from.clone();
            let tally = spawn_blocking(move || ask_many(&from, to, MANY)).await??;
            Seen::Spread { to: to.to_string(), pods: pods.clone(), tally }
        })
    }

    async fn headless(&mut self, deadline: Deadline) -> anyhow::Result<Seen> {
        self.cluster.serve(&objects::direct()).await?;
        let pods: BTreeSet<IpAddr> = addresses(&self.cluster.pods("images").await?).into_values().collect();
        until_good!(deadline, {
            let found = self.look_up("images-direct").await?;
            Seen::Addresses { name: "images-direct".to_owned(), pods: pods.clone(), found }
        })
    }

    async fn external_name(&mut self, deadline: Deadline) -> anyhow::Result<Seen> {
        self.cluster.serve(&objects::archive()).await?;
        let name = format!("archive.{DOMAIN}");
        until_good!(deadline, {
            let reply = self.question(&name, rtype::CNAME).await?;
            let alias = |reply: query::Reply| reply.answer.first().map(|record| to_text(&record.data));
            Seen::Alias { name: name.clone(), wanted: format!("{}.", objects::ARCHIVE), found: reply.map(alias) }
        })
    }

    async fn discovery(&mut self, deadline: Deadline) -> anyhow::Result<Seen> {
        let images = had(&self.images)?;
        let environment: Value = serde_json::from_str(&self.visitor_says("/environment").await??)?;
        let variable = |name: &str| environment[name].as_str().map(str::to_owned);
        let variables = variable("IMAGES_SERVICE_HOST").zip(variable("IMAGES_SERVICE_PORT"));
        let resolver = self.visitor_says("/resolver").await??;
        let search = resolver.lines().find(|line| line.starts_with("search")).unwrap_or("no search path").to_owned();
        until_good!(deadline, {
            let found = self.look_up("images").await?;
            let (service, variables, search) = ((images.ip(), images.port()), variables.clone(), search.clone());
            Seen::Discovery { service, variables, found, search }
        })
    }

    async fn affinity(&mut self, deadline: Deadline) -> anyhow::Result<Seen> {
        let to = frontend(&self.cluster.serve(&objects::sticky()).await?)?;
        let (_, from) = had(&self.visitor)?;
        until_there(&from, to, deadline).await?;
        until_good!(deadline, {
            let from = from.clone();
            Seen::Affinity { tally: spawn_blocking(move || ask_many(&from, to, MANY)).await?? }
        })
    }

    /// Continuous clients in the cluster and outside.
    fn clients(&self) -> anyhow::Result<[Load; 2]> {
        let ((_, visitor), images, outside) = (had(&self.visitor)?, had(&self.images)?, had(&self.outside)?);
        Ok([Load::begin(visitor, images), Load::begin(stage::outside(), outside)])
    }

    async fn update(&mut self, deadline: Deadline) -> anyhow::Result<Seen> {
        let old = names(&self.cluster.pods("images").await?);
        let clients = self.clients()?;
        while clients.iter().any(|client| client.so_far().asked < MANY / 2) && deadline.wait_retry().await {}
        let path = format!("{DEPLOYMENTS}/images");
        let template = objects::deployment(&self.program, "v2")["spec"]["template"].take();
        self.cluster.merge(&path, &json!({"spec": {"template": template}})).await?;
        let (new, rolled_out) = loop {
            let deployment = self.cluster.get(&path).await?;
            // Requests continue until terminating Pods are gone.
            let new = names(&self.cluster.pods("images").await?);
            let rolled_out = is_rolled_out(&deployment) && new.len() == 3;
            let is_asked = |pod: &String| clients.iter().all(|client| client.so_far().pods.contains_key(pod));
            if (rolled_out && new.iter().all(is_asked)) || !deadline.wait_retry().await {
                break (new, rolled_out);
            }
        };
        let tally = finish(clients).await?;
        Ok(Seen::Update { old, new, rolled_out, tally })
    }

    async fn kill(&mut self, deadline: Deadline) -> anyhow::Result<Seen> {
        let pods = self.cluster.pods("images").await?;
        let victim = pods.first().context("there is no Pod")?;
        let (pod, mode) = (name(victim), self.cluster.mode.clone());
        let clients = self.clients()?;
        while clients.iter().any(|client| !client.so_far().pods.contains_key(&pod)) && deadline.wait_retry().await {}
        let killed_at = clients[0].elapsed();
        let home = AgentDir::new(&stage::data_dir()).pod(victim.text("metadata.uid"));
        kill_backend(&home.netns(), &self.program)?;
        let (restarts, ready) = loop {
            let now = self.cluster.get(&format!("{CORE}/pods/{pod}")).await?;
            let restarts = now.items("status.containerStatuses").first().map_or(0, |status| status.int("restartCount"));
            if (restarts > 0 && is_ready(&now)) || !deadline.wait_retry().await {
                break (restarts, is_ready(&now));
            }
        };
        let mut during = finish(clients).await?;
        for (when, _) in &mut during.failures {
            *when = when.saturating_sub(killed_at);
        }
        let ((_, from), to) = (had(&self.visitor)?, had(&self.images)?);
        until_good!(deadline, {
            let from = from.clone();
            let after = spawn_blocking(move || ask_many(&from, to, MANY)).await??;
            Seen::Killed { pod: pod.clone(), mode: mode.clone(), restarts, ready, during: during.clone(), after }
        })
    }

    async fn canary(&mut self, deadline: Deadline) -> anyhow::Result<Seen> {
        self.cluster.create(DEPLOYMENTS, &objects::next(&self.program)).await?;
        let canary = frontend(&self.cluster.serve(&objects::next_images()).await?)?;
        let pods = loop {
            let pods = self.cluster.pods(objects::NEXT).await?;
            if !pods.is_empty() && pods.iter().all(is_ready) {
                break names(&pods);
            }
            ensure!(deadline.wait_retry().await, "{}", pods.first().map_or_else(|| "no canary".to_owned(), state));
        };
        let ((_, from), to) = (had(&self.visitor)?, had(&self.images)?);
        // A route to a Service without endpoints would fail requests.
        until_there(&from, canary, deadline).await?;
        let clients = self.clients()?;
        let ask = || {
            let from = from.clone();
            async move { anyhow::Ok(spawn_blocking(move || ask_many(&from, to, MANY)).await??) }
        };
        self.cluster.create(HTTP_ROUTES, &objects::canary(CANARY)).await?;
        let is_asked = |tally: &Tally| tally.pods.keys().any(|pod| pods.contains(pod));
        // The first of them may be sent before the route is in force.
        while !is_asked(&ask().await?) && deadline.wait_retry().await {}
        let split = ask().await?;
        self.cluster.delete(&format!("{HTTP_ROUTES}/{}", objects::ROUTE)).await?;
        let mut after = ask().await?;
        while is_asked(&after) && deadline.wait_retry().await {
            after = ask().await?;
        }
        let during = finish(clients).await?;
        Ok(Seen::Canary { weight: CANARY, pods, split, during, after })
    }

    async fn tear_down(&mut self, deadline: Deadline) -> anyhow::Result<Seen> {
        let (images, (_, visitor)) = (had(&self.images)?, had(&self.visitor)?);
        for service in objects::SERVICES {
            self.cluster.delete(&format!("{CORE}/services/{service}")).await?;
        }
        for deployment in objects::DEPLOYMENTS {
            self.cluster.delete(&format!("{DEPLOYMENTS}/{deployment}")).await?;
        }
        // While the visitor still exists.
        let (mut answers, mut known) = (true, true);
        while (answers || known) && deadline.wait_retry().await {
            let from = visitor.clone();
            answers = spawn_blocking(move || ask_many(&from, images, 1)).await??.failures.is_empty();
            known = self
                .question(&format!("images.{DOMAIN}"), rtype::A)
                .await?
                .is_ok_and(|reply| reply.rcode != rcode::NXDOMAIN);
        }
        self.cluster.delete(&format!("{CORE}/pods/visitor")).await?;
        until_good!(deadline, {
            let pods = self.cluster.get(&format!("{CORE}/pods")).await?;
            Seen::Gone { pods: names(pods.items("items")).into_iter().collect(), answers, known }
        })
    }

    /// The response of the visitor to a request; the inner error for other status codes than 200.
    async fn visitor_says(&self, path: &str) -> anyhow::Result<anyhow::Result<String>> {
        let (ip, _) = had(&self.visitor)?;
        let path = path.to_owned();
        let answer = spawn_blocking(move || http::ask(SocketAddr::new(ip, PORT), &path, &[], http::TIMEOUT)).await?;
        let answer = answer.context("asking the visitor")?;
        Ok(match answer.subject() {
            "200" => Ok(answer.text()),
            _ => Err(anyhow::anyhow!("{}", answer.text())),
        })
    }

    /// The addresses of a name, resolved by the visitor.
    async fn look_up(&self, name: &str) -> anyhow::Result<anyhow::Result<BTreeSet<IpAddr>>> {
        let said = self.visitor_says(&format!("/addresses/{name}")).await?;
        Ok(said.map(|text| text.lines().filter_map(|line| line.parse().ok()).collect()))
    }

    /// A DNS query from the network namespace of the visitor.
    async fn question(&mut self, name: &str, qtype: u16) -> anyhow::Result<anyhow::Result<query::Reply>> {
        let service = self.cluster.get("/api/v1/namespaces/kube-system/services/kube-dns").await?;
        let (server, (_, from), name) = (frontend(&service)?, had(&self.visitor)?, name.to_owned());
        let asked = spawn_blocking(move || {
            namespace::inside(&from, || -> anyhow::Result<query::Reply> {
                // Sockets are opened on this thread, which is in the namespace.
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(query::query(server, &name, qtype))
            })
        });
        Ok(asked.await??)
    }
}

/// Waits for a response, until the deadline.
async fn until_there(from: &Path, to: SocketAddr, deadline: Deadline) -> anyhow::Result<()> {
    loop {
        let from = from.to_owned();
        if spawn_blocking(move || is_there(&from, to)).await?? || !deadline.wait_retry().await {
            return Ok(());
        }
    }
}

/// Stops clients; returns their results.
async fn finish(clients: [Load; 2]) -> anyhow::Result<Tally> {
    let [one, other] = clients;
    Ok(spawn_blocking(move || one.end().and(other.end())).await?)
}

/// Whether the rollout of a Deployment is complete.
fn is_rolled_out(deployment: &Value) -> bool {
    let (wanted, status) = (&deployment["spec"]["replicas"], &deployment["status"]);
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"].into_iter().all(|field| &status[field] == wanted)
}

/// A summary of the state of a Pod.
fn state(pod: &Value) -> String {
    let waiting = pod.items("status.containerStatuses").first().map(|status| &status["state"]["waiting"]);
    let why = waiting.map(|waiting| format!("{} {}", waiting.text("reason"), waiting.text("message")));
    format!("{} is {} {}", name(pod), pod.text("status.phase"), why.unwrap_or_default()).trim_end().to_owned()
}

/// Kills the backend of a Pod with SIGKILL, as the OOM killer would. The init process of the Pod, which only supervises it, is not killed.
/// The process is found by its network namespace: control groups are not always available.
fn kill_backend(netns: &Path, program: &str) -> anyhow::Result<()> {
    let network = std::fs::metadata(netns).with_context(|| format!("looking at {}", netns.display()))?;
    let is_backend = |pid: &i32| {
        let at = |what: &str| format!("/proc/{pid}/{what}");
        let is_inside = std::fs::metadata(at("ns/net")).is_ok_and(|found| found.ino() == network.ino());
        is_inside && std::fs::read(at("cmdline")).unwrap_or_default().starts_with(program.as_bytes())
    };
    let pids = std::fs::read_dir("/proc").context("looking for processes")?;
    let pids: BTreeSet<i32> = pids.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let who = pids.into_iter().filter(is_backend).find_map(Identity::of).context("its process is not to be found")?;
    let handle = who.open()?.context("its process has ended by itself")?;
    ensure!(handle.signal(Signal::KILL) && handle.ends_within(Duration::from_secs(2)), "its process cannot be killed");
    Ok(())
}
