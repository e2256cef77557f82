//! What Pods cost on one machine: how long one takes from its creation until it is reached through its Service, with how many
//! others beside it, and how much memory each takes from the agent.
//!
//! In: a server and a node on a machine of the testbed. Out: [`Figures`](crate::report::Figures) for each number of Pods. Pods run one small server that
//! begins at once, in the process runtime and without a probe, so that what is measured is ours: controllers, scheduler, agent, kernel, proxy.

pub mod machine;
pub mod measure;
pub mod rows;
pub mod watch;
