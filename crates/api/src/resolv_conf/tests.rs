use super::*;

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn conf(nameservers: &[&str], searches: &[&str], options: &[&str]) -> ResolvConf {
    ResolvConf { nameservers: texts(nameservers), searches: texts(searches), options: texts(options) }
}

fn cluster() -> Cluster {
    Cluster { domain: "cluster.local".into(), nameservers: texts(&["10.96.0.10"]) }
}

fn host() -> Host {
    Host::File(conf(&["192.0.2.1"], &["corp.example", "cluster.local"], &["timeout:1"]))
}

fn pod(policy: Policy) -> Pod {
    Pod { namespace: "shop".into(), policy, ..Pod::default() }
}

#[test]
fn files_are_read_as_the_kubelet_reads_them() {
    let text = "# remark\n; other\nnameserver 192.0.2.1 ignored\nsearch first.example\n\
                search foo. bar .\noptions ndots:2 edns0\noptions ndots:3 rotate\ndomain x\n";
    assert_eq!(ResolvConf::parse(text), Ok(conf(&["192.0.2.1"], &["foo", "bar"], &["ndots:3", "edns0", "rotate"])));
    assert_eq!(ResolvConf::parse("search a\n nameserver \n"), Err(Malformed { line: 2 }));
    assert_eq!(ResolvConf::parse(""), Ok(ResolvConf::default()));
}

#[test]
fn s34_each_policy_gives_its_file() {
    let in_cluster = conf(
        &["10.96.0.10"],
        &["shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example"],
        &["ndots:5"],
    );
    let Host::File(of_host) = host() else { unreachable!() };
    for (policy, host_network, want) in [
        (Policy::ClusterFirst, false, &in_cluster),
        (Policy::ClusterFirst, true, &of_host),
        (Policy::ClusterFirstWithHostNet, true, &in_cluster),
        (Policy::ClusterFirstWithHostNet, false, &in_cluster),
        (Policy::Default, false, &of_host),
        (Policy::None, false, &ResolvConf::default()),
    ] {
        let pod = Pod { host_network, ..pod(policy) };
        assert_eq!(resolv_conf(&pod, &cluster(), &host()), (want.clone(), vec![]), "{policy:?} {host_network}");
    }
    assert_eq!(Policy::read(""), Policy::ClusterFirst);
    assert_eq!(Policy::read("Whatever"), Policy::ClusterFirst);
}

#[test]
fn the_pods_own_settings_come_last_and_its_options_win() {
    let mut pod = pod(Policy::ClusterFirst);
    pod.config = conf(&["192.0.2.7", "10.96.0.10"], &["extra.example", "svc.cluster.local"], &["ndots:2", "edns0"]);
    let (got, warnings) = resolv_conf(&pod, &cluster(), &host());
    assert_eq!(
        got.to_string(),
        "search shop.svc.cluster.local svc.cluster.local cluster.local corp.example extra.example\n\
         nameserver 10.96.0.10\nnameserver 192.0.2.7\noptions ndots:2 edns0\n"
    );
    assert_eq!((got.ndots(), warnings), (2, vec![]));
    pod.policy = Policy::None;
    assert_eq!(resolv_conf(&pod, &cluster(), &host()).0, pod.config);
}

#[test]
fn a_cluster_without_dns_or_domain() {
    let none = Cluster { nameservers: vec![], ..cluster() };
    let (got, warnings) = resolv_conf(&pod(Policy::ClusterFirst), &none, &host());
    assert_eq!(got.nameservers, ["192.0.2.1"]);
    assert!(matches!(&warnings[..], [Warning::NoClusterDns(text)] if text.contains("\"ClusterFirst\"")));

    let nameless = Cluster { domain: String::new(), ..cluster() };
    let (got, _) = resolv_conf(&pod(Policy::ClusterFirst), &nameless, &host());
    assert_eq!(got.searches, ["corp.example", "cluster.local"]);
}

#[test]
fn a_host_without_a_file_asks_itself() {
    for (families, want) in [
        (vec![], vec!["127.0.0.1"]),
        (vec![Family::V6], vec!["::1"]),
        (vec![Family::V6, Family::V4], vec!["::1", "127.0.0.1"]),
    ] {
        let (got, _) = resolv_conf(&pod(Policy::Default), &cluster(), &Host::Nothing(families));
        assert_eq!(got, conf(&want, &["."], &[]));
    }
}

#[test]
fn limits_cut_from_the_end_and_are_said() {
    let mut pod = pod(Policy::None);
    pod.config = conf(&["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"], &[], &[]);
    let (got, warnings) = resolv_conf(&pod, &cluster(), &host());
    assert_eq!(got.nameservers.len(), 3);
    assert!(matches!(&warnings[..], [Warning::Cut(text)] if text.ends_with("192.0.2.1 192.0.2.2 192.0.2.3")));

    pod.config =
        ResolvConf { searches: (0..33).map(|n| format!("d{n}.example")).collect(), ..conf(&["::1"], &[], &[]) };
    let (got, warnings) = resolv_conf(&pod, &cluster(), &host());
    assert_eq!((got.searches.len(), got.searches[31].as_str(), warnings.len()), (32, "d31.example", 1));

    pod.config.searches = vec!["a".repeat(254), "b".repeat(253), "c".into()];
    let (got, warnings) = resolv_conf(&pod, &cluster(), &host());
    assert_eq!((got.searches.len(), warnings.len()), (2, 1));

    // Eight domains of 253 and one of 16 characters are 2040 with the spaces: just allowed, one character more is not.
    let mut long: Vec<String> = (0..8).map(|n| n.to_string().repeat(253)).collect();
    long.push("x".repeat(16));
    pod.config.searches.clone_from(&long);
    assert_eq!(joined_length(&long), 2048);
    assert_eq!(resolv_conf(&pod, &cluster(), &host()), (pod.config.clone(), vec![]));
    pod.config.searches[8].push('x');
    let (got, warnings) = resolv_conf(&pod, &cluster(), &host());
    assert_eq!((got.searches.len(), warnings.len()), (8, 1));
}
