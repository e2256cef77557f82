//! Limits of orders, with a clock of the test.

use super::*;

const RETRY: Duration = Duration::from_secs(120);
const START: i64 = 1_800_000_000;

fn certificate(namespace: &str, host: &str) -> Certificate {
    Certificate::new(namespace, &BTreeSet::from([host.into()]))
}

#[test]
fn pauses_grow_also_when_the_process_is_killed() {
    let (mut ledger, shop, mut now) = (Ledger::default(), certificate("shop", "a.example"), START);
    let mut attempts = Vec::new();
    while now < START + 3 * DAY {
        assert_eq!(ledger.earliest(&shop, false, now), now, "due at {now}");
        ledger.begin(&shop, now, RETRY);
        attempts.push(now);
        // No result: it was killed. A restart reads what was written.
        let text = serde_json::to_string(&ledger).unwrap();
        ledger = serde_json::from_str(&text).unwrap();
        now = ledger.earliest(&shop, false, now);
    }
    let pauses: Vec<i64> = attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses[..6], [120, 360, 1080, 3240, 9720, 29160]);
    assert_eq!(pauses.last(), Some(&DAY));
    let in_an_hour = attempts.iter().filter(|at| **at < START + HOUR).count();
    assert!(in_an_hour < 5, "a CA permits five failed validations of a host in an hour, here {in_an_hour}");
    ledger.succeed(&shop, now, DAY);
    assert_eq!(ledger.earliest(&shop, false, now), now, "a success ends the pauses");
}

#[test]
fn the_same_hosts_get_few_certificates_in_a_week_but_renewals() {
    let (mut ledger, shop) = (Ledger::default(), certificate("shop", "a.example"));
    for at in 0..4 {
        let now = START + at * DAY;
        assert!(ledger.earliest(&shop, false, now) <= now);
        ledger.begin(&shop, now, RETRY);
        ledger.succeed(&shop, now, DAY);
    }
    let now = START + 4 * DAY;
    assert_eq!(ledger.earliest(&shop, false, now), START + WEEK, "when the first is a week old");
    assert_eq!(ledger.earliest(&shop, true, now), now, "the CA decided how long a certificate is valid");
    assert_eq!(ledger.earliest(&certificate("shop", "b.example"), false, now), now);
    assert_eq!(ledger.earliest(&certificate("blog", "a.example"), false, now), now, "of another tenant");
}

#[test]
fn no_namespace_uses_up_what_all_share() {
    let mut ledger = Ledger::default();
    for index in 0..MOST_OF_NAMESPACE {
        ledger.begin(&certificate("loud", &format!("{index}.example")), START + 1, RETRY);
    }
    let now = START + 10;
    assert_eq!(ledger.earliest(&certificate("loud", "new.example"), false, now), START + 1 + HOUR);
    assert_eq!(ledger.earliest(&certificate("shop", "new.example"), false, now), now);
    for index in 0..MOST_OF_ALL - MOST_OF_NAMESPACE {
        ledger.begin(&certificate(&format!("n{index}"), "x.example"), START + 2, RETRY);
    }
    assert_eq!(ledger.earliest(&certificate("shop", "new.example"), true, now), START + 1 + HOUR);
    assert_eq!(ledger.earliest(&certificate("shop", "new.example"), true, now + HOUR), now + HOUR);
}

/// As many orders as are permitted in this time, each for these hosts and new ones, and each without success.
fn attack(ledger: &mut Ledger, seconds: i64, hosts: impl Fn(i64) -> BTreeSet<Box<str>>) -> usize {
    let mut attempts = 0;
    for now in (START..START + seconds).step_by(60) {
        let certificate = Certificate::new("loud", &hosts(now));
        if ledger.earliest(&certificate, false, now) <= now {
            ledger.begin(&certificate, now, RETRY);
            ledger.fail(&certificate, now, RETRY, "not yours", false);
            attempts += 1;
        }
    }
    attempts
}

#[test]
fn a_tenant_does_not_use_up_the_failures_of_a_host_by_other_hosts_beside_it() {
    let mut ledger = Ledger::default();
    let hosts = |now| BTreeSet::from(["victim.example".into(), format!("{now}.example").into()]);
    let attempts = attack(&mut ledger, DAY, hosts);
    assert!(attempts <= 8, "{attempts} failures in a day; a CA permits five in an hour");
    let now = START + DAY;
    let (victim, loud) = (certificate("shop", "victim.example"), certificate("loud", "victim.example"));
    assert_eq!(ledger.earliest(&victim, false, now), now, "the failures of another tenant");
    assert!(ledger.earliest(&loud, false, now) > now);
    ledger.begin(&loud, now, RETRY);
    ledger.succeed(&loud, now, 90 * DAY);
    assert_eq!(ledger.earliest(&loud, false, now), now);
}

#[test]
fn a_tenant_does_not_displace_failures_by_those_of_invented_hosts() {
    let (mut ledger, slow) = (Ledger::default(), certificate("shop", "slow.example"));
    let own = certificate("loud", "victim.example");
    for of in [&slow, &own] {
        ledger.begin(of, START - 1, RETRY);
        ledger.fail(of, START - 1, RETRY, "no such host", true);
    }
    attack(&mut ledger, 2 * DAY, |now| (0..100).map(|index| format!("{index}.{now}.example").into()).collect());
    assert!(ledger.failures.len() <= MOST_FAILURES_OF_NAMESPACE + 1, "{}", ledger.failures.len());
    assert!([slow, own].iter().all(|of| ledger.failures.contains_key(&of.hosts[0])));
    assert_eq!(ledger.earliest(&certificate("blog", "new.example"), false, START + 2 * DAY), START + 2 * DAY);
}

#[test]
fn a_certificate_that_is_due_at_once_is_not_renewed_over_and_over() {
    let (mut ledger, shop) = (Ledger::default(), certificate("shop", "a.example"));
    ledger.begin(&shop, START, RETRY);
    ledger.succeed(&shop, START + 5, 6 * DAY);
    assert_eq!(ledger.earliest(&shop, true, START + 10), START + 5 + 2 * DAY);
    assert_eq!(ledger.earliest(&shop, true, START + 4 * DAY), START + 4 * DAY);
}

#[test]
fn two_leaders_do_not_order_for_one_host_at_once() {
    let mut ledger = Ledger::default();
    let shop = certificate("shop", "a.example");
    let other = Certificate::new("blog", &BTreeSet::from(["a.example".into(), "b.example".into()]));
    ledger.begin(&shop, START, RETRY);
    assert!(ledger.is_contended(&other, START + 1));
    assert!(!ledger.is_contended(&shop, START + 1) && !ledger.is_contended(&certificate("blog", "b.example"), START));
    assert!(!ledger.is_contended(&other, START + LONGEST_ATTEMPT + 1), "its leader was killed");
    ledger.fail(&shop, START + 9, RETRY, "no such host", false);
    assert!(!ledger.is_contended(&other, START + 10));
}

#[test]
fn a_rate_limit_of_the_ca_is_respected_and_clocks_may_go_back() {
    let (mut ledger, shop) = (Ledger::default(), certificate("shop", "a.example"));
    ledger.begin(&shop, START, RETRY);
    ledger.fail(&shop, START + 5, RETRY, &"ä".repeat(500), true);
    assert_eq!(ledger.earliest(&shop, false, START + 5), START + 5 + HOUR);
    assert!(ledger.records[&shop.key].problem.as_ref().is_some_and(|text| text.len() <= LONGEST_PROBLEM));
    let earlier = START - 400 * DAY;
    assert_eq!(ledger.earliest(&shop, false, earlier), earlier, "failures in the future do not count");
    for index in 0..MOST_OF_NAMESPACE {
        ledger.begin(&certificate("shop", &format!("{index}.example")), START, RETRY);
    }
    let other = certificate("shop", "other.example");
    assert_eq!(ledger.earliest(&other, false, earlier), earlier, "orders in the future do not count");
}

#[test]
fn the_number_of_records_is_bounded() {
    let mut ledger = Ledger::default();
    for index in 0..i64::try_from(MOST_RECORDS).unwrap() + 10 {
        ledger.begin(&certificate("shop", &format!("{index}.example")), START + index, RETRY);
    }
    assert!(ledger.records.len() <= MOST_RECORDS && !ledger.records.contains_key("shop/0.example"));
    assert!(ledger.failures.len() <= MOST_FAILURES);
    let long = (0..99).map(|index| format!("{index}.{}", "x".repeat(60)).into()).collect();
    assert!(Certificate::new("shop", &long).key.len() < LONGEST_HOSTS + 20);
}

#[test]
fn the_ledger_fits_into_a_config_map_whatever_tenants_do() {
    let mut ledger = Ledger::default();
    for index in 0..MOST_RECORDS + 10 {
        let now = START + 60 * i64::try_from(index).unwrap();
        let label = "x".repeat(60);
        let host = |number: usize| format!("{number}.{index}.{label}.{label}.{label}.example").into();
        let certificate = Certificate::new(&format!("{index:063}"), &(0..4).map(host).collect());
        ledger.begin(&certificate, now, RETRY);
        (0..2 * MOST_OF_HOSTS).for_each(|_| ledger.succeed(&certificate, now, DAY));
        ledger.begin(&certificate, now, RETRY);
        ledger.fail(&certificate, now, RETRY, &"\"".repeat(1000), false);
    }
    assert!(ledger.records.len() <= MOST_RECORDS && ledger.failures.len() <= MOST_FAILURES);
    let size = serde_json::to_string(&ledger).unwrap().len();
    assert!(size < 1 << 20, "{size} bytes");
}
