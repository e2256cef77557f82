//! A client of the API for Pods of tests: lists Services through in-cluster configuration, as operators written with kube-rs do.
//!
//! In: the variables and files of a Pod. Out: a line with the names of the Services of its namespace.

use std::io::Write as _;

use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::{Api, Client, Config, ResourceExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::incluster()?;
    let services: Api<Service> = Api::default_namespaced(Client::try_from(config)?);
    let names: Vec<String> = services.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
    writeln!(std::io::stdout(), "kube-rs lists {}", names.join(" "))?;
    Ok(())
}
