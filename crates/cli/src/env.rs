//! `waypost env`: the environment variables of Services that a container gets.
//!
//! In: the Services of a namespace. Out: the variables of a container that starts now, for a shell, as JSON or as a dotenv file. Names that
//! two Services would set are noted on standard error.

use anyhow::Context as _;
use api::environment::{self, Environment, Service, environment};
use api::value::ValueExt as _;
use clap::Args;

use crate::api_client::{ApiClient, ApiFlags};
use crate::terminal;

/// Settings of the command.
#[derive(Args, Debug, Clone)]
pub struct Arguments {
    /// The namespace
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    /// The variables of a container of this Pod if it started now: only those of the API's own Service unless it enables service links
    #[arg(long, value_name = "NAME")]
    pod: Option<String>,
    /// Output format
    #[arg(short, long, default_value = "shell", value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    api: ApiFlags,
}

/// Output formats.
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
///
/// # Errors
/// When the API cannot be read, or the Pod does not exist.
pub fn exec(arguments: &Arguments) -> anyhow::Result<()> {
    let found = crate::runtime()?.block_on(find(arguments))?;
    for clash in &found.clashes {
        terminal::remark(&format!(
            "{} is wanted by two Services: {} keeps it, {} would have set it to {:?}; rename one of them",
            clash.name, clash.kept, clash.lost.service, clash.lost.value
        ));
    }
    let write = match arguments.output {
        Output::Shell => environment::to_shell,
        Output::Json => environment::to_json,
        Output::Dotenv => environment::to_dotenv,
    };
    terminal::print(&write(&found.variables))
}

async fn find(arguments: &Arguments) -> anyhow::Result<Environment> {
    let namespace = &arguments.namespace;
    let mut api = arguments.api.client()?;
    api.namespace(namespace).await?;
    let links = match &arguments.pod {
        None => Some(true),
        Some(pod) => api.pod(namespace, pod).await?.at("spec.enableServiceLinks").as_bool(),
    };
    let services = services(&mut api, namespace).await?;
    let pod = arguments.pod.as_deref().unwrap_or_default();
    environment(&services, namespace, links).with_context(|| format!("Pod {namespace}/{pod}"))
}

/// The Services of a namespace, and the Service of the API.
async fn services(api: &mut ApiClient, namespace: &str) -> anyhow::Result<Vec<Service>> {
    let list = api.get(&format!("/api/v1/namespaces/{namespace}/services")).await?.unwrap_or_default();
    let mut services: Vec<Service> = list.items("items").iter().map(Service::read).collect();
    if namespace != "default" {
        let master = api.get("/api/v1/namespaces/default/services/kubernetes").await?;
        services.extend(master.as_ref().map(Service::read));
    }
    Ok(services)
}
