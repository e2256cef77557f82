//! One machine: what nodes, pods and outside clients have in common.
//!
//! In: commands, closures, ports to serve, requests to send. Out: their results, inside the namespace of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::caller::{Answer, Caller, Connection};
use super::echo::Echoes;
use super::failure::Failure;
use super::hammer::{Hammer, Tally};
use super::namespace::Namespace;
use super::process::{Process, Words};
use super::{Address, Family, Protocol, cluster};
use crate::Run;

/// A network namespace with a name and an address of each family.
pub struct Host {
    name: String,
    namespace: Arc<Namespace>,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    runtime: tokio::runtime::Handle,
    echoes: Echoes,
}

impl Host {
    pub(super) fn new(
        name: &str,
        namespace: Namespace,
        v4: Ipv4Addr,
        v6: Ipv6Addr,
        runtime: &tokio::runtime::Handle,
    ) -> Self {
        Self {
            name: name.to_owned(),
            namespace: Arc::new(namespace),
            v4,
            v6,
            runtime: runtime.clone(),
            echoes: Echoes::default(),
        }
    }

    pub(super) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    pub(super) const fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    pub(super) fn shut(&self) {
        self.echoes.clear(self);
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its IPv4 address.
    #[must_use]
    pub const fn v4(&self) -> Ipv4Addr {
        self.v4
    }

    /// Its IPv6 address.
    #[must_use]
    pub const fn v6(&self) -> Ipv6Addr {
        self.v6
    }

    /// Its address of this family.
    #[must_use]
    pub fn address(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.v4.into(),
            Family::V6 => self.v6.into(),
        }
    }

    // === commands ===

    /// Does this work on a thread that is inside. Sockets made there stay there, also when they are taken out.
    pub fn in_namespace<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.within(work)
    }

    /// Runs a program inside, to its end.
    pub fn run(&self, command: impl Words) -> Run {
        self.run_with(command, "")
    }

    /// Runs a program inside, to its end, with something on its standard input.
    pub fn run_with(&self, command: impl Words, input: &str) -> Run {
        let mut command = command.command();
        self.in_namespace(|| crate::run(&mut command, input))
    }

    /// Starts a program inside. It ends with the [`Process`], and with the tests however they end.
    #[must_use]
    pub fn spawn(&self, command: impl Words) -> Process {
        Process::start(Arc::clone(&self.namespace), &command.command())
    }

    /// Runs lines of `ip` inside, such as `route add 10.96.0.0/16 via 192.0.2.11`.
    pub fn ip(&self, lines: &str) {
        cluster::ip(&self.namespace, lines);
    }

    /// Sets a parameter of its network, such as `net/ipv4/ip_forward`.
    pub fn sysctl(&self, name: &str, value: &str) {
        self.namespace.sysctl(name, value);
    }

    // === servers ===

    /// Answers on this port of its own addresses, by every protocol: to each line, or each datagram, one line
    /// `name=<host> client=<ip>:<port> server=<ip>:<port>`. Connections stay open for more.
    pub fn echo(&self, port: u16) {
        self.echo_on(&Protocol::ALL, port);
    }

    /// [`Self::echo`] by these protocols only.
    pub fn echo_on(&self, protocols: &[Protocol], port: u16) {
        for protocol in protocols {
            for family in Family::BOTH {
                self.echo_at(*protocol, self.address(family), port);
            }
        }
    }

    /// [`Self::echo`] by one protocol at one address, which need not be the first of this machine.
    pub fn echo_at(&self, protocol: Protocol, address: impl Address, port: u16) {
        self.echoes.add(self, protocol, address.address(), port);
    }

    /// Ends the servers of this port and their connections. The next caller is refused.
    pub fn silence(&self, port: u16) {
        self.echoes.remove(self, port);
    }

    // === clients ===

    /// A client on this machine whose manners can be set.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller::new(Arc::clone(&self.namespace))
    }

    /// Opens a connection, sends one request, and closes it.
    pub fn ask(&self, protocol: Protocol, address: impl Address, port: u16) -> Result<Answer, Failure> {
        self.caller().ask(protocol, address, port)
    }

    /// Sends this many requests, each on a new connection.
    #[must_use]
    pub fn ask_many(&self, times: usize, protocol: Protocol, address: impl Address, port: u16) -> Tally {
        self.caller().ask_many(times, protocol, address, port)
    }

    /// Opens a connection for repeated requests.
    pub fn connect(&self, protocol: Protocol, address: impl Address, port: u16) -> Result<Connection, Failure> {
        self.caller().connect(protocol, address, port)
    }

    /// Sends requests continuously, each on a new connection, until it is stopped.
    #[must_use]
    pub fn hammer(&self, protocol: Protocol, address: impl Address, port: u16) -> Hammer {
        self.caller().hammer(protocol, address, port)
    }
}
