//! `waypost rollout canary`: moves requests of a Service to another Service by weight.
//!
//! In: a Service, its canary, a weight. Out: an HTTPRoute whose parent is the Service, made, changed or removed. It works with every
//! implementation of the Gateway API that serves routes of Services (GAMMA). `route` knows the route, `service` the two Services; both are pure.

mod route;
mod service;

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use api::value::ValueExt as _;
use api::view::gateway_api::GROUP;
use clap::Args;
use serde_json::{Value, json};

use crate::terminal;
use crate::verbs::apply::DryRun;
use crate::verbs::client::{Client, JSON_PATCH, MANAGER, Query};
use crate::verbs::connect::Connection;
use crate::verbs::kinds::{Kinds, Resource};
use crate::verbs::output::{self, OutputFormat};
use crate::verbs::target::{self, Object};
use crate::verbs::wait::{self, AwaitedState};
use route::Canary;
use service::Ports;

/// What controllers of routes have decided, whatever it is.
const DECIDED: &str = "jsonpath={.status.parents[*].conditions[?(@.type=='Accepted')].status}";

/// Settings of the verb. Without any but the Service, the canary in progress is shown.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The Service that clients use
    #[arg(value_name = "SERVICE")]
    service: String,
    /// The Service that gets a part of its requests
    #[arg(long, value_name = "SERVICE")]
    to: Option<String>,
    /// How much of them, in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100), conflicts_with_all = ["promote", "abort"])]
    weight: Option<u8>,
    /// The port, by number or name [default: the only one]
    #[arg(long, value_name = "PORT", conflicts_with_all = ["promote", "abort"])]
    port: Option<String>,
    /// Have the Service select the Pods of its canary, and end the canary
    #[arg(long, conflicts_with = "abort")]
    promote: bool,
    /// End the canary: all requests go to the Service itself
    #[arg(long, conflicts_with = "to")]
    abort: bool,
    /// How long a new route may take to be accepted; 0s: do not wait
    #[arg(long, default_value = "10s", value_parser = wait::duration, value_name = "DURATION")]
    timeout: Duration,
    /// Change nothing, and print what would be changed
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "server")]
    dry_run: DryRun,
    /// Print the route: yaml, json, name, …
    #[arg(short, long, value_name = "FORM")]
    output: Option<OutputFormat>,
    #[command(flatten)]
    connection: Connection,
}

/// The Service of a command, and the route of its canary if there is one.
struct Scene {
    client: Client,
    kind: Resource,
    service: Object,
    route: Option<Value>,
}

/// Runs the verb.
pub(super) async fn exec(arguments: Arguments) -> anyhow::Result<()> {
    let mut scene = Scene::read(&arguments).await?;
    if arguments.abort {
        return scene.abort(&arguments).await;
    }
    if arguments.promote {
        return scene.promote(&arguments).await;
    }
    match (scene.canary()?, arguments.weight) {
        (Some(canary), None) => scene.show(&arguments, &canary),
        (Some(canary), Some(weight)) => scene.change(&arguments, Canary { weight, ..canary }).await,
        (None, Some(weight)) => scene.begin(&arguments, weight).await,
        (None, None) if arguments.to.is_some() => bail!("how many requests? say --weight PERCENT, such as --weight 10"),
        (None, None) => terminal::print(&format!("{} has no canary\n", scene.service.named())),
    }
}

impl Scene {
    async fn read(arguments: &Arguments) -> anyhow::Result<Self> {
        let mut client = arguments.connection.client()?;
        let service = find_service(&mut client, &arguments.service).await?;
        let kind = client.kind(&format!("httproutes.{GROUP}")).await.context("canaries need the Gateway API")?;
        let path = client.path(&kind, Some(&route::name(&service.name)));
        let route = client.find(&path).await?;
        let in_progress = route.as_ref().map(route::mark).transpose()?;
        if let (Some(canary), Some(to)) = (in_progress, &arguments.to) {
            ensure!(
                Some(canary) == to.rsplit('/').next(),
                "{} has a canary already, service/{canary}; end it with `waypost rollout canary {} --abort` first",
                service.named(),
                service.name
            );
        }
        Ok(Self { client, kind, service, route })
    }

    /// The canary in progress.
    fn canary(&self) -> anyhow::Result<Option<Canary>> {
        self.route.as_ref().map(|route| route::read(route, &self.service.name)).transpose()
    }

    fn route_path(&self, dry_run: DryRun) -> String {
        let path = self.client.path(&self.kind, Some(&route::name(&self.service.name)));
        Query::new().add("fieldManager", MANAGER).add("dryRun", dry_run.query()).on(&path)
    }

    fn route_named(&self) -> String {
        self.kind.named(&route::name(&self.service.name))
    }

    async fn begin(&mut self, arguments: &Arguments, weight: u8) -> anyhow::Result<()> {
        let to = arguments.to.as_deref().with_context(|| {
            format!("{} has no canary; name a Service with --to to begin one", self.service.named())
        })?;
        let other = find_service(&mut self.client, to).await?;
        let (stable, next) = (service::view(&self.service.value)?, service::view(&other.value)?);
        let ports = service::ports(&stable, &next, arguments.port.as_deref())?;
        self.refuse_competitor(&ports).await?;
        if service::overlaps(&stable, &next) {
            terminal::warn(&format!(
                "{} also selects the Pods of {}, which get more than {weight}% of the requests; give its selector one more label",
                self.service.named(),
                other.named()
            ));
        }
        let canary = Canary { service: self.service.name.clone(), to: other.name, weight };
        let query = Query::new().add("fieldManager", MANAGER).add("dryRun", arguments.dry_run.query());
        let path = query.on(&self.client.path(&self.kind, None));
        let made = self.client.post(&path, &route::new(&canary, &ports)).await?;
        let made = self.accepted(arguments, made).await?;
        self.print(arguments, made, "created", &canary)
    }

    /// Fails if another route decides about requests to the port.
    async fn refuse_competitor(&mut self, ports: &Ports) -> anyhow::Result<()> {
        let mut routes = self.client.objects(&self.kind, &Query::new()).await?;
        let kinds = self.client.kinds().await?;
        // Servers need not have this kind.
        if let Ok(grpc) = kinds.find(&format!("grpcroutes.{GROUP}")) {
            routes.extend(self.client.objects(grpc, &Query::new()).await?);
        }
        if let Some(other) = route::competitor(&routes, &self.service.name, ports) {
            let kind = other.text("kind").to_ascii_lowercase();
            bail!(
                "{kind}/{} decides about requests to port {} of {} already; change the weights of its backends, or delete it first",
                other.text("metadata.name"),
                ports.stable,
                self.service.named()
            );
        }
        Ok(())
    }

    /// Waits until a controller has accepted a new route.
    async fn accepted(&mut self, arguments: &Arguments, made: Value) -> anyhow::Result<Value> {
        if arguments.timeout.is_zero() || !arguments.dry_run.query().is_empty() {
            return Ok(made);
        }
        let object = target::object(&self.kind, made);
        let state: AwaitedState = DECIDED.parse()?;
        let decided = tokio::time::timeout(arguments.timeout, wait::until(&mut self.client, &object, &state)).await;
        let named = object.named();
        let route = decided.map_err(|_| {
            anyhow::anyhow!(
                "{named} was created, and nothing has accepted it; does this cluster serve routes of Services?"
            )
        })??;
        if let Some(Err(why)) = route::verdict(&route) {
            bail!("{named} was created, and is not accepted: {why}");
        }
        Ok(route)
    }

    async fn change(&mut self, arguments: &Arguments, canary: Canary) -> anyhow::Result<()> {
        let mut route = self.route.take().context("a canary has a route")?;
        let verb = match route::set_weight(&mut route, &canary) {
            // The resource version in it has the server refuse to overwrite somebody else's change.
            true => {
                route = self.client.put(&self.route_path(arguments.dry_run), &route).await?;
                "configured"
            }
            false => "unchanged",
        };
        self.print(arguments, route, verb, &canary)
    }

    fn show(&mut self, arguments: &Arguments, canary: &Canary) -> anyhow::Result<()> {
        let route = self.route.take().context("a canary has a route")?;
        let state = match route::verdict(&route) {
            Some(Ok(())) => "accepted".to_owned(),
            Some(Err(why)) => format!("not accepted: {why}"),
            None => "not accepted yet".to_owned(),
        };
        self.print(arguments, route, &state, canary)
    }

    /// Has the Service select the Pods of its canary, then removes the route. All requests go to the canary before that, so a command that fails
    /// half-way can be repeated.
    async fn promote(&mut self, arguments: &Arguments) -> anyhow::Result<()> {
        let named = self.service.named();
        let canary = self.canary()?;
        let Some(to) = canary.as_ref().map(|canary| &canary.to).or(arguments.to.as_ref()) else {
            bail!("{named} has no canary that could be promoted");
        };
        let other = find_service(&mut self.client, to).await?;
        let patch = service::promotion(&self.service.value, &other.value)?;
        let Some(canary) = canary else {
            ensure!(patch.is_none(), "{named} has no canary; begin one with --to {} --weight PERCENT", other.name);
            return terminal::print(&format!("{named} unchanged: it selects the Pods of {}\n", other.named()));
        };
        let mut route = self.route.clone().context("a canary has a route")?;
        if route::set_weight(&mut route, &Canary { weight: 100, ..canary }) {
            self.client.put(&self.route_path(arguments.dry_run), &route).await?;
        }
        if let Some(patch) = patch {
            let query = Query::new().add("fieldManager", MANAGER).add("dryRun", arguments.dry_run.query());
            self.client.patch(&query.on(&self.service.path()), JSON_PATCH, &patch).await?;
            let remark = arguments.dry_run.remark();
            terminal::print(&format!("{named} configured{remark}: it selects the Pods of {}\n", other.named()))?;
        }
        self.remove(arguments, "").await
    }

    async fn abort(&mut self, arguments: &Arguments) -> anyhow::Result<()> {
        let named = self.service.named();
        match self.route {
            Some(_) => self.remove(arguments, &format!(": all requests go to {named}")).await,
            None => terminal::print(&format!("{named} has no canary\n")),
        }
    }

    async fn remove(&mut self, arguments: &Arguments, remark: &str) -> anyhow::Result<()> {
        let uid = self.route.as_ref().map(|route| route.text("metadata.uid").to_owned());
        let options = json!({"preconditions": {"uid": uid}});
        self.client.delete(&self.route_path(arguments.dry_run), &options).await?;
        terminal::print(&format!("{} deleted{}{remark}\n", self.route_named(), arguments.dry_run.remark()))
    }

    fn print(&self, arguments: &Arguments, mut route: Value, verb: &str, canary: &Canary) -> anyhow::Result<()> {
        if let Some(form) = &arguments.output {
            output::without_managed_fields(&mut route);
            self.kind.set_type(&mut route);
            return terminal::print(&output::objects(form, &Kinds(vec![self.kind.clone()]), vec![route], true));
        }
        let named = self.route_named();
        let Canary { service, to, weight } = canary;
        let remark = arguments.dry_run.remark();
        terminal::print(&format!(
            "{named} {verb}{remark}: {}% to service/{service}, {weight}% to service/{to}\n",
            100 - weight
        ))
    }
}

/// The Service that a word names: `web` or `service/web`.
async fn find_service(client: &mut Client, word: &str) -> anyhow::Result<Object> {
    let kinds = client.kinds().await?;
    let named = target::parse_one(&kinds, &[word.to_owned()], Some("services"))?;
    ensure!(named.kind.plural == "services", "{word} is no Service; a canary is about the requests of a Service");
    target::one(client, &named).await
}
