//! ServiceCIDR: a range that Services get their addresses from.

use serde_json::{Map, Value, json};

use super::common::{IMMUTABLE, keep_metadata};
use crate::field::{Errors, Path};
use crate::ip;
use crate::kind::{Kind, Rules, keep_all_but_status, keep_status, status_of};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;

const CIDRS: Path<'static> = Path::Root("spec.cidrs");

/// The kind.
pub static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "ServiceCIDR",
    plural: "servicecidrs",
    singular: "servicecidr",
    namespaced: false,
    schema: "networking.ServiceCIDR",
    table: "servicecidrs",
    subresources: &[status_of("ServiceCIDR")],
    table_view: &TABLE,
    ..Kind::common(&ServiceCidrRules)
};

static TABLE: Table = Table {
    columns: &[NAME, column("CIDRs", "The ranges, one for each family."), AGE],
    row: |object, now| {
        let cidrs = object.texts("spec.cidrs").join(",");
        vec![object.text("metadata.name").into(), cidrs.into(), age(object, now).into()]
    },
    conditions: no_conditions,
};

struct ServiceCidrRules;

impl Rules for ServiceCidrRules {
    fn prepare_create(&self, object: &mut Value) {
        object.put("status", Map::new());
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn prepare_status(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        keep_metadata(new, old);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, false, names::name_is_subdomain, errors);
        validate_cidrs(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        let (cidrs, before) = (new.items("spec.cidrs"), old.items("spec.cidrs"));
        let grows = before.len() == 1 && cidrs.len() == 2;
        if cidrs.len() != before.len() && !grows {
            errors.invalid(&CIDRS, list(cidrs), IMMUTABLE);
            return;
        }
        for (index, (cidr, earlier)) in cidrs.iter().zip(before).enumerate() {
            if cidr != earlier {
                errors.invalid(&CIDRS.index(index), cidr, IMMUTABLE);
            }
        }
        if grows {
            validate_cidrs(new, errors);
        }
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
    }
}

/// A missing list prints as null, as it does in Go.
fn list(items: &[Value]) -> Value {
    if items.is_empty() { Value::Null } else { items.to_vec().into() }
}

fn validate_cidrs(object: &Value, errors: &mut Errors) {
    let cidrs = object.items("spec.cidrs");
    if cidrs.is_empty() {
        errors.required(&CIDRS, "at least one CIDR required");
        return;
    }
    if cidrs.len() > 2 {
        errors.invalid(&CIDRS, json!({"CIDRs": cidrs}), "may only hold up to 2 values");
        return;
    }
    for (index, cidr) in cidrs.iter().enumerate() {
        ip::check_canonical_cidr(&CIDRS.index(index), cidr.as_str().unwrap_or_default(), errors);
    }
    let families: Vec<_> = cidrs.iter().map(|cidr| family(cidr.as_str().unwrap_or_default())).collect();
    if let [Some(first), Some(second)] = families[..]
        && first == second
    {
        errors.invalid(
            &CIDRS,
            list(cidrs),
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        );
    }
}

/// The family of a range, if it can be read at all.
fn family(cidr: &str) -> Option<ip::Family> {
    let (address, length) = cidr.split_once('/')?;
    let address = ip::parse_lenient(address)?;
    let length: u8 = length.parse().ok()?;
    (length <= if address.is_ipv4() { 32 } else { 128 }).then(|| ip::Family::of(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing::{golden, summary};

    #[test]
    fn golden_answers() {
        golden("servicecidr-ipaddress", &KIND);
    }

    fn with(cidrs: &Value) -> Value {
        json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}, "spec": {"cidrs": cidrs}})
    }

    #[test]
    fn a_second_family_may_be_added() {
        let (one, two) = (with(&json!(["10.0.0.0/24"])), with(&json!(["10.0.0.0/24", "fd00::/112"])));
        let check = |new: &Value, old: &Value| summary(|errors| ServiceCidrRules.validate_update(new, old, errors));
        assert_eq!(check(&two, &one), "[]");
        assert_eq!(check(&one, &two), "spec.cidrs: Invalid value: [\"10.0.0.0/24\"]: field is immutable");
        let same_family = with(&json!(["10.0.0.0/24", "10.1.0.0/24"]));
        assert!(check(&same_family, &one).contains("no more than one IP for each IP family"));
    }
}
