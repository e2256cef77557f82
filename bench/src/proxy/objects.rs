//! The load: Services with fixed addresses, and for each the slices of its endpoints; probes, whose one endpoint moves.
//!
//! Every address shows what it belongs to, so the server need not be queried:
//!
//! ```text
//! 10.96.1.0 …   Services     10.128.0.0 …   their endpoints, all of which answer
//! 10.96.240.…   probes       10.200.0.1     open port for probes
//! 10.96.241.…   new ones     10.200.0.2 …   closed ports
//! ```

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use serde_json::{Value, json};

use crate::load::{self, NAMESPACE, SERVICES, SLICES, Work};

/// The range of all endpoints.
pub const ENDPOINTS: &str = "10.128.0.0/9";
/// The range of all Services.
pub const VIPS: &str = "10.96.0.0/16";
/// The port of every Service.
const PORT: u16 = 80;
/// The port of endpoints.
pub const TARGET: u16 = 8080;
/// The port of endpoints of probes.
pub const PROBE_TARGET: u16 = 8090;
/// Where probes are answered.
pub const HERE: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
/// Where they are refused.
pub const THERE: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 2);
/// More of those; one with all of them and [`HERE`] has seven endpoints, like no other.
pub const MANY: [Ipv4Addr; 6] = [
    THERE,
    Ipv4Addr::new(10, 200, 0, 3),
    Ipv4Addr::new(10, 200, 0, 4),
    Ipv4Addr::new(10, 200, 0, 5),
    Ipv4Addr::new(10, 200, 0, 6),
    Ipv4Addr::new(10, 200, 0, 7),
];
/// How many Services may be probed.
pub const PROBES: usize = 20;
/// How many endpoints a slice holds, as those of a cluster do.
const SLICE: usize = 100;
/// How many Services have an address.
const MOST_SERVICES: usize = 60_000;
/// How many endpoints have one.
const MOST_ENDPOINTS: usize = 1 << 22;

/// How many objects there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Services.
    pub services: usize,
    /// Endpoints of each.
    pub endpoints: usize,
}

/// A Service whose one endpoint is [`HERE`] or [`THERE`].
#[derive(Clone, Debug)]
pub struct Probe {
    name: String,
    vip: Ipv4Addr,
}

// === impl Size ===

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.services, self.endpoints)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('x').and_then(|(services, endpoints)| {
            Some(Self { services: services.parse().ok()?, endpoints: endpoints.parse().ok()? })
        });
        let size = parts.ok_or_else(|| format!("{text:?} is no size; write SERVICESxENDPOINTS, such as 1000x10"))?;
        if !(1..=MOST_SERVICES).contains(&size.services) || size.endpoints == 0 {
            return Err(format!("there can be 1 to {MOST_SERVICES} Services, with one endpoint or more"));
        }
        if size.services.saturating_mul(size.endpoints) > MOST_ENDPOINTS {
            return Err(format!("there can be {MOST_ENDPOINTS} endpoints altogether"));
        }
        Ok(size)
    }
}

impl Size {
    /// Where a Service is.
    #[must_use]
    pub fn vip(&self, number: usize) -> SocketAddr {
        SocketAddr::new(after(Ipv4Addr::new(10, 96, 1, 0), number).into(), PORT)
    }

    /// An endpoint of a Service.
    #[must_use]
    pub fn endpoint(&self, number: usize, index: usize) -> Ipv4Addr {
        after(Ipv4Addr::new(10, 128, 0, 0), number * self.endpoints + index)
    }

    /// What makes all of it.
    #[must_use]
    pub fn create(&self) -> Vec<Work> {
        let mut work: Vec<Work> = Vec::new();
        for number in 0..self.services {
            let (name, vip) = (load::service_name(number), self.vip(number).ip());
            work.push(Work::create(SERVICES, &service(&name, &vip.to_string(), TARGET)));
            let addresses: Vec<Ipv4Addr> = (0..self.endpoints).map(|index| self.endpoint(number, index)).collect();
            for (part, addresses) in addresses.chunks(SLICE).enumerate() {
                work.push(Work::create(SLICES, &slice(&name, part, addresses, TARGET)));
            }
        }
        work
    }
}

// === impl Probe ===

impl Probe {
    /// One of the [`PROBES`] that are there all the time.
    #[must_use]
    pub fn standing(number: usize) -> Self {
        Self { name: format!("probe-{number:03}"), vip: after(Ipv4Addr::new(10, 96, 240, 1), number % PROBES) }
    }

    /// One that has two endpoints, and is left alone.
    #[must_use]
    pub fn pair() -> [Work; 2] {
        Self { name: "pair".to_owned(), vip: Ipv4Addr::new(10, 96, 240, 100) }.create_with(&[HERE, THERE])
    }

    /// One that comes later; there may be two thousand.
    #[must_use]
    pub fn new(number: usize) -> Self {
        Self { name: format!("new-{number:04}"), vip: after(Ipv4Addr::new(10, 96, 241, 0), number % 2000) }
    }

    /// Where it is.
    #[must_use]
    pub fn vip(&self) -> SocketAddr {
        SocketAddr::new(self.vip.into(), PORT)
    }

    /// What makes the Service, then its slice.
    #[must_use]
    pub fn create(&self) -> [Work; 2] {
        self.create_with(&[HERE])
    }

    fn create_with(&self, addresses: &[Ipv4Addr]) -> [Work; 2] {
        let service = service(&self.name, &self.vip.to_string(), PROBE_TARGET);
        let slice = slice(&self.name, 0, addresses, PROBE_TARGET);
        [Work::create(SERVICES, &service), Work::create(SLICES, &slice)]
    }

    /// What gives it these endpoints.
    #[must_use]
    pub fn lead_to(&self, addresses: &[Ipv4Addr]) -> Work {
        let slice = slice(&self.name, 0, addresses, PROBE_TARGET);
        Work::replace(SLICES, &slice_name(&self.name, 0), &slice)
    }

    /// What removes it again.
    #[must_use]
    pub fn delete(&self) -> [Work; 2] {
        [Work::delete(SERVICES, &self.name), Work::delete(SLICES, &slice_name(&self.name, 0))]
    }
}

/// The address at this offset.
fn after(first: Ipv4Addr, number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(first.to_bits().wrapping_add(u32::try_from(number).unwrap_or(u32::MAX)))
}

fn service(name: &str, vip: &str, target: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name, "tier": "backend"}},
        "spec": {"clusterIP": vip, "ports": [{"name": "http", "port": PORT, "targetPort": target}]},
    })
}

fn slice_name(service: &str, part: usize) -> String {
    format!("{service}-{part:02}")
}

fn slice(service: &str, part: usize, addresses: &[Ipv4Addr], port: u16) -> Value {
    let endpoint = |(index, address): (usize, &Ipv4Addr)| {
        json!({
            "addresses": [address.to_string()],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": format!("node-{:02}", index % 10),
            "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": format!("{service}-{part:02}-{index:03}"),
                "uid": format!("00000000-0000-4000-8000-{:012}", address.to_bits())},
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": slice_name(service, part), "namespace": NAMESPACE, "labels": {
            "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "bench"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": port}],
        "endpoints": addresses.iter().enumerate().map(endpoint).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_kept_in_bounds() {
        assert_eq!("30000x3".parse(), Ok(Size { services: 30_000, endpoints: 3 }));
        for wrong in ["1000", "x10", "0x1", "1x0", "60001x1", "60000x100", "1000x10x1"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_do_not_meet() {
        let size = Size { services: MOST_SERVICES, endpoints: MOST_ENDPOINTS / MOST_SERVICES };
        let last = |address: SocketAddr| address.ip().to_string();
        assert_eq!(last(size.vip(size.services - 1)), "10.96.235.95");
        assert!(size.endpoint(size.services - 1, size.endpoints - 1) < HERE);
        assert_eq!(last(Probe::standing(PROBES - 1).vip()), "10.96.240.20");
        assert_eq!(last(Probe::new(1999).vip()), "10.96.248.207");
    }
}
