//! A cluster in memory: claims that behave like the real allocators, and the steps of the server around the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use crate::claims::{ClaimError, Claims};
use crate::field::Errors;
use crate::ip::Family;
use crate::kind::Rules;
use crate::kinds::service::KIND;
use crate::node_port_range::NodePortRange;
use crate::status::Status;
use crate::value::ValueExt as _;

/// Service ranges 10.96.0.0/16 and fd00:10:96::/112, node ports 30000-32767.
#[derive(Clone)]
pub(crate) struct Pool {
    families: Vec<Family>,
    pub(crate) addresses: BTreeSet<IpAddr>,
    pub(crate) ports: BTreeSet<u16>,
    next: u16,
    /// How many dynamic claims may still succeed.
    pub(crate) left: usize,
}

const V4_BASE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
const V6_BASE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0);

impl Claims for Pool {
    fn families(&self) -> &[Family] {
        &self.families
    }

    fn claim_address(
        &mut self,
        family: Family,
        wanted: Option<IpAddr>,
        _namespace: &str,
        name: &str,
    ) -> Result<IpAddr, ClaimError> {
        let address = match wanted {
            Some(address) => address,
            None => {
                self.left = self.left.checked_sub(1).ok_or(ClaimError::Full)?;
                self.next += 1;
                match family {
                    Family::V4 => Ipv4Addr::from_bits(V4_BASE.to_bits() + 0x8000 + u32::from(self.next)).into(),
                    Family::V6 => Ipv6Addr::from_bits(V6_BASE.to_bits() + 0x8000 + u128::from(self.next)).into(),
                }
            }
        };
        let inside = match address {
            IpAddr::V4(v4) => v4.to_bits() >> 16 == V4_BASE.to_bits() >> 16,
            IpAddr::V6(v6) => v6.to_bits() >> 16 == V6_BASE.to_bits() >> 16,
        };
        if !inside {
            return Err(ClaimError::NoSuchRange);
        }
        if name.is_empty() {
            return Err(ClaimError::OwnerRefused { address, why: "Required value".to_owned() });
        }
        if self.addresses.insert(address) { Ok(address) } else { Err(ClaimError::AddressTaken) }
    }

    fn release_address(&mut self, address: IpAddr) {
        assert!(self.addresses.remove(&address), "{address} was not claimed");
    }

    fn claim_port(&mut self, wanted: Option<u16>) -> Result<u16, ClaimError> {
        let port = match wanted {
            Some(port) if !(30000..=32767).contains(&port) => {
                return Err(ClaimError::PortOutOfRange("30000-32767".to_owned()));
            }
            Some(port) => port,
            None => {
                self.left = self.left.checked_sub(1).ok_or(ClaimError::Full)?;
                self.next += 1;
                31000 + self.next
            }
        };
        if self.ports.insert(port) { Ok(port) } else { Err(ClaimError::PortTaken) }
    }

    fn release_port(&mut self, port: u16) {
        assert!(self.ports.remove(&port), "{port} was not claimed");
    }

    fn reserve_ports(&mut self, _namespace: &str, _range: Option<NodePortRange>) -> Result<(), ClaimError> {
        unreachable!("a Service reserves no ports")
    }
}

/// What a write answers: the object as readers see it, and warnings.
pub(crate) type Answer = Result<(Value, Vec<String>), Status>;

/// The pool and the stored Services.
pub(crate) struct Cluster {
    pub(crate) pool: Pool,
    pub(crate) services: BTreeMap<String, Value>,
    revision: u64,
}

impl Cluster {
    pub(crate) fn new(families: &[Family]) -> Self {
        let pool = Pool {
            families: families.to_vec(),
            addresses: BTreeSet::new(),
            ports: BTreeSet::new(),
            next: 0,
            left: usize::MAX,
        };
        Self { pool, services: BTreeMap::new(), revision: 0 }
    }

    pub(crate) fn dual() -> Self {
        Self::new(&[Family::V4, Family::V6])
    }

    fn rules() -> &'static dyn Rules {
        KIND.rules
    }

    /// Carries out the claims of a step, or none of them.
    fn with_claims<T>(&mut self, step: impl FnOnce(&mut Pool) -> Result<T, Status>) -> Result<T, Status> {
        let mut pool = self.pool.clone();
        let out = step(&mut pool)?;
        self.pool = pool;
        Ok(out)
    }

    fn store(&mut self, object: &mut Value) -> Value {
        self.revision += 1;
        object.put("metadata.resourceVersion", self.revision.to_string());
        self.services.insert(object.text("metadata.name").to_owned(), object.clone());
        let mut seen = object.clone();
        Self::rules().on_read(&mut seen);
        seen
    }

    pub(crate) fn create(&mut self, mut object: Value) -> Answer {
        let rules = Self::rules();
        object.put("metadata.namespace", "ns");
        rules.default(&mut object);
        let mut object = self.with_claims(|pool| {
            rules.begin_create(&mut object, pool)?;
            rules.prepare_create(&mut object);
            check(&object, |errors| rules.validate_create(&object, errors))?;
            Ok(object)
        })?;
        let mut warnings = Vec::new();
        rules.warnings(&object, None, &mut warnings);
        Ok((self.store(&mut object), warnings))
    }

    pub(crate) fn update(&mut self, mut new: Value) -> Answer {
        let rules = Self::rules();
        let old = self.services.get(new.text("metadata.name")).cloned().unwrap_or_default();
        adopt(&mut new, &old);
        rules.default(&mut new);
        let mut new = self.with_claims(|pool| {
            rules.begin_update(&mut new, &old, pool)?;
            rules.prepare_update(&mut new, &old);
            check(&new, |errors| rules.validate_update(&new, &old, errors))?;
            Ok(new)
        })?;
        let mut warnings = Vec::new();
        rules.warnings(&new, Some(&old), &mut warnings);
        Ok((self.store(&mut new), warnings))
    }

    pub(crate) fn update_status(&mut self, mut new: Value) -> Answer {
        let rules = Self::rules();
        let old = self.services.get(new.text("metadata.name")).cloned().unwrap_or_default();
        adopt(&mut new, &old);
        rules.default(&mut new);
        rules.prepare_status(&mut new, &old);
        check(&new, |errors| rules.validate_status(&new, &old, errors))?;
        let mut warnings = Vec::new();
        rules.status_warnings(&new, &old, &mut warnings);
        self.store(&mut new);
        Ok((new, warnings))
    }

    /// Updates with a merge patch of what is stored.
    pub(crate) fn patch(&mut self, name: &str, patch: &Value) -> Answer {
        let mut new = self.services.get(name).cloned().unwrap_or_default();
        merge(&mut new, patch);
        self.update(new)
    }

    pub(crate) fn delete(&mut self, name: &str) {
        if let Some(object) = self.services.remove(name) {
            Self::rules().finish_delete(&object, &mut self.pool);
        }
    }
}

/// What the server fills in before an update is validated.
fn adopt(new: &mut Value, old: &Value) {
    for field in ["namespace", "uid", "creationTimestamp", "resourceVersion"] {
        let have = new.at("metadata").has(field);
        if let Some(value) = old.at("metadata").get(field)
            && !have
        {
            new.put(&format!("metadata.{field}"), value.clone());
        }
    }
}

fn check(object: &Value, validate: impl FnOnce(&mut Errors)) -> Result<(), Status> {
    let mut errors = Errors::default();
    validate(&mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("", "Service", object.text("metadata.name"), &errors))
}

/// JSON merge patch.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.drop_path(key);
        } else if let Some(map) = target.as_object_mut() {
            merge(map.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}
