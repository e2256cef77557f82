//! One binary for all black-box tests: one link, and one server where a test needs no fault of its own.
#![expect(clippy::disallowed_methods, reason = "these tests run the programs that users run")]

mod access;
mod admission;
mod adopted;
mod allocation;
mod announce;
mod attacks;
mod bgp;
mod cli;
mod crash;
mod demo;
mod discovery;
mod disk;
mod doctor;
mod encryption;
mod first_steps;
mod gateway;
mod golden;
mod ipvs;
mod kube_client;
mod kubectl;
mod load_balancer;
mod names;
mod net;
mod page;
mod policies;
mod proxy;
mod python_client;
mod race;
mod remote_watch;
mod repair;
mod repository;
mod store_tools;
mod why;
mod wire;
mod workloads;
