//! S54: Services at layer 7: requests of Pods to cluster IPs, balanced one by one, and routes whose parent is a Service.

mod balance;
mod grpc;
mod opt_in;
mod reach;
mod routes;
mod stage;
