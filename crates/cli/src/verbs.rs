//! The verbs of kubectl, with its arguments and output.
//!
//! In: a verb and its arguments. Out: text on standard output, remarks on standard error, an exit code. Each verb is one file with its
//! arguments; all of them share one [`client::Client`], one way to name objects (`target`), one way to print them (`output`).

mod annotate;
mod apply;
mod client;
mod connect;
mod delete;
mod describe;
mod diff;
mod edit;
mod exec;
mod explain;
mod expose;
mod forward;
mod get;
mod ingress;
mod jsonpath;
mod kinds;
mod logs;
mod manifest;
mod output;
mod pods;
mod resources;
mod rollout;
mod run;
mod scale;
mod shell;
mod target;
mod wait;

use clap::Subcommand;

use crate::host::Host;

/// What to do with the objects of a cluster.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Show objects: tables, YAML, JSON or single values
    Get(get::Arguments),
    /// Show details of objects, and their Events
    Describe(describe::Arguments),
    /// Apply the configuration of files to objects
    Apply(apply::Arguments),
    /// Show what apply would change; the exit code is 1 when it would change something
    Diff(diff::Arguments),
    /// Delete objects
    #[command(visible_alias = "rm")]
    Delete(delete::Arguments),
    /// Change an object in an editor
    Edit(edit::Arguments),
    /// Set or remove labels
    Label(annotate::Arguments),
    /// Set or remove annotations
    Annotate(annotate::Arguments),
    /// Create a Service for a Pod or for a controller of Pods
    Expose(expose::Arguments),
    /// Run a command of this machine, or an image, as a Pod
    Run(run::Arguments),
    /// Print the logs of containers
    #[command(visible_alias = "log")]
    Logs(logs::Arguments),
    /// Run a command in a container
    Exec(exec::Arguments),
    /// Set the number of replicas
    Scale(scale::Arguments),
    /// Manage the rollout of a Deployment, DaemonSet or StatefulSet
    #[command(subcommand)]
    Rollout(rollout::Subject),
    /// Wait for a state of objects
    Wait(wait::Arguments),
    /// Forward ports of this machine to a Pod
    PortForward(forward::Arguments),
    /// Document the fields of a kind
    Explain(explain::Arguments),
    /// Convert Ingresses to the Gateway API
    #[command(subcommand)]
    Ingress(ingress::Subject),
    /// List the resources of the server
    ApiResources(resources::Arguments),
    /// Print the completion script of a shell: source <(waypost completion bash)
    Completion(shell::CompletionArguments),
    /// Write the manual pages into a directory
    Man(shell::ManArguments),
}

/// The command has finished with this exit code, and has printed its message.
#[derive(Debug, thiserror::Error)]
#[error("exit code {0}")]
pub struct Ended(pub u8);

/// Runs a verb.
pub fn run(verb: Verb, host: &dyn Host) -> anyhow::Result<()> {
    let runtime = crate::runtime()?;
    let done = runtime.block_on(async {
        match verb {
            Verb::Get(arguments) => get::exec(arguments).await,
            Verb::Describe(arguments) => describe::exec(arguments).await,
            Verb::Apply(arguments) => apply::exec(arguments).await,
            Verb::Diff(arguments) => diff::exec(arguments).await,
            Verb::Delete(arguments) => delete::exec(arguments).await,
            Verb::Edit(arguments) => edit::exec(arguments, host).await,
            Verb::Label(arguments) => annotate::exec(annotate::LABELS, arguments).await,
            Verb::Annotate(arguments) => annotate::exec(annotate::ANNOTATIONS, arguments).await,
            Verb::Expose(arguments) => expose::exec(arguments).await,
            Verb::Run(arguments) => run::exec(arguments).await,
            Verb::Logs(arguments) => logs::exec(arguments).await,
            Verb::Exec(arguments) => exec::exec(arguments).await,
            Verb::Scale(arguments) => scale::exec(arguments).await,
            Verb::Rollout(subject) => rollout::exec(subject).await,
            Verb::Wait(arguments) => wait::exec(arguments).await,
            Verb::PortForward(arguments) => forward::exec(arguments).await,
            Verb::Explain(arguments) => explain::exec(arguments, host).await,
            Verb::Ingress(subject) => ingress::exec(subject).await,
            Verb::ApiResources(arguments) => resources::exec(arguments).await,
            Verb::Completion(arguments) => shell::completion(&arguments, host),
            Verb::Man(arguments) => shell::man(&arguments, host),
        }
    });
    // A thread may be waiting for terminal input.
    runtime.shutdown_background();
    done
}
