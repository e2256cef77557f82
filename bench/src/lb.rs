//! Load balancers that understand TLS and HTTP, side by side: the gateway of `waypost up`, nginx and HAProxy.
//!
//! `stage` is a node with a pod and an external client, in namespaces; `contender` starts one of the three on the node; `pod` responds; `load`
//! sends the requests, always in the same way. They run one after the other, in rounds, so that conditions on the machine are the same for all.
//! The load generator, the pod and the contender share the cores.

pub mod contender;
pub mod load;
pub mod pod;
pub mod rows;
pub mod stage;
