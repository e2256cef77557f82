//! What all Pods of this machine share: its settings, the API, the network, addresses, Services, and who is here.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::environment;
use api::value::ValueExt as _;
use client::requests::Api;
use ipnet::IpNet;
use kernel::cgroups::Cgroups;
use kernel::pod_network::PodNetwork;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::amounts::Capacity;
use crate::events::Teller;
use crate::followed::Followed;
use crate::home::Home;
use crate::images::Images;
use crate::images::pull::Puller;
use crate::pod::Message;
use crate::pod::image::Waits;
use crate::pool::Pool;
use crate::settings::Settings;
use crate::workloads::PodId;

/// The group under which all control groups of ours are.
pub const GROUP: &str = "waypost";

/// See the module.
pub struct Machine {
    /// What it was told.
    pub settings: Settings,
    /// Where it keeps things.
    pub home: Home,
    /// The API.
    pub api: Arc<dyn Api>,
    /// Its words to people.
    pub teller: Teller,
    /// The kernel's network.
    pub network: Mutex<Box<dyn PodNetwork>>,
    /// Addresses of Pods.
    pub pool: Mutex<Pool>,
    /// Control groups.
    pub groups: Cgroups,
    /// Images.
    pub images: Images,
    /// Brings images that are not here.
    pub puller: Puller,
    /// Images that could not be had, and when they are tried again.
    pub image_waits: Waits,
    /// What the machine has.
    pub capacity: Capacity,
    /// Its own addresses, the preferred first.
    pub host: Vec<IpAddr>,
    /// The ranges of its Pods, as soon as they are known.
    pub ranges: watch::Receiver<Vec<IpNet>>,
    /// Objects that Pods have mounted.
    pub followed: Followed,
    /// Services by namespace and name.
    pub services: Mutex<BTreeMap<String, Known>>,
    /// Ports of this machine that lead into Pods, by uid.
    pub doors: Mutex<BTreeMap<String, Vec<Door>>>,
    /// Pods that stand for what runs without us.
    pub adopted: Mutex<BTreeMap<PodId, Arc<Value>>>,
    /// Pods that are here.
    pub seats: Mutex<BTreeMap<PodId, Seat>>,
}

/// A port of this machine that leads into a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Door {
    /// The number of the protocol.
    pub protocol: u8,
    /// The port of the machine.
    pub host_port: u16,
    /// The address of the Pod.
    pub to: IpAddr,
    /// The port of the Pod.
    pub port: u16,
}

impl Door {
    /// The doors that a Pod asks for.
    #[must_use]
    pub fn of(pod: &Value, addresses: &[IpAddr]) -> Vec<Self> {
        let number = |port: &Value, field: &str| u16::try_from(port.int(field)).ok().filter(|port| *port > 0);
        let ports = pod.items("spec.containers").iter().flat_map(|container| container.items("ports"));
        let asked = ports.filter_map(|port| {
            let protocol = match port.text("protocol") {
                "UDP" => 17,
                "SCTP" => 132,
                _ => 6,
            };
            Some((protocol, number(port, "hostPort")?, number(port, "containerPort")?))
        });
        asked
            .flat_map(|(protocol, host_port, port)| {
                addresses.iter().map(move |to| Self { protocol, host_port, to: *to, port })
            })
            .collect()
    }
}

/// What is known of a Service.
#[derive(Clone, Debug)]
pub struct Known {
    /// For variables.
    pub service: environment::Service,
    /// All of its addresses.
    pub addresses: Vec<String>,
}

/// A Pod that is here.
#[derive(Clone)]
pub struct Seat {
    /// Its uid.
    pub uid: String,
    /// As the API has it.
    pub pod: Arc<Value>,
    /// Where news of it go.
    pub inbox: mpsc::UnboundedSender<Message>,
}

impl Machine {
    /// The variables of Services for a Pod.
    #[must_use]
    pub fn service_variables(&self, pod: &Value) -> Vec<(String, String)> {
        let links = pod.at("spec.enableServiceLinks").as_bool().or(Some(true));
        let services = self.services.lock();
        let all = services.values().map(|known| &known.service);
        let found = environment::environment(all, pod.text("metadata.namespace"), links).unwrap_or_default();
        found.variables.into_iter().map(|variable| (variable.name, variable.value)).collect()
    }

    /// The addresses of the cluster's DNS.
    #[must_use]
    pub fn dns(&self) -> Vec<String> {
        self.services.lock().get("kube-system/kube-dns").map_or_else(Vec::new, |known| known.addresses.clone())
    }

    /// The control group of a Pod.
    #[must_use]
    pub fn pod_group(uid: &str) -> String {
        format!("{GROUP}/{uid}")
    }

    /// The control group of a container.
    #[must_use]
    pub fn container_group(uid: &str, name: &str) -> String {
        format!("{GROUP}/{uid}/{name}")
    }
}

impl Known {
    /// Reads a Service.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let addresses = object.texts("spec.clusterIPs").into_iter().filter(|ip| *ip != "None").map(str::to_owned);
        Self { service: environment::Service::read(object), addresses: addresses.collect() }
    }
}
