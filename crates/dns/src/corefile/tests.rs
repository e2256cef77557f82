use std::time::Duration;

use super::*;
use crate::config::{Action, AnswerRewrite, Block, Change, Fallthrough, ForwardTarget, Name, NameMatch, Pods, Policy};

const KUBEADM: &str = "\
.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
";

fn read(text: &str) -> Config {
    parse("Corefile", text, &EmptyEnvironment).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Block with these directives.
fn block(directives: &str) -> Block {
    read(&format!(". {{\n{directives}\n}}")).blocks.remove(0)
}

fn refusal(text: &str) -> String {
    match parse("Corefile", text, &EmptyEnvironment) {
        Err(error) => error.to_string(),
        Ok(config) => panic!("understood: {text}\n{config:?}"),
    }
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

fn names(texts: &[&str]) -> Vec<Name> {
    texts.iter().map(|text| name(text)).collect()
}

#[test]
fn the_default_of_kubeadm() {
    let config = read(KUBEADM);
    let [block] = &config.blocks[..] else { panic!("{config:?}") };
    assert_eq!((block.keys.len(), &block.keys[0].zone, block.keys[0].port), (1, &Name::root(), 53));
    let kubernetes = block.kubernetes.as_ref().expect("kubernetes");
    let reverse = names(&["in-addr.arpa", "ip6.arpa"]);
    assert_eq!(kubernetes.zones, [names(&["cluster.local"]), reverse.clone()].concat());
    assert_eq!((kubernetes.pods, kubernetes.ttl), (Pods::Insecure, 30));
    assert_eq!(kubernetes.fallthrough, Fallthrough::Zones(reverse));
    assert_eq!(block.forwards[0].to, [ForwardTarget::File("/etc/resolv.conf".into())]);
    assert_eq!((block.forwards[0].max_concurrent, block.forwards[0].policy), (1000, Policy::Random));
    let cache = block.cache.as_ref().expect("cache");
    assert_eq!((cache.success.max_ttl, cache.denial.max_ttl), (30, 30));
    assert!(cache.success.disabled.covers(name("web.default.svc.cluster.local").as_wire()));
    assert!(!cache.denial.disabled.covers(name("example.org").as_wire()));
    let health = block.health.expect("health");
    assert_eq!((health.address.port(), health.lameduck), (8080, Duration::from_secs(5)));
    assert_eq!(block.ready.map(|address| address.port()), Some(8181));
    assert_eq!(block.prometheus.map(|address| address.to_string()).as_deref(), Some("[::]:9153"));
    assert!(block.detect_loop && block.loadbalance && block.errors && block.reload.is_some());
}

#[test]
fn every_recorded_profile_can_be_expressed() {
    for (zones, options, first) in [
        ("cluster.local in-addr.arpa ip6.arpa", "pods verified\nttl 30", "cluster.local."),
        ("cluster.local 10.96.0.0/16 172.17.0.0/22 fd00:10:96::/112", "pods insecure\nttl 30", "cluster.local."),
        ("cluster.local in-addr.arpa ip6.arpa", "namespaces testns kube-system\npods insecure", "cluster.local."),
        ("cluster.local", "namespace_labels golden=yes\nttl 30", "cluster.local."),
        ("cluster.local", "ignore empty_service\nttl 30", "cluster.local."),
        ("cluster.local", "endpoint_pod_names\nttl 30", "cluster.local."),
        ("cluster.local", "noendpoints\nttl 30", "cluster.local."),
        ("k8s.example sub.k8s.example in-addr.arpa", "pods disabled\nttl 7", "k8s.example."),
        ("cluster.local", "pods insecure\nfallthrough svc.cluster.local\nttl 30", "cluster.local."),
    ] {
        let block = block(&format!("kubernetes {zones} {{\n{options}\n}}\nforward . 127.0.0.1:5399"));
        let kubernetes = block.kubernetes.expect("kubernetes");
        assert_eq!(kubernetes.zones[0].to_string(), first);
        assert!(!zones.contains('/') || kubernetes.zones.len() == 7, "{:?}", kubernetes.zones);
        assert_eq!(kubernetes.ignore_empty_service, options.contains("ignore"));
        assert_eq!(kubernetes.endpoint_pod_names, options.contains("endpoint_pod_names"));
        assert_eq!(kubernetes.noendpoints, options.contains("noendpoints"));
        assert_eq!(kubernetes.namespaces.len(), if options.contains("namespaces") { 2 } else { 0 });
        assert_eq!(kubernetes.namespace_labels.is_some(), options.contains("namespace_labels"));
    }
}

#[test]
fn stub_domains_are_blocks_of_their_own() {
    let config = read(
        "acme.local:53, b.example {\n forward . 10.0.0.1 tls://[fd00::1]:8853%dns.example\n}\n.:1053 { \n errors \n}",
    );
    assert_eq!(config.blocks.len(), 2);
    assert_eq!(
        config.blocks[0].keys.iter().map(|key| key.zone.clone()).collect::<Vec<_>>(),
        names(&["acme.local", "b.example"])
    );
    assert_eq!(config.blocks[1].keys[0].port, 1053);
    let [ForwardTarget::Server(plain), ForwardTarget::Server(tls)] = &config.blocks[0].forwards[0].to[..] else {
        panic!()
    };
    assert_eq!((plain.address.to_string().as_str(), plain.tls), ("10.0.0.1:53", false));
    assert_eq!((tls.address.to_string().as_str(), tls.server_name.as_deref()), ("[fd00::1]:8853", Some("dns.example")));
    assert!(tls.tls);
}

#[test]
fn forward_and_cache_options() {
    let block = block(
        "forward . tls://192.0.2.1 {\n except corp.example 10.0.0.0/8\n policy sequential\n health_check 1s no_rec domain up.example\n\
         expire 20s\n force_tcp\n max_fails 0\n tls ca.pem\n tls_servername dns.example\n}\n\
         cache 60 {\n success 100 300 10\n denial 50\n prefetch 3 30s 20%\n serve_stale 2h verify\n servfail 0s\n keepttl\n}",
    );
    let forward = &block.forwards[0];
    assert_eq!(forward.except, names(&["corp.example", "10.in-addr.arpa"]));
    assert_eq!(
        (forward.policy, forward.expire, forward.force_tcp),
        (Policy::Sequential, Duration::from_secs(20), true)
    );
    assert_eq!((&forward.health_domain, forward.health_recursion), (&name("up.example"), false));
    assert_eq!(forward.tls.authority.as_deref(), Some("ca.pem".as_ref()));
    assert_eq!(forward.tls.server_name.as_deref(), Some("dns.example"));
    let cache = block.cache.expect("cache");
    assert_eq!((cache.success.capacity, cache.success.max_ttl, cache.success.min_ttl), (100, 300, 10));
    assert_eq!((cache.denial.capacity, cache.denial.max_ttl), (50, 60));
    assert_eq!((cache.serve_stale, cache.stale_verify, cache.keep_ttl), (Some(Duration::from_secs(7200)), true, true));
    assert_eq!(cache.prefetch.map(|prefetch| (prefetch.hits, prefetch.percent)), Some((3, 20)));
}

#[test]
fn acl_hosts_and_template_are_parsed() {
    let block = block(
        "hosts {\n 192.0.2.7 a.example b.example # remark\n fd00::7 a.example\n ttl 60\n no_reverse\n fallthrough\n}\n\
         acl example {\n allow net 10.0.0.0/8\n block type A AAAA net * \n drop\n}\n\
         template IN ANY old.example {\n match \"^x[.].*\"\n rcode nxdomain\n ederror 15 \"go away\"\n fallthrough\n}\n\
         autopath @kubernetes\nkubernetes cluster.local\nbufsize 1400\nbind 127.0.0.1 eth0 {\n except 127.0.0.2\n}\n\
         log . {\n class denial error\n}\nratelimit 50 100 {\n except 10.0.0.0/8 192.0.2.1\n}",
    );
    let hosts = block.hosts.expect("hosts");
    assert_eq!((hosts.entries.len(), hosts.ttl, hosts.reverse, hosts.file), (2, 60, false, None));
    assert_eq!(hosts.entries[0].1, names(&["a.example", "b.example"]));
    let acl: Vec<_> = block.acl.iter().map(|rule| (rule.action, rule.qtypes.as_slice(), rule.networks.len())).collect();
    assert_eq!(acl, [(Action::Allow, &[][..], 1), (Action::Block, &[1, 28][..], 0), (Action::Drop, &[][..], 0)]);
    let template = &block.templates[0];
    assert_eq!((template.class, template.qtype, template.rcode), (Some(1), None, 3));
    assert_eq!(template.extended_error, Some((15, "go away".into())));
    assert_eq!((block.bufsize, block.bind.len(), block.bind_except.len()), (Some(1400), 2, 1));
    assert!(block.autopath.is_some_and(|autopath| autopath.file.is_none()));
    assert_eq!(block.log[0].classes.len(), 2);
    let limit = block.rate_limit.map(|limit| (limit.per_second, limit.burst, limit.exempt.len()));
    assert_eq!(limit, Some((50, 100, 2)));
}

#[test]
fn rewrites_of_names_and_ttls() {
    let block = block(
        "rewrite name foo.example foo.default.svc.cluster.local\n\
         rewrite continue name suffix .old.example .new.example answer auto\n\
         rewrite stop {\n name regex (.*)[.]x[.]example[.] {1}.default.svc.cluster.local\n answer name (.*)[.]default[.].* {1}.x.example\n}\n\
         rewrite ttl suffix example 30-300\nrewrite ttl a.example 5",
    );
    let kinds: Vec<_> = block.rewrites.iter().map(|rule| (rule.continues, &rule.change)).collect();
    assert!(matches!(
        kinds[0],
        (false, Change::Name { matching: NameMatch::Exact(_), answer: AnswerRewrite::Question, .. })
    ));
    let (true, Change::Name { matching: NameMatch::Suffix(from), to, answer: AnswerRewrite::Auto }) = kinds[1] else {
        panic!()
    };
    assert_eq!((from.as_str(), to.as_str()), (".old.example.", ".new.example."));
    let (false, Change::Name { answer: AnswerRewrite::Rules(rules), .. }) = kinds[2] else { panic!("{:?}", kinds[2]) };
    assert_eq!(rules.len(), 1);
    assert!(matches!(kinds[3], (_, Change::Ttl { min: 30, max: 300, .. })));
    assert!(matches!(kinds[4], (_, Change::Ttl { min: 5, max: 5, matching: NameMatch::Exact(_) })));
}

#[test]
fn snippets_imports_and_variables() {
    let files = HashMap::from([
        ("PORT".to_owned(), "5353".to_owned()),
        ("more.conf".to_owned(), "stub.example {\n  import common\n}\n".to_owned()),
        ("circle".to_owned(), "import circle\n".to_owned()),
    ]);
    let text = "(common) {\n  errors\n  forward . 192.0.2.1\n}\n.:{$PORT} {\n  import common\n}\nimport more.conf\n";
    let config = parse("Corefile", text, &files).expect("understood");
    assert_eq!(config.blocks.len(), 2);
    assert_eq!(config.blocks[0].keys[0].port, 5353);
    assert!(config.blocks.iter().all(|block| block.errors && block.forwards.len() == 1));

    let error = |text| parse("Corefile", text, &files).expect_err("error").to_string();
    assert_eq!(error(".:{$NONE} {\n}"), "Corefile:1: the variable NONE is not set; set it, or write its value");
    assert!(error("import circle").contains("circle:1: import cycle"));
    assert!(error(". {\n import gone\n}").starts_with("Corefile:2: cannot import gone: no such file"));
}

#[test]
fn a_single_block_needs_no_braces() {
    let config = read("example.org\n\nerrors\nforward . 192.0.2.1 {\n force_tcp\n}\n");
    assert_eq!(config.blocks[0].keys[0].zone, name("example.org"));
    assert!(config.blocks[0].errors && config.blocks[0].forwards[0].force_tcp);
}

#[test]
fn unsupported_directives_are_rejected_with_name_and_line() {
    for (text, want) in [
        (
            ". {\n errors\n etcd example.org\n}",
            "Corefile:3: the directive `etcd` is not supported; serve the zone with another server and `forward` its names there",
        ),
        (". {\n forwrad . 192.0.2.1\n}", "Corefile:2: unknown directive `forwrad`; did you mean `forward`?"),
        (
            ". {\n whatever\n}",
            "Corefile:2: unknown directive `whatever`; remove it; supported are acl, autopath, bind, bufsize, cache, errors, forward, health, hosts, kubernetes, loadbalance, log, loop, prometheus, ratelimit, ready, reload, rewrite, template and import",
        ),
        (
            ". {\n kubernetes cluster.local {\n  pods sure\n }\n}",
            "Corefile:3: `pods sure` is not a mode; write disabled, insecure or verified",
        ),
        (
            ". {\n kubernetes cluster.local {\n  ttl 3601\n }\n}",
            "Corefile:3: `3601` is not a number from 0 to 3600; write such a number",
        ),
        (
            ". {\n kubernetes cluster.local {\n  kubeconfig x\n }\n}",
            "Corefile:3: the option `kubeconfig` of `kubernetes` is not supported; remove it: the connection is set with --kubeconfig",
        ),
        (
            ". {\n kubernetes in-addr.arpa\n}",
            "Corefile:2: `kubernetes` has only reverse zones; add the cluster's domain, as in `kubernetes cluster.local in-addr.arpa ip6.arpa`",
        ),
        (
            ". {\n kubernetes a {\n namespaces x\n namespace_labels a=b\n }\n}",
            "Corefile:2: `namespaces` and `namespace_labels` exclude each other; keep one of them",
        ),
        (
            ". {\n kubernetes a {\n labels a==,\n }\n}",
            "Corefile:3: `a==,` is not a label selector; write one as in app=web,tier in (a,b)",
        ),
        (". {\n forward .\n}", "Corefile:2: `forward` to 0 upstreams; name 1 to 15 after the zone"),
        (
            ". {\n forward . https://1.1.1.1\n}",
            "Corefile:2: `https://1.1.1.1`: https is not supported; write dns:// or tls://",
        ),
        (
            ". {\n forward . nowhere\n}",
            "Corefile:2: `nowhere` is not an upstream address; write one as in 192.0.2.1, [fd00::1]:53, tls://192.0.2.1 or /etc/resolv.conf",
        ),
        (
            ". {\n forward . 192.0.2.1 {\n  next SERVFAIL\n }\n}",
            "Corefile:3: `forward` does not take the option `next`; remove it; supported are except, expire, failfast_all_unhealthy_upstreams, force_tcp, health_check, max_concurrent, max_fails, policy, prefer_udp, read_timeout, tls, tls_servername",
        ),
        (". {\n cache 30\n cache\n}", "Corefile:3: duplicate directive `cache`; keep one of them"),
        (
            ". {\n template IN A {\n  answer \"x\"\n }\n}",
            "Corefile:3: `template` does not take the option `answer`; remove it; supported are ederror, fallthrough, match, rcode",
        ),
        (
            ". {\n rewrite edns0 local set 1 2\n}",
            "Corefile:2: `rewrite edns0` is not supported; remove it; supported are name and ttl",
        ),
        (". {\n errors now\n}", "Corefile:2: `errors` does not take `now`; remove it"),
        (
            ". {\n autopath @kubernetes\n}",
            "Corefile:1: `autopath @kubernetes` without `kubernetes`; add `kubernetes` to the block, or name a resolv.conf",
        ),
        ("tls://. {\n}", "Corefile:1: `tls://.`: tls is not served; only plain DNS is: write dns:// or nothing"),
        (". {\n errors\n", "Corefile:1: the block is not closed; close it with }"),
        (
            "a {\n kubernetes a\n}\nb {\n kubernetes b\n}",
            "Corefile:4: `kubernetes` is in two blocks; name all zones of the cluster in one block",
        ),
        (
            ". {\n ratelimit 0\n}",
            "Corefile:2: a rate of 0 refuses every query; write a larger number, or `acl` with `block`",
        ),
        (". {\n}\n. {\n}", "Corefile:3: duplicate key .:53; put both into one block"),
        (
            ". {\n bind 127.0.0.1 127.0.0.2\n}\n. {\n bind 127.0.0.2\n}",
            "Corefile:4: duplicate key .:53; put both into one block",
        ),
        ("a..b {\n}", "Corefile:1: `a..b` is not a domain name: empty label; write one as in example.org"),
        ("", "Corefile:1: no server block; write a block, as in `.:53 { … }`"),
        (
            ". {\n template IN A {\n match \"(\"\n rcode NOERROR\n }\n}",
            "Corefile:3: `(` is not a regular expression: error: unclosed group; correct it",
        ),
        (
            ". {\n log . \"{remote}\"\n}",
            "Corefile:2: `log` with a format of its own; remove the format: lines have CoreDNS's common format",
        ),
        (". {\n errors\n}\n}", "Corefile:4: `}` is outside of all server blocks; put it inside of { }"),
    ] {
        assert_eq!(refusal(text), want, "{text}");
    }
}

#[test]
fn near_misses_are_suggested() {
    assert!(directives::is_near("forward", "foward") && directives::is_near("cache", "cahce"));
    assert!(directives::is_near("ready", "readyy") && directives::is_near("loop", "loup"));
    assert!(!directives::is_near("log", "loop") && !directives::is_near("errors", "etcd"));
}

proptest::proptest! {
    #[test]
    fn no_corefile_causes_a_panic(text in "[ -~\n]{0,200}", words in proptest::collection::vec(
        proptest::sample::select(vec![".", "{", "}", "\n", " ", "\"", "forward", "cache", "import", "(a)", "a", "rewrite", "name", "hosts",
            "kubernetes", "10.0.0.0/8", "{$X}", "acl", "template", "IN", "30", "regex", "("]), 0..60)) {
        let _ = parse("Corefile", &text, &EmptyEnvironment);
        let _ = parse("Corefile", &words.join(" "), &EmptyEnvironment);
    }
}

#[test]
fn a_block_listens_everywhere_or_where_it_is_bound() {
    let places = |text: &str| {
        let places = read(text).listen_addresses();
        places.map(|places| places.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(places(".:53 {\n}\ncorp.example:53 {\n}").expect("places"), ["0.0.0.0:53", "[::]:53"]);
    let two = ". {\n bind 127.0.0.1\n}\ncorp.example {\n bind 127.0.0.2 ::1\n}";
    assert_eq!(places(two).expect("places"), ["127.0.0.1:53", "127.0.0.2:53", "[::1]:53"]);
    let error = places(". {\n}\ncorp.example {\n bind 127.0.0.2\n}").expect_err("one takes it all").to_string();
    assert!(error.contains("line 3: `bind 127.0.0.2`: the block of line 1 has no `bind`"), "{error}");
    let apart = places(". {\n}\ncorp.example:5353 {\n bind 127.0.0.2\n}").expect("other ports");
    assert_eq!(apart, ["0.0.0.0:53", "127.0.0.2:5353", "[::]:53"]);
}
