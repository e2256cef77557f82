//! The kinds of the Kubernetes Service system, without I/O and without a clock.
//!
//! JSON values flow in and out; the [`schema`] tables give them their types. Everything here is a pure function, so
//! the rules can be read, tested and fuzzed without a server.

pub mod acme;
pub mod admission;
pub mod adopted;
pub mod announcer;
pub mod apply;
pub mod balancer_certificate;
pub mod bootstrap_token;
pub mod claims;
pub mod crd;
pub mod custom;
pub mod decode;
pub mod disruption;
pub mod duration;
pub mod dynamic_admission;
pub mod environment;
pub mod facts;
pub mod field;
pub mod gateway_api;
pub mod gateway_duration;
pub mod hash;
pub mod indexes;
pub mod ip;
pub mod kind;
pub mod kinds;
pub mod lifecycle;
pub mod limit_range;
pub mod list;
pub mod meta;
pub mod names;
pub mod node_port_range;
pub mod object;
pub mod options;
pub mod patch;
pub mod pod_security;
pub mod pool;
pub mod portion;
pub mod priority;
pub mod proto;
pub mod quantity;
pub mod quota;
pub mod rbac;
pub mod resolv_conf;
pub mod resources;
pub mod review;
pub mod schema;
pub mod selector;
pub mod status;
pub mod structural;
pub mod table;
pub mod timestamp;
pub mod value;
pub mod view;
pub mod yaml;
