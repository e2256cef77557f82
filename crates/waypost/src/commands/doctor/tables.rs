//! Compares the iptables rules with the plan, by a dry run of the backend.
//!
//! In: the objects, and the output of `iptables-save`. Out: differences, by Service. As in [`super::rules`] the plan comes from the planner of
//! the proxy and the difference from its backend, over a port that records the script instead of running it. The options of the proxy are
//! not known here: they are derived from the rules, and where that is ambiguous the options with the fewest differences are used.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use cli::doctor::{Cluster, Measured, Rules, Unmeasured};
use dataplane::iptables::Iptables as Backend;
use dataplane::{Backend as _, SyncScope};
use ipnet::IpNet;
use kernel::Family;
use kernel::iptables::{Iptables, IptablesError, Match, Name, Rule, Saved, Script, State, Step, Table, Target};
use parking_lot::Mutex;
use plan::{DataPlane, LocalDetector, NodePortAddresses, Options, Plan};

use super::rules::{owner, plan};

const SERVICES: &str = "KUBE-SERVICES";
const NODE_PORTS: &str = "KUBE-NODEPORTS";
/// Chains that all Services share.
const SHARED: [&str; 4] = [SERVICES, NODE_PORTS, "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL"];
/// Marks packets for masquerading, unless Pods sent them.
const NOT_POD: &str = "KUBE-MARK-NOT-POD";
/// Marks packets for masquerading.
const MARK: &str = "KUBE-MARK-MASQ";
/// Accepts forwarded packets.
const FORWARD: &str = "KUBE-FORWARD";

/// The differences.
pub(super) fn compare(
    kernel: &mut dyn Iptables,
    cluster: &Cluster,
    node: &str,
    machine: &BTreeSet<IpAddr>,
) -> Measured<Rules> {
    let mut saved = BTreeMap::new();
    for family in kernel.families() {
        saved.insert(family, kernel.save(family).map_err(|error| unreadable(&error))?);
    }
    let drop_invalid = saved.values().any(drops_invalid);
    let mut best: Option<(usize, Rules)> = None;
    for options in guesses(node, &saved) {
        let planner = plan(cluster, options, machine.clone());
        let (differences, rules) = differences(&saved, planner.plan(), drop_invalid)?;
        if best.as_ref().is_none_or(|(least, _)| differences < *least) {
            best = Some((differences, rules));
        }
        if differences == 0 {
            break;
        }
    }
    best.map(|(_, rules)| rules)
        .ok_or_else(|| Unmeasured { why: "iptables serves no family here".to_owned(), how: "iptables-save".to_owned() })
}

fn unreadable(error: &IptablesError) -> Unmeasured {
    Unmeasured {
        why: format!("reading the tables of iptables: {error}"),
        how: "run `waypost doctor` as root".to_owned(),
    }
}

/// Options of the proxy that are consistent with its rules.
fn guesses(node: &str, saved: &BTreeMap<Family, Saved>) -> Vec<Options> {
    let mut ranges: Vec<IpNet> = saved.values().flat_map(pods).collect();
    ranges.sort_unstable();
    ranges.dedup();
    let mut guesses = Vec::new();
    for node_port_addresses in node_ports(saved) {
        for masquerade_all in [false, true] {
            guesses.push(Options {
                node_name: node.to_owned(),
                masquerade_all,
                local: LocalDetector::Ranges(ranges.clone()),
                node_port_addresses: node_port_addresses.clone(),
                data_plane: DataPlane::Iptables,
                ..Options::default()
            });
        }
    }
    guesses
}

/// The addresses of node ports, from the rules.
fn node_ports(saved: &BTreeMap<Family, Saved>) -> Vec<NodePortAddresses> {
    let rules = saved.values().flat_map(|saved| saved.rules(Table::Nat, SERVICES)).flatten();
    let asked: Vec<Match> =
        rules.filter(|rule| leads(rule, NODE_PORTS)).flat_map(|rule| rule.matches().to_vec()).collect();
    if asked.contains(&Match::LocalDestination) {
        return vec![NodePortAddresses::All];
    }
    let named = asked.iter().filter_map(|one| match one {
        Match::Destination { range, not: false } => Some(*range),
        _ => None,
    });
    let named: Vec<IpNet> = named.collect();
    match named.is_empty() {
        true => vec![NodePortAddresses::Primary, NodePortAddresses::All],
        false => vec![NodePortAddresses::Ranges(named)],
    }
}

/// Whether the proxy drops packets of invalid conntrack state, which is the default.
fn drops_invalid(saved: &Saved) -> bool {
    let rules: Vec<Rule> = saved.rules(Table::Filter, FORWARD).flatten().collect();
    rules.is_empty() || rules.iter().any(|rule| rule.matches().contains(&Match::State(State::Invalid)))
}

/// The ranges of Pods in the rules.
fn pods(saved: &Saved) -> Vec<IpNet> {
    let source = |rule: &Rule, wanted: bool| {
        rule.matches().iter().find_map(|one| match one {
            Match::Source { range, not } if *not == wanted => Some(*range),
            _ => None,
        })
    };
    let several = saved.rules(Table::Nat, NOT_POD).flatten().filter(|rule| *rule.target() == Target::Return);
    let several: Vec<IpNet> = several.filter_map(|rule| source(&rule, false)).collect();
    if !several.is_empty() {
        return several;
    }
    let of_chains = |start: &'static str| {
        let chains = saved.chains(Table::Nat).filter(move |name| name.starts_with(start));
        chains.flat_map(|name| saved.rules(Table::Nat, name)).flatten()
    };
    let one = of_chains("KUBE-SV").find_map(|rule| source(&rule, true).filter(|_| leads(&rule, MARK)));
    one.or_else(|| of_chains("KUBE-EXT-").find_map(|rule| source(&rule, false))).into_iter().collect()
}

fn leads(rule: &Rule, chain: &str) -> bool {
    matches!(rule.target(), Target::Chain(name) if **name == *chain)
}

/// What the backend would write, as text by Service, and the number of changes.
fn differences(saved: &BTreeMap<Family, Saved>, plan: &Plan, drop_invalid: bool) -> Measured<(usize, Rules)> {
    let scripts = Scripts::default();
    let port = Dry { saved: saved.clone(), scripts: Arc::clone(&scripts) };
    let mut backend = Backend::new(port, drop_invalid);
    backend.sync(plan, &SyncScope::FullResync).map_err(|error| Unmeasured {
        why: format!("comparing rules: {error}"),
        how: "restart the proxy of this node".to_owned(),
    })?;
    let owners = Owners::of(plan, &backend);
    let mut rules = Rules { mode: "iptables".to_owned(), ..Rules::default() };
    let mut count = 0;
    for (family, script) in scripts.lock().iter() {
        count += script.len();
        if let Some(saved) = saved.get(family) {
            read(saved, script, &owners, &mut rules);
        }
    }
    for said in rules.of.values_mut().chain([&mut rules.whole]) {
        said.sort_unstable();
        said.dedup();
    }
    Ok((count, rules))
}

type Scripts = Arc<Mutex<Vec<(Family, Script)>>>;

/// Tables as they were saved; records scripts without running them.
#[derive(Clone)]
struct Dry {
    saved: BTreeMap<Family, Saved>,
    scripts: Scripts,
}

impl Iptables for Dry {
    fn families(&self) -> Vec<Family> {
        self.saved.keys().copied().collect()
    }

    fn save(&mut self, family: Family) -> Result<Saved, IptablesError> {
        Ok(self.saved.get(&family).cloned().unwrap_or_default())
    }

    fn restore(&mut self, family: Family, script: &Script) -> Result<(), IptablesError> {
        self.scripts.lock().push((family, script.clone()));
        Ok(())
    }

    fn has(&mut self, family: Family, table: Table, chain: &str, rule: &Rule) -> Result<bool, IptablesError> {
        let saved = self.saved.get(&family);
        Ok(saved.is_some_and(|saved| saved.rules(table, chain).flatten().any(|one| one == *rule)))
    }

    fn tidy(&mut self, _: Family) -> Result<(), IptablesError> {
        Ok(())
    }
}

/// The Services of chains and rules.
struct Owners {
    /// Chains of one Service port.
    chains: BTreeMap<String, String>,
    /// Rules in shared chains, by chain and text.
    rules: BTreeMap<(String, String), String>,
}

impl Owners {
    fn of(plan: &Plan, backend: &Backend<Dry>) -> Self {
        let (mut chains, mut rules) = (BTreeMap::new(), BTreeMap::new());
        for (key, port) in &plan.ports {
            // The report of the backend about a port has the rules that it writes.
            let text = backend.rules(plan, port);
            for line in text.lines() {
                let Some((_, rest)) = line.split_once(" -A ") else { continue };
                let (chain, rule) = rest.split_once(' ').unwrap_or((rest, ""));
                if SHARED.contains(&chain) {
                    rules.insert((chain.to_owned(), rule.to_owned()), owner(plan, key));
                } else {
                    chains.insert(chain.to_owned(), owner(plan, key));
                }
            }
        }
        Self { chains, rules }
    }
}

/// A script as text, by Service.
fn read(saved: &Saved, script: &Script, owners: &Owners, rules: &mut Rules) {
    let gone: BTreeSet<(Table, &Name)> = script
        .steps()
        .filter_map(|(table, step)| match step {
            Step::Remove(name) => Some((table, name)),
            _ => None,
        })
        .collect();
    let mut shared: BTreeMap<(Table, String), Vec<String>> = BTreeMap::new();
    for (table, step) in script.steps() {
        match step {
            Step::Empty(chain) if SHARED.contains(&&**chain) => {
                shared.entry((table, chain.to_string())).or_default();
            }
            Step::Append(chain, rule) | Step::Insert(chain, rule) if SHARED.contains(&&**chain) => {
                shared.entry((table, chain.to_string())).or_default().push(rule.to_string());
            }
            // An unused chain is flushed before it is deleted; it is harmless.
            Step::Empty(chain) if !gone.contains(&(table, chain)) => {
                let how = if saved.has_chain(table, chain) { "has other rules" } else { "is missing" };
                let said = format!("chain {chain} {how}");
                match owners.chains.get(&**chain) {
                    Some(service) => rules.of.entry(service.clone()).or_default().push(said),
                    None => rules.whole.push(said),
                }
            }
            Step::Insert(chain, rule) => rules.whole.push(format!("chain {chain} of table {table} lacks {rule}")),
            Step::Empty(_) | Step::Append(..) | Step::Delete(..) | Step::DeleteListed(..) | Step::Remove(_) => {}
        }
    }
    for ((table, chain), wanted) in shared {
        read_shared(saved, (table, &chain), wanted, owners, rules);
    }
}

/// A shared chain is written as a whole; the differences are single rules.
fn read_shared(saved: &Saved, (table, chain): (Table, &str), wanted: Vec<String>, owners: &Owners, rules: &mut Rules) {
    if !saved.has_chain(table, chain) {
        rules.whole.push(format!("chain {chain} of table {table} is missing"));
        return;
    }
    let have: BTreeSet<String> = saved
        .lines(table, chain)
        .map(|line| Rule::parse(line).map_or_else(|| line.to_owned(), |rule| rule.to_string()))
        .collect();
    let wanted: BTreeSet<String> = wanted.into_iter().collect();
    let mut tell = |rule: &String, what: &str| {
        let said = format!("`{rule}` {what} chain {chain} of table {table}");
        let owner = owners.rules.get(&(chain.to_owned(), rule.clone())).cloned();
        match owner.or_else(|| led_to(rule, owners)).or_else(|| named(rule)).or_else(|| addressed(rule, saved)) {
            Some(service) => rules.of.entry(service).or_default().push(said),
            None => rules.whole.push(said),
        }
    };
    wanted.difference(&have).for_each(|rule| tell(rule, "is missing in"));
    have.difference(&wanted).for_each(|rule| tell(rule, "is too much in"));
    if have == wanted {
        rules.whole.push(format!("the rules of chain {chain} of table {table} stand in another order"));
    }
}

/// The Service whose chain a rule jumps to.
fn led_to(rule: &str, owners: &Owners) -> Option<String> {
    owners.chains.get(&Saved::leads_to(rule)?).cloned()
}

/// The Service in the comment of a rule: a Service that is gone or has no endpoints has no chain.
fn named(rule: &str) -> Option<String> {
    let rule = Rule::parse(rule)?;
    let service = rule.comment()?.split([' ', ':']).next()?;
    service.contains('/').then(|| service.to_owned())
}

/// The Service of the address in a rule, if another rule with the address has a comment.
fn addressed(rule: &str, saved: &Saved) -> Option<String> {
    let to = |rule: &str| rule.split_once("-d ")?.1.split(' ').next().map(str::to_owned);
    let address = to(rule)?;
    let of_it = |line: &&str| to(line).as_ref() == Some(&address);
    saved.lines(Table::Nat, "KUBE-SERVICES").filter(of_it).find_map(named)
}

#[cfg(test)]
mod tests {
    use api::value::ValueExt as _;
    use kernel::iptables::fake::Fake;
    use serde_json::json;

    use super::super::rules::tests::cluster;
    use super::*;

    /// A machine with the rules of a cluster, written by a proxy with these options.
    fn written(cluster: &Cluster, masquerade_all: bool, ranges: &[&str]) -> Fake {
        let fake = Fake::default();
        let ranges = ranges.iter().map(|range| range.parse().expect("a range")).collect();
        let local = LocalDetector::Ranges(ranges);
        let node_port_addresses = if masquerade_all { NodePortAddresses::All } else { NodePortAddresses::Primary };
        let options =
            Options { node_name: "n1".to_owned(), masquerade_all, local, node_port_addresses, ..Options::default() };
        let planner = plan(cluster, options, BTreeSet::new());
        Backend::new(fake.clone(), true).sync(planner.plan(), &SyncScope::FullResync).expect("written");
        fake
    }

    fn compared(kernel: &mut Fake, cluster: &Cluster) -> Rules {
        compare(kernel, cluster, "n1", &BTreeSet::new()).expect("measured")
    }

    /// A line that flushes a chain.
    fn emptied(chain: &str) -> String {
        format!(":{chain} - [0:0]")
    }

    /// Changes the nat table of IPv4.
    fn tamper(kernel: &Fake, line: &str) {
        kernel.foreign(Family::Ip, &format!("*nat\n{line}\nCOMMIT\n")).expect("it is taken");
    }

    /// The chain of a Service's port.
    fn chain_of(kernel: &Fake, service: &str) -> String {
        let listing = kernel.listing(Family::Ip);
        let line = listing.lines().find(|line| line.contains("-A KUBE-SERVICES") && line.contains(service));
        Saved::leads_to(line.unwrap_or_else(|| panic!("no {service} in {listing}"))).expect("a chain")
    }

    #[test]
    fn rules_of_the_proxy_are_equal_for_all_options() {
        let cluster = cluster();
        for ranges in [&[][..], &["10.244.0.0/16"], &["10.244.0.0/16", "10.250.0.0/16"]] {
            for masquerade_all in [false, true] {
                let rules = compared(&mut written(&cluster, masquerade_all, ranges), &cluster);
                assert!(rules.whole.is_empty() && rules.of.is_empty(), "{ranges:?} {masquerade_all}: {rules:?}");
                assert_eq!((&*rules.mode, rules.missing), ("iptables", false));
            }
        }
    }

    #[test]
    fn differences_are_reported_by_service() {
        let mut cluster = cluster();
        let mut kernel = written(&cluster, false, &["10.244.0.0/16"]);
        let chain = chain_of(&kernel, "default/web");
        tamper(&kernel, &emptied(&chain));
        let rules = compared(&mut kernel, &cluster);
        assert_eq!(rules.of.keys().collect::<Vec<_>>(), ["default/web"], "{rules:?}");
        assert_eq!(rules.of["default/web"], [format!("chain {chain} has other rules")]);
        assert!(rules.whole.is_empty(), "{rules:?}");

        // An endpoint that has moved is a missing chain and an unused one.
        let mut kernel = written(&cluster, false, &["10.244.0.0/16"]);
        cluster.slices[0].items_mut("endpoints")[0].put("addresses", json!(["10.244.0.77"]));
        let rules = compared(&mut kernel, &cluster);
        assert_eq!(rules.of.keys().collect::<Vec<_>>(), ["default/web"], "{rules:?}");
        assert!(rules.whole.is_empty(), "{rules:?}");
    }

    #[test]
    fn a_missing_rule_in_a_shared_chain_is_reported_for_its_service() {
        let cluster = cluster();
        let mut kernel = written(&cluster, false, &["10.244.0.0/16"]);
        let listing = kernel.listing(Family::Ip);
        let line = listing.lines().find(|line| line.contains("-A KUBE-SERVICES") && line.contains("default/api"));
        tamper(&kernel, &line.expect("a rule").replacen("-A", "-D", 1));
        let rules = compared(&mut kernel, &cluster);
        assert_eq!(rules.of.keys().collect::<Vec<_>>(), ["default/api"], "{rules:?}");
        assert!(rules.of["default/api"][0].contains("is missing in chain KUBE-SERVICES"), "{rules:?}");
        assert!(rules.whole.is_empty(), "{rules:?}");
    }

    #[test]
    fn a_leftover_rule_is_reported_for_its_service_alone() {
        let mut cluster = cluster();
        let mut kernel = written(&cluster, false, &["10.244.0.0/16"]);
        cluster.services.remove(1);
        cluster.slices.remove(1);
        let rules = compared(&mut kernel, &cluster);
        assert_eq!(rules.of.keys().collect::<Vec<_>>(), ["default/api"], "{rules:?}");
        assert!(rules.of["default/api"][0].contains("is too much in chain KUBE-SERVICES"), "{rules:?}");
        assert!(rules.whole.is_empty(), "{rules:?}");
    }

    #[test]
    fn differences_in_shared_chains_concern_all_services() {
        let cluster = cluster();
        let mut kernel = written(&cluster, false, &["10.244.0.0/16"]);
        tamper(&kernel, &emptied("KUBE-POSTROUTING"));
        assert_eq!(compared(&mut kernel, &cluster).whole, ["chain KUBE-POSTROUTING has other rules"]);
        let mut kernel = written(&cluster, false, &["10.244.0.0/16"]);
        let listing = kernel.listing(Family::Ip);
        let way_in = listing.lines().find(|line| line.starts_with("-A PREROUTING"));
        tamper(&kernel, &way_in.expect("a rule").replacen("-A", "-D", 1));
        let whole = compared(&mut kernel, &cluster).whole;
        assert!(whole.len() == 1 && whole[0].starts_with("chain PREROUTING of table nat lacks "), "{whole:?}");
    }
}
