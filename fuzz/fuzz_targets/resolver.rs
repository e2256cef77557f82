//! A query to the resolver that needs no upstream: answered within its limits, for any input.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use dns::corefile::{EmptyEnvironment, parse};
use dns::resolver::{Config, Request, Resolver, Transport};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::Runtime;

const COREFILE: &str = r#". {
    hosts {
        203.0.113.7 a.example b.example
        fd00::7 a.example
    }
    template ANY PTR . {
        rcode NXDOMAIN
    }
    template IN TXT gone.example {
        match "^x[.]"
        rcode NXDOMAIN
        ederror 15 "gone"
    }
    loadbalance
}
"#;

static RESOLVER: LazyLock<(Runtime, Arc<Resolver>)> = LazyLock::new(|| {
    let runtime = Runtime::new().expect("a runtime");
    let server = parse("Corefile", COREFILE, &EmptyEnvironment).expect("understood");
    let resolver = Resolver::new(Config::new(server), runtime.handle().clone());
    (runtime, resolver)
});

fuzz_target!(|data: &[u8]| {
    let transport = if data.first().is_some_and(|byte| byte & 1 == 0) { Transport::Udp } else { Transport::Tcp };
    let message = data.get(1..).unwrap_or_default();
    let from = IpAddr::V4(Ipv4Addr::LOCALHOST).into();
    let mut out = Vec::new();
    assert!(RESOLVER.1.cached(&Request { message, from, transport }, Instant::now(), &mut out));
    assert!(out.is_empty() || out[..2] == message[..2], "the id is kept");
    assert!(out.len() <= if transport == Transport::Udp { 4096 } else { 65535 });
});
