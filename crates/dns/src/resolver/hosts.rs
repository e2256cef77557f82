//! `hosts`: static addresses.
//!
//! In: lines of a file or of the Corefile. Out: A, AAAA and PTR answers, as in CoreDNS. Other types of a known name
//! give NODATA. An unknown name falls through if configured, otherwise it is SERVFAIL: without an SOA record NXDOMAIN
//! would not be cacheable. Only PTR queries look up addresses, in any zone; unknown addresses always fall through.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;

use super::Record;
use super::answer::Unpacked;
use super::message::rcode;
use crate::config::{Hosts, Name, address_of};

const A: u16 = 1;
const PTR: u16 = 12;
const AAAA: u16 = 28;

/// Hosts table with the file it is loaded from.
pub(super) struct HostList {
    config: Hosts,
    zones: Vec<Name>,
    table: RwLock<Arc<Table>>,
}

#[derive(Default, Debug)]
struct Table {
    addresses: HashMap<Name, Vec<IpAddr>>,
    names: HashMap<IpAddr, Vec<Name>>,
}

impl HostList {
    /// Creates a table; `text` is the content of its file.
    pub(super) fn new(config: &Hosts, block_zones: &[Name], text: &str) -> Self {
        let zones = if config.zones.is_empty() { block_zones.to_vec() } else { config.zones.clone() };
        let out = Self { config: config.clone(), zones, table: RwLock::default() };
        out.load(text);
        out
    }

    /// File and reload interval.
    pub(super) fn file(&self) -> Option<(PathBuf, std::time::Duration)> {
        self.config.file.clone().filter(|_| !self.config.reload.is_zero()).map(|file| (file, self.config.reload))
    }

    /// Number of name-address pairs.
    pub(super) fn len(&self) -> usize {
        self.table.read().addresses.values().map(Vec::len).sum()
    }

    /// Replaces the entries of the file; invalid lines are ignored.
    pub(super) fn load(&self, text: &str) {
        let mut table = Table::default();
        let in_zones = |name: &Name| self.covers(name.as_wire());
        for (address, names) in &self.config.entries {
            table.add(*address, names.iter().filter(|name| in_zones(name)).cloned(), self.config.reverse);
        }
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
            let address = words.next().and_then(|word| word.split('%').next()?.parse().ok());
            if let Some(address) = address {
                table.add(
                    address,
                    words.filter_map(|word| Name::parse(word).ok()).filter(in_zones),
                    self.config.reverse,
                );
            }
        }
        *self.table.write() = Arc::new(table);
    }

    /// Answer, or `None` to fall through.
    pub(super) fn answer(&self, lower: &[u8], qtype: u16) -> Option<Unpacked> {
        let table = self.table.read().clone();
        let record = |rtype, data| Record { owner: lower.to_vec(), rtype, class: 1, ttl: self.config.ttl, data };
        let answer = |rcode, authoritative, records| Unpacked {
            rcode,
            authoritative,
            sections: [records, Vec::new(), Vec::new()],
            ..Unpacked::default()
        };
        if qtype == PTR {
            let names = table.names.get(&address_of(lower)?)?;
            let records = names.iter().map(|name| record(PTR, name.as_wire().to_vec())).collect();
            return Some(answer(rcode::NOERROR, true, records));
        }
        if !self.covers(lower) {
            return None;
        }
        match table.addresses.get(&Name::from_wire(lower)?) {
            Some(list) => {
                let records = list.iter().filter_map(|ip| address_record(*ip, qtype, &record)).collect();
                Some(answer(rcode::NOERROR, true, records))
            }
            None if self.config.fallthrough.covers(lower) => None,
            None => Some(answer(rcode::SERVFAIL, false, Vec::new())),
        }
    }

    fn covers(&self, lower: &[u8]) -> bool {
        self.zones.iter().any(|zone| zone.covers(lower))
    }
}

fn address_record(address: IpAddr, qtype: u16, record: &dyn Fn(u16, Vec<u8>) -> Record) -> Option<Record> {
    let (rtype, data) = match address {
        IpAddr::V4(v4) => (A, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AAAA, v6.octets().to_vec()),
    };
    (qtype == rtype).then(|| record(rtype, data))
}

impl Table {
    fn add(&mut self, address: IpAddr, names: impl Iterator<Item = Name>, reverse: bool) {
        for name in names {
            let addresses = self.addresses.entry(name.clone()).or_default();
            if !addresses.contains(&address) {
                addresses.push(address);
            }
            let back = reverse.then(|| self.names.entry(address).or_default());
            if let Some(back) = back.filter(|back| !back.contains(&name)) {
                back.push(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Fallthrough, reverse_name};

    fn name(text: &str) -> Name {
        Name::parse(text).expect("a name")
    }

    fn list(fallthrough: Fallthrough) -> HostList {
        let entries = vec![("192.0.2.7".parse().expect("an address"), vec![name("a.example"), name("b.example")])];
        let config =
            Hosts { file: None, entries, zones: vec![], ttl: 60, reverse: true, reload: Duration::ZERO, fallthrough };
        HostList::new(&config, &[Name::root()], "# remark\nfd00::7 a.example # more\nnonsense x\n192.0.2.7 a.example\n")
    }

    #[test]
    fn names_and_addresses() {
        let list = list(Fallthrough::Always);
        let data = |text: &str, qtype| {
            let answer = list.answer(name(text).as_wire(), qtype)?;
            Some(answer.sections[0].iter().map(|record| record.data.clone()).collect::<Vec<_>>())
        };
        assert_eq!(data("a.example", A), Some(vec![vec![192, 0, 2, 7]]));
        assert_eq!(data("a.example", AAAA).map(|list| list.len()), Some(1));
        assert_eq!(data("b.example", AAAA), Some(vec![]), "known, but not so");
        assert_eq!(data("c.example", A), None);
        let back = reverse_name("192.0.2.7".parse().expect("an address")).to_string();
        assert_eq!(
            data(&back, PTR),
            Some(vec![name("a.example").as_wire().to_vec(), name("b.example").as_wire().to_vec()])
        );
        assert_eq!(data("8.2.0.192.in-addr.arpa", PTR), None);
    }

    #[test]
    fn hosts_without_fallthrough_is_final() {
        let list = list(Fallthrough::Never);
        let code = |text: &str, qtype| list.answer(name(text).as_wire(), qtype).map(|answer| answer.rcode);
        assert_eq!(code("c.example", A), Some(rcode::SERVFAIL));
        list.load("192.0.2.9 c.example");
        assert_eq!(code("c.example", A), Some(rcode::NOERROR));
        let of_file = list.answer(name("a.example").as_wire(), AAAA).map(|answer| answer.sections[0].len());
        assert_eq!(of_file, Some(0), "what left the file is gone, what was written by hand stays");
        assert_eq!(code("8.2.0.192.in-addr.arpa", PTR), None, "an address that is not known is somebody else's");
        assert_eq!(code("a.example", PTR), None, "and so is what is no address");
        assert_eq!(code("7.2.0.192.in-addr.arpa", A), Some(rcode::SERVFAIL), "the name of an address has none itself");
        assert_eq!(code("a.example", 255), Some(rcode::NOERROR), "ANY is a type like others");
    }

    #[test]
    fn ptr_answers_only_contain_names_in_the_zones() {
        let entries = vec![("192.0.2.7".parse().expect("an address"), vec![name("a.example"), name("a.elsewhere")])];
        let (zones, reload) = (vec![name("example")], Duration::ZERO);
        let fallthrough = Fallthrough::Never;
        let mut config = Hosts { file: None, entries, zones, ttl: 60, reverse: true, reload, fallthrough };
        let list = HostList::new(&config, &[Name::root()], "");
        let back = list.answer(name("7.2.0.192.in-addr.arpa").as_wire(), PTR).expect("an answer");
        let found: Vec<_> = back.sections[0].iter().map(|record| &record.data[..]).collect();
        assert_eq!(found, [name("a.example").as_wire()]);
        assert!(list.answer(name("a.elsewhere").as_wire(), A).is_none());
        config.reverse = false;
        let list = HostList::new(&config, &[Name::root()], "");
        assert!(list.answer(name("7.2.0.192.in-addr.arpa").as_wire(), PTR).is_none());
    }
}
