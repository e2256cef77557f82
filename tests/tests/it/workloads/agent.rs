//! The agent from outside: `waypost up` on a machine of its own, Pods that say on which node they run, real processes and packets.

mod containers;
mod crash;
mod disk;
mod grpc;
mod in_cluster;
mod jobs;
mod kubectl;
mod leftovers;
mod lifecycle;
pub(super) mod machine;
mod network;
mod nodes;
mod oci;
mod probes;
mod rights;
mod seccomp;
mod spoofing;
mod storm;
mod volumes;
