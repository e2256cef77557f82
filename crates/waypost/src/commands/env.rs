//! `waypost env`: the variables that tell a container of the Services of its namespace.
//!
//! In: the Services of a namespace, as the API has them now. Out: what a container would get that started now, as text
//! for a shell, a JSON parser or a dotenv file. Names that two Services want are said beside it.

use anyhow::Context as _;
use api::environment::{self, Environment, Service, environment};
use api::value::ValueExt as _;
use clap::Args;

use super::reach::{self, Api, Reach};
use super::server;

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub(crate) struct Arguments {
    /// The namespace
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    /// What a container of this Pod gets when it starts now: nothing but the API's own Service unless it enables links
    #[arg(long, value_name = "NAME")]
    pod: Option<String>,
    /// How to write them
    #[arg(short, long, default_value = "shell", value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    reach: Reach,
}

/// How variables are written.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Output {
    /// Lines for `eval` of a shell.
    Shell,
    /// One object.
    Json,
    /// Lines of a .env file.
    Dotenv,
}

/// Runs the command.
pub(crate) fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    let found = server::runtime()?.block_on(find(arguments))?;
    for clash in &found.clashes {
        reach::remark(&format!(
            "{} is wanted by two Services: {} keeps it, {} would have set it to {:?}; rename one of them",
            clash.name, clash.kept, clash.lost.service, clash.lost.value
        ));
    }
    let write = match arguments.output {
        Output::Shell => environment::to_shell,
        Output::Json => environment::to_json,
        Output::Dotenv => environment::to_dotenv,
    };
    reach::print(&write(&found.variables))
}

async fn find(arguments: &Arguments) -> anyhow::Result<Environment> {
    let namespace = &arguments.namespace;
    let mut api = arguments.reach.api()?;
    api.namespace(namespace).await?;
    let links = match &arguments.pod {
        None => Some(true),
        Some(pod) => api.pod(namespace, pod).await?.at("spec.enableServiceLinks").as_bool(),
    };
    let services = services(&mut api, namespace).await?;
    let pod = arguments.pod.as_deref().unwrap_or_default();
    environment(&services, namespace, links).with_context(|| format!("Pod {namespace}/{pod}"))
}

/// The Services of a namespace, and the one that everybody learns of.
async fn services(api: &mut Api, namespace: &str) -> anyhow::Result<Vec<Service>> {
    let list = api.get(&format!("/api/v1/namespaces/{namespace}/services")).await?.unwrap_or_default();
    let mut services: Vec<Service> = list.items("items").iter().map(Service::read).collect();
    if namespace != "default" {
        let master = api.get("/api/v1/namespaces/default/services/kubernetes").await?;
        services.extend(master.as_ref().map(Service::read));
    }
    Ok(services)
}
