//! Load balancers that understand TLS and HTTP, side by side: the gateway of `waypost up`, nginx and HAProxy.
//!
//! `stage` is a node with a pod on it and a client outside, in namespaces; `contender` starts one of the three on the node; `pod` answers; `load`
//! asks, always in the same way. One after the other, in rounds, so that all meet the machine in the same mood. The load, the pod and the
//! contender share the cores.

pub mod contender;
pub mod load;
pub mod pod;
pub mod rows;
pub mod stage;
