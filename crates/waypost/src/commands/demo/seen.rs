//! What is observed in an act, and the checks of it. Pure.
//!
//! In: observations. Out: the lines that describe them, or the failed check.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};

/// The results of many requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// How many were sent.
    pub(super) asked: usize,
    /// Those that failed: how long after the first, and why.
    pub(super) failures: Vec<(Duration, String)>,
    /// How many each Pod answered.
    pub(super) pods: BTreeMap<String, usize>,
    /// The versions that answered.
    pub(super) versions: BTreeSet<String>,
}

impl Tally {
    /// The sum of two tallies.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.asked += other.asked;
        self.failures.extend(other.failures);
        for (pod, count) in other.pods {
            *self.pods.entry(pod).or_default() += count;
        }
        self.versions.extend(other.versions);
        self
    }

    fn shares(&self) -> String {
        self.pods.values().map(usize::to_string).collect::<Vec<_>>().join(" + ")
    }

    /// Fails when a request failed.
    fn all_answered(&self) -> anyhow::Result<()> {
        match self.failures.first() {
            _ if self.asked == 0 => bail!("nothing was asked"),
            None => Ok(()),
            Some((_, why)) => {
                bail!("{} of {} requests failed; the first: {why}", self.failures.len(), self.asked)
            }
        }
    }
}

/// The observations of an act.
#[derive(Debug)]
pub(super) enum Seen {
    /// Pods: those that are ready, with their addresses; and the reported state of the others.
    Ready { pods: BTreeMap<String, IpAddr>, others: Vec<String> },
    /// Requests to an address, answered by these Pods or not.
    Spread { to: String, pods: BTreeSet<String>, tally: Tally },
    /// The addresses of a name.
    Addresses { name: String, pods: BTreeSet<IpAddr>, found: anyhow::Result<BTreeSet<IpAddr>> },
    /// The target of a CNAME.
    Alias { name: String, wanted: String, found: anyhow::Result<Option<String>> },
    /// What a program in a Pod can discover of a Service.
    Discovery {
        service: (IpAddr, u16),
        variables: Option<(String, String)>,
        found: anyhow::Result<BTreeSet<IpAddr>>,
        search: String,
    },
    /// Requests of one client.
    Affinity { tally: Tally },
    /// Requests during a rolling update, and its progress.
    Update { old: BTreeSet<String>, new: BTreeSet<String>, rolled_out: bool, tally: Tally },
    /// Requests while a Pod was killed and afterwards, and its number of restarts.
    Killed { pod: String, mode: String, restarts: i64, ready: bool, during: Tally, after: Tally },
    /// Requests while an HTTPRoute sends `weight` percent of them to these Pods; all requests meanwhile; and those after the route.
    Canary { weight: usize, pods: BTreeSet<String>, split: Tally, during: Tally, after: Tally },
    /// The state after deletion.
    Gone { pods: Vec<String>, answers: bool, known: bool },
}

/// The lines that describe an observation; or the failed check.
pub(super) fn judge(seen: &Seen) -> anyhow::Result<Vec<String>> {
    match seen {
        Seen::Ready { pods, others } => ready(pods, others),
        Seen::Spread { to, pods, tally } => spread(to, pods, tally),
        Seen::Addresses { name, pods, found } => addresses(name, pods, found),
        Seen::Alias { name, wanted, found } => match known(found)? {
            Some(found) if found == wanted => Ok(vec![format!("{name} CNAME {found}")]),
            Some(found) => bail!("{name} is an alias of {found}"),
            None => bail!("{name} is no alias"),
        },
        Seen::Discovery { service, variables, found, search } => discovery(*service, variables.as_ref(), found, search),
        Seen::Affinity { tally } => affinity(tally),
        Seen::Update { old, new, rolled_out, tally } => update(old, new, *rolled_out, tally),
        Seen::Killed { pod, mode, restarts, ready, during, after } => {
            killed(pod, mode, (*restarts, *ready), during, after)
        }
        Seen::Canary { weight, pods, split, during, after } => canary(*weight, pods, split, during, after),
        Seen::Gone { pods, answers, known } => match (&pods[..], answers, known) {
            ([], false, false) => {
                Ok(vec!["No Pod is left, the address does not answer, the name does not resolve.".to_owned()])
            }
            ([], true, _) => bail!("the address of the Service still answers"),
            ([], false, true) => bail!("the name of the Service is still known"),
            (pods, ..) => bail!("still there: {}", pods.join(", ")),
        },
    }
}

/// The result of a query.
fn known<T>(found: &anyhow::Result<T>) -> anyhow::Result<&T> {
    found.as_ref().map_err(|error| anyhow!("{error:#}"))
}

fn list<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

fn ready(pods: &BTreeMap<String, IpAddr>, others: &[String]) -> anyhow::Result<Vec<String>> {
    match pods.len() {
        3 if others.is_empty() => Ok(vec![format!("3 Pods are ready: {}", list(pods.values()))]),
        count if others.is_empty() => bail!("{count} of 3 Pods are ready"),
        count => bail!("{count} of 3 Pods are ready; {}", others.join("; ")),
    }
}

fn spread(to: &str, pods: &BTreeSet<String>, tally: &Tally) -> anyhow::Result<Vec<String>> {
    tally.all_answered()?;
    let answered: BTreeSet<String> = tally.pods.keys().cloned().collect();
    if answered != *pods {
        bail!("answers came from {}, but the Pods are {}", list(answered), list(pods));
    }
    Ok(vec![format!("{} pictures to {to}, by three Pods: {}", tally.asked, tally.shares())])
}

fn addresses(
    name: &str,
    pods: &BTreeSet<IpAddr>,
    found: &anyhow::Result<BTreeSet<IpAddr>>,
) -> anyhow::Result<Vec<String>> {
    let found = known(found)?;
    if found != pods {
        bail!("{name} leads to {}, but the Pods are at {}", list(found), list(pods));
    }
    Ok(vec![format!("{name} leads to {}", list(found))])
}

fn discovery(
    (ip, port): (IpAddr, u16),
    variables: Option<&(String, String)>,
    found: &anyhow::Result<BTreeSet<IpAddr>>,
    search: &str,
) -> anyhow::Result<Vec<String>> {
    let (host, number) = variables.context("the visitor has no IMAGES_SERVICE_HOST and IMAGES_SERVICE_PORT")?;
    if (host.as_str(), number.as_str()) != (ip.to_string().as_str(), port.to_string().as_str()) {
        bail!("its variables lead to {host}:{number}, not to {ip}:{port}");
    }
    let found = known(found)?;
    if *found != BTreeSet::from([ip]) {
        bail!("`images` leads to {}, not to {ip}", list(found));
    }
    Ok(vec![
        format!("By variables: IMAGES_SERVICE_HOST={host} IMAGES_SERVICE_PORT={number}"),
        format!("By name: images leads to {ip}, through `{}`", first_of(search)),
    ])
}

/// A search path, up to its first domain.
fn first_of(search: &str) -> String {
    match search.split(' ').collect::<Vec<_>>()[..] {
        [word, first, _, ..] => format!("{word} {first} …"),
        _ => search.to_owned(),
    }
}

fn affinity(tally: &Tally) -> anyhow::Result<Vec<String>> {
    tally.all_answered()?;
    match tally.pods.iter().collect::<Vec<_>>()[..] {
        [(pod, count)] => Ok(vec![format!("{count} answers, all of them from {pod}")]),
        _ => bail!("answers came from {}", list(tally.pods.keys())),
    }
}

fn update(
    old: &BTreeSet<String>,
    new: &BTreeSet<String>,
    rolled_out: bool,
    tally: &Tally,
) -> anyhow::Result<Vec<String>> {
    if !rolled_out || new.len() != 3 || old.intersection(new).next().is_some() {
        bail!("the update is not through; the Pods are {}", list(new));
    }
    tally.all_answered()?;
    if tally.versions.len() < 2 {
        bail!("answers came only from {}", list(&tally.versions));
    }
    let missing: Vec<&String> = new.iter().filter(|pod| !tally.pods.contains_key(*pod)).collect();
    if !missing.is_empty() {
        bail!("{} never answered", list(missing));
    }
    Ok(vec![format!(
        "{} requests, 0 failed; {} Pods answered, of {}",
        tally.asked,
        tally.pods.len(),
        list(&tally.versions)
    )])
}

fn killed(
    pod: &str,
    mode: &str,
    (restarts, ready): (i64, bool),
    during: &Tally,
    after: &Tally,
) -> anyhow::Result<Vec<String>> {
    if restarts == 0 || !ready {
        bail!("{pod} was begun again {restarts} times and is {}ready", if ready { "" } else { "not " });
    }
    after.all_answered()?;
    if !after.pods.contains_key(pod) {
        bail!("{pod} is ready, and never answered");
    }
    let met = during.failures.len();
    if met > 0 && mode == "userspace" {
        bail!("{met} requests failed, but in the mode userspace another Pod is tried");
    }
    let last = during.failures.iter().map(|(when, _)| when.as_millis()).max();
    let met = match last {
        None => format!("{} requests meanwhile, 0 failed", during.asked),
        Some(last) => format!(
            "{met} of {} requests met the dead process, the last after {last} ms: so long the Service led there",
            during.asked
        ),
    };
    Ok(vec![met, format!("{pod} was begun again and answers; {} more requests, 0 failed", after.asked)])
}

fn canary(
    weight: usize,
    pods: &BTreeSet<String>,
    split: &Tally,
    during: &Tally,
    after: &Tally,
) -> anyhow::Result<Vec<String>> {
    split.all_answered()?;
    let of = |tally: &Tally| -> usize {
        tally.pods.iter().filter(|(pod, _)| pods.contains(*pod)).map(|(_, count)| count).sum()
    };
    let (moved, expected) = (of(split), split.asked * weight / 100);
    if moved.abs_diff(expected) > expected / 2 {
        bail!("{moved} of {} answers came from the canary, not about {expected}", split.asked);
    }
    after.all_answered()?;
    if of(after) > 0 {
        bail!("{} of {} answers came from the canary after the route was deleted", of(after), after.asked);
    }
    during.all_answered()?;
    Ok(vec![
        format!(
            "{} requests at {weight}%: {} to the Service's own Pods, {moved} to the canary",
            split.asked,
            split.asked - moved
        ),
        format!("Without the route none any more; {} requests meanwhile, 0 failed", during.asked),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(pods: &[(&str, usize)], failures: usize) -> Tally {
        let pods: BTreeMap<String, usize> = pods.iter().map(|(pod, count)| ((*pod).to_owned(), *count)).collect();
        let failures = vec![(Duration::from_millis(7), "connection refused".to_owned()); failures];
        let versions = ["v1", "v2"].map(str::to_owned).into();
        Tally { asked: pods.values().sum::<usize>() + failures.len(), failures, pods, versions }
    }

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    fn ips(all: &[[u8; 4]]) -> BTreeSet<IpAddr> {
        all.iter().map(|ip| IpAddr::from(*ip)).collect()
    }

    #[test]
    fn requests_must_all_be_answered_and_by_all() {
        let seen = |tally| Seen::Spread { to: "10.96.0.7:80".to_owned(), pods: names(&["a", "b", "c"]), tally };
        let told = judge(&seen(tally(&[("a", 1), ("b", 2), ("c", 3)], 0))).expect("good");
        assert!(told[0].contains("6 pictures") && told[0].contains("1 + 2 + 3"), "{told:?}");
        assert!(judge(&seen(tally(&[("a", 1), ("b", 2)], 0))).is_err());
        let failed = judge(&seen(tally(&[("a", 1), ("b", 2), ("c", 3)], 1))).expect_err("one failed").to_string();
        assert!(failed.contains("1 of 7") && failed.contains("refused"), "{failed}");
        assert!(judge(&seen(Tally::default())).is_err());
    }

    #[test]
    fn one_client_has_one_pod() {
        assert!(judge(&Seen::Affinity { tally: tally(&[("a", 9)], 0) }).is_ok());
        assert!(judge(&Seen::Affinity { tally: tally(&[("a", 8), ("b", 1)], 0) }).is_err());
        assert!(judge(&Seen::Affinity { tally: Tally::default() }).is_err());
    }

    #[test]
    fn an_update_costs_no_request_and_replaces_all() {
        let seen = |new: &[&str], rolled_out, failures| Seen::Update {
            old: names(&["a", "b", "c"]),
            new: names(new),
            rolled_out,
            tally: tally(&[("a", 1), ("d", 1), ("e", 1), ("f", 1)], failures),
        };
        assert!(judge(&seen(&["d", "e", "f"], true, 0)).is_ok());
        assert!(judge(&seen(&["d", "e", "f"], true, 1)).is_err());
        assert!(judge(&seen(&["d", "e", "f"], false, 0)).is_err());
        assert!(judge(&seen(&["a", "d", "e"], true, 0)).is_err());
        assert!(judge(&seen(&["d", "e", "g"], true, 0)).is_err(), "one of them never answered");
    }

    #[test]
    fn a_killed_backend_comes_back_and_only_then_all_is_well() {
        let seen = |mode: &str, restarts, during, after| Seen::Killed {
            pod: "a".to_owned(),
            mode: mode.to_owned(),
            restarts,
            ready: true,
            during: tally(&[("a", 1)], during),
            after: tally(&[("a", 1)], after),
        };
        assert!(judge(&seen("nftables", 1, 0, 0)).is_ok());
        let told = judge(&seen("nftables", 1, 2, 0)).expect("rules lead to a dead process for a moment");
        assert!(told[0].contains("2 of 3") && told[0].contains("7 ms"), "{told:?}");
        assert!(judge(&seen("userspace", 1, 2, 0)).is_err(), "this mode tries another");
        assert!(judge(&seen("nftables", 0, 0, 0)).is_err());
        assert!(judge(&seen("nftables", 1, 0, 1)).is_err());
    }

    #[test]
    fn a_canary_gets_its_share_and_no_more_after_the_route() {
        let seen = |moved: usize, failed: usize, later: &[(&str, usize)]| Seen::Canary {
            weight: 20,
            pods: names(&["next"]),
            split: tally(&[("a", 60 - moved), ("next", moved)], 0),
            during: tally(&[("a", 100)], failed),
            after: tally(later, 0),
        };
        let told = judge(&seen(12, 0, &[("a", 60)])).expect("a fifth");
        assert!(told[0].contains("60 requests at 20%: 48 ") && told[0].contains("12 to the canary"), "{told:?}");
        assert!(judge(&seen(3, 0, &[("a", 60)])).is_err(), "too few");
        assert!(judge(&seen(30, 0, &[("a", 60)])).is_err(), "too many");
        assert!(judge(&seen(12, 1, &[("a", 60)])).is_err(), "a request failed");
        assert!(judge(&seen(12, 0, &[("a", 59), ("next", 1)])).is_err(), "the route is still in force");
    }

    #[test]
    fn names_and_variables_lead_where_they_should() {
        let (one, two) = (ips(&[[10, 0, 0, 1]]), ips(&[[10, 0, 0, 1], [10, 0, 0, 2]]));
        let headless = |found| Seen::Addresses { name: "x".to_owned(), pods: two.clone(), found };
        assert!(judge(&headless(Ok(two.clone()))).is_ok());
        assert!(judge(&headless(Ok(one.clone()))).is_err() && judge(&headless(Err(anyhow!("no")))).is_err());
        let alias = |found| Seen::Alias { name: "x".to_owned(), wanted: "y.".to_owned(), found: Ok(found) };
        assert!(judge(&alias(Some("y.".to_owned()))).is_ok());
        assert!(judge(&alias(Some("z.".to_owned()))).is_err() && judge(&alias(None)).is_err());
        let discovery = |host: &str, found| Seen::Discovery {
            service: ([10, 0, 0, 1].into(), 80),
            variables: Some((host.to_owned(), "80".to_owned())),
            found: Ok(found),
            search: "search a.b b c".to_owned(),
        };
        let told = judge(&discovery("10.0.0.1", one.clone())).expect("good");
        assert!(told[1].ends_with("`search a.b …`"), "{told:?}");
        assert!(judge(&discovery("10.0.0.2", one)).is_err() && judge(&discovery("10.0.0.1", two)).is_err());
    }

    #[test]
    fn nothing_may_be_left() {
        let gone =
            |pods: &[&str], answers, known| Seen::Gone { pods: names(pods).into_iter().collect(), answers, known };
        assert!(judge(&gone(&[], false, false)).is_ok());
        for left in [gone(&["a"], false, false), gone(&[], true, false), gone(&[], false, true)] {
            assert!(judge(&left).is_err(), "{left:?}");
        }
        let ready = |count: u8, others: &[&str]| Seen::Ready {
            pods: (0..count).map(|n| (n.to_string(), IpAddr::from([10, 0, 0, n]))).collect(),
            others: others.iter().map(|other| (*other).to_owned()).collect(),
        };
        assert!(judge(&ready(3, &[])).is_ok());
        assert!(judge(&ready(2, &[])).is_err() && judge(&ready(3, &["x"])).is_err());
    }
}
