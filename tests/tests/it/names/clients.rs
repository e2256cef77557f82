//! Resolvers that programs in Pods have: those of glibc, of musl and of Go, and the tools by which people ask.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;
use testbed::net::eventually;
use testbed::run;
use testbed::session::SERVICES;

use super::up::{Machine, VIP};
use super::{dig, with_resolv_conf};

/// Queries the resolver of the C library it is built with, for both families; prints addresses, or exits with the error's
/// number.
const ASK_C: &str = r#"
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
int main(int n, char **words) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all, *one;
    int error = getaddrinfo(words[1], NULL, &hints, &all);
    if (error) return -error;
    for (one = all; one; one = one->ai_next) {
        char host[64];
        getnameinfo(one->ai_addr, one->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST);
        puts(host);
    }
    return 0;
}
"#;

const ASK_GO: &str = r#"package main

import ("context"; "fmt"; "net"; "os")

func main() {
	resolver := net.Resolver{PreferGo: true}
	all, err := resolver.LookupHost(context.Background(), os.Args[1])
	if err != nil {
		if dns, ok := err.(*net.DNSError); ok && dns.IsNotFound { os.Exit(2) }
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, one := range all { fmt.Println(one) }
}
"#;

/// No such name, in C (`-EAI_NONAME`) and in our program in Go.
const NO_SUCH_NAME: i32 = 2;

/// What a Pod in `default` has.
fn conf(ndots: u8) -> String {
    let search = "default.svc.cluster.local svc.cluster.local cluster.local";
    format!("nameserver {VIP}\nsearch {search}\noptions ndots:{ndots}\n")
}

/// A machine with a Service of both families, one of IPv4 only, and one that is another name for the first.
fn stage() -> Machine {
    let mut machine = Machine::new();
    let both = json!({"clusterIPs": ["10.96.7.7", "fd00:10:96::77"], "clusterIP": "10.96.7.7",
                      "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]});
    for (name, spec) in [
        ("both", both),
        ("single", json!({"clusterIP": "10.96.7.8", "ports": [{"port": 80}]})),
        ("alias", json!({"type": "ExternalName", "externalName": "both.default.svc.cluster.local"})),
    ] {
        machine.post(SERVICES, &json!({"metadata": {"name": name}, "spec": spec}));
    }
    let pod = &machine.pod;
    eventually("the last name is known", || {
        pod.run(&*format!("dig +short +tries=1 +time=1 @{VIP} alias.default.svc.cluster.local"))
            .out
            .contains("10.96.7.7")
    });
    machine
}

/// Queries in every way that programs do, by a program that prints addresses.
fn walk(machine: &Machine, program: &Path) {
    let ask =
        |ndots, name: &str| with_resolv_conf(&machine.pod, &conf(ndots), &format!("{} {name}", program.display()));
    let expect = |ndots, name: &str, wanted: &[&str]| {
        let said = ask(ndots, name);
        let mut found: Vec<&str> = said.out.lines().collect();
        found.sort_unstable();
        assert_eq!((said.code, &found[..]), (Some(0), wanted), "{name}, ndots {ndots}: {}", said.err);
    };
    let both = ["10.96.7.7", "fd00:10:96::77"];
    // Each needs one more step along the search path, past names that do not exist.
    for name in ["both", "both.default", "both.default.svc", "both.default.svc.cluster.local", "alias"] {
        expect(5, name, &both);
    }
    expect(5, "single", &["10.96.7.8"]);
    expect(5, "kubernetes.default.svc.cluster.local.", &["10.96.0.1"]);
    // With enough dots a name is tried as it is first.
    expect(1, "single.default.svc.cluster.local", &["10.96.7.8"]);
    for name in ["nobody.default.svc.cluster.local.", "nobody.svc.cluster.local.", "x.both.default.svc.cluster.local."]
    {
        let said = ask(5, name);
        assert_eq!((said.code, said.out.as_str()), (Some(NO_SUCH_NAME), ""), "{name}: {}", said.err);
    }
    // At the end of the search path is the name itself, which is outside our zones, and there is no upstream.
    for name in ["nobody", "nobody.default", "both.elsewhere"] {
        let said = ask(5, name);
        assert!(said.code.is_some_and(|code| code != 0) && said.out.is_empty(), "{name}: {said:?}");
    }
}

/// Builds a program in C by this compiler.
fn built(home: &TempDir, compiler: &str) -> PathBuf {
    let (source, program) = (home.path().join("ask.c"), home.path().join(compiler));
    std::fs::write(&source, ASK_C).expect("written");
    let _ = run(Command::new(compiler).arg("-o").arg(&program).arg(&source), "").success();
    program
}

#[test]
fn s34_programs_of_glibc_find_names() {
    let home = testbed::folder();
    walk(&stage(), &built(&home, "cc"));
}

#[test]
fn s34_programs_of_musl_find_names() {
    let home = testbed::folder();
    walk(&stage(), &built(&home, "musl-gcc"));
}

#[test]
#[ignore = "compiles a program with Go, which is no package of the tests; ./scripts/test peers runs it"]
fn s34_programs_of_go_find_names() {
    let home = testbed::folder();
    let (source, program) = (home.path().join("ask.go"), home.path().join("ask"));
    std::fs::write(&source, ASK_GO).expect("written");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(&source);
    build.env("CGO_ENABLED", "0").env("GO111MODULE", "off").env("GOFLAGS", "").current_dir(home.path());
    let _ = run(&mut build, "").success();
    walk(&stage(), &program);
}

#[test]
fn s34_tools_by_which_people_ask_are_content() {
    let machine = stage();
    let pod = &machine.pod;
    let name = "both.default.svc.cluster.local";
    let searched = with_resolv_conf(pod, &conf(5), "dig +search +noall +answer +comments both.default AAAA");
    assert!(searched.ok && searched.out.contains(&format!("{name}.")), "{searched:?}");
    assert!(searched.out.contains("fd00:10:96::77") && searched.out.contains("status: NOERROR"), "{searched:?}");
    for way in ["+notcp", "+tcp", "+noedns", "+edns=0 +dnssec +bufsize=4096", "+cookie", "+qid=7"] {
        let said = pod.run(&*format!("dig +tries=1 +time=3 @{VIP} {way} {name}"));
        assert!(said.ok && said.out.contains("10.96.7.7"), "{way}: {said:?}");
        assert!(
            !said.out.contains(";; WARNING: Message") && !said.out.to_lowercase().contains("malformed"),
            "{way}: {said:?}"
        );
    }
    assert_eq!(dig(pod, VIP, "-x fd00:10:96::77").trim(), format!("{name}."));
    for way in ["", "+tcp", "+edns", "+dnssec", "+keepopen +tcp"] {
        let said = pod.run(&*format!("kdig +retry=0 +time=3 @{VIP} {way} {name}"));
        assert!(said.ok && said.out.contains("10.96.7.7") && !said.err.contains("WARNING"), "{way}: {said:?}");
    }
    // There are no signatures to check, and the answer must do without.
    let said = pod.run(&*format!("delv -i @{VIP} {name} A"));
    assert!(said.ok && said.out.contains("10.96.7.7"), "{said:?}");
}
