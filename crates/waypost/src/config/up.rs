//! Settings of everything on one machine.

use clap::Args;

use super::{AgentArguments, DnsArguments, ProxyArguments, ServerArguments};

/// Settings of everything on one machine.
#[derive(Args, Debug, Clone)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    #[command(flatten)]
    pub(crate) proxy: ProxyArguments,
    #[command(flatten)]
    pub(crate) dns: DnsArguments,
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
}
