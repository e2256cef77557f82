//! What a port of a Gateway serves: its listeners by host, and for each of them a table of rules. A port of a Service has
//! tables by the clients instead ([`MeshTable`]).
//!
//! In: configurations of listeners, changes of routes. Out: immutable tables behind one pointer per listener. A change
//! copies the table, which shares what does not differ, and swaps the pointer; requests in progress keep the old one.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderValue;
use routing::cluster::RouteState;
use routing::grpc_table::GrpcTable;
use routing::hosts::HostMap;
use routing::http_table::{HttpTable, RequestView, RouteEntry};
use routing::model::{ListenerConfig, ListenerProtocol, Matches, RouteId, RouteKind, Rule};
use rustls::ServerConfig;

use super::ingresses::IngressRules;
use super::mesh::MeshTable;
use super::rule::{CompiledRule, CompiledStream};
use crate::challenges::Challenges;
use crate::clients::LocalClients;
use crate::metrics::{ListenerMetrics, ServiceRequests};

/// How long clients may remember that a port is served over QUIC, in seconds.
const ADVERTISED: u32 = 3600;

/// A bound port of a Gateway, or of a Service at layer 7.
pub(crate) struct RoutedPort {
    pub(crate) parent: Parent,
    pub(crate) table: ArcSwap<PortTable>,
    /// Value of `X-Forwarded-Port`.
    pub(crate) number: HeaderValue,
    /// Answers to ACME challenges, of all Gateways.
    pub(crate) challenges: Arc<Challenges>,
    /// `Alt-Svc` of responses to HTTPS requests, while the port is served over QUIC.
    pub(crate) alt_svc: ArcSwapOption<HeaderValue>,
}

/// What a port is of.
pub(crate) enum Parent {
    /// The Gateway `namespace/name`.
    Gateway(Arc<str>),
    /// A Service.
    Service(ServiceParent),
}

/// A Service at layer 7.
pub(crate) struct ServiceParent {
    /// `namespace/name`.
    pub(crate) key: Arc<str>,
    /// Who may connect.
    pub(crate) clients: Arc<LocalClients>,
    pub(crate) requests: Arc<ServiceRequests>,
}

/// What connections to a port lead to. A clone is a few references.
#[derive(Clone, Default)]
pub(crate) enum PortTable {
    /// Nothing yet.
    #[default]
    Closed,
    /// HTTP listeners, by host.
    Http(HostMap<Arc<RoutedListener>>),
    /// HTTPS and TLS listeners, by server name.
    Tls(HostMap<Arc<RoutedListener>>),
    /// A TCP or UDP listener.
    Stream(Arc<RoutedListener>),
    /// All Ingresses of a class; with TLS if the listener ends it.
    Ingress {
        /// The listener; its own tables are empty.
        listener: Arc<RoutedListener>,
        /// The rules of all hosts, on both ports of the class.
        rules: Arc<IngressRules>,
    },
    /// A port of a Service.
    Mesh(MeshTable),
}

/// A listener.
pub(crate) struct RoutedListener {
    pub(crate) config: Arc<ListenerConfig>,
    /// TLS towards clients; none while there is no certificate.
    pub(crate) tls: ArcSwapOption<ServerConfig>,
    pub(crate) tables: Arc<ArcSwap<Tables>>,
    pub(crate) metrics: Arc<ListenerMetrics>,
}

/// Rules of a listener.
#[derive(Clone, Default)]
pub(crate) struct Tables {
    pub(crate) http: HttpTable<Arc<CompiledRule>>,
    pub(crate) grpc: GrpcTable<Arc<CompiledRule>>,
    /// Rules of TLSRoutes by server name; of TCPRoutes and UDPRoutes without. The first of a host is used.
    streams: HostMap<Arc<[Stream]>>,
    /// Hosts of the routes in `streams`.
    hosts: Arc<std::collections::BTreeMap<RouteId, Vec<Arc<str>>>>,
    /// Whether a route is attached, even if it has no rule that can be served.
    pub(crate) is_routed: bool,
}

/// A rule with what decides its precedence.
#[derive(Clone)]
struct Stream {
    order: (Arc<str>, RouteId),
    rule: Arc<CompiledStream>,
}

impl RoutedPort {
    /// The Gateway, if it is a port of one.
    pub(crate) const fn gateway(&self) -> Option<&Arc<str>> {
        match &self.parent {
            Parent::Gateway(key) => Some(key),
            Parent::Service(_) => None,
        }
    }

    /// The Service, if it is a port of one.
    pub(crate) const fn service(&self) -> Option<&ServiceParent> {
        match &self.parent {
            Parent::Gateway(_) => None,
            Parent::Service(service) => Some(service),
        }
    }

    /// Has responses to HTTPS requests announce HTTP/3 at this port, or not.
    pub(super) fn advertise_http3(&self, port: Option<u16>) {
        let value = port.map(|port| HeaderValue::from_str(&format!("h3=\":{port}\"; ma={ADVERTISED}")));
        self.alt_svc.store(value.and_then(Result::ok).map(Arc::new));
    }
}

impl PortTable {
    /// The table of a port with these listeners; they do not conflict.
    pub(super) fn of(listeners: &[Arc<RoutedListener>]) -> Self {
        let mut table = Self::Closed;
        listeners.iter().for_each(|listener| table.insert(listener));
        table
    }

    /// Adds a listener, which does not conflict with those that are there.
    pub(super) fn insert(&mut self, listener: &Arc<RoutedListener>) {
        let mut hosts = match self {
            Self::Http(hosts) | Self::Tls(hosts) => std::mem::take(hosts),
            Self::Closed | Self::Stream(_) | Self::Ingress { .. } => HostMap::default(),
        };
        hosts.insert(listener.config.hostname.as_deref(), Arc::clone(listener));
        *self = match listener.config.protocol {
            ListenerProtocol::Http => Self::Http(hosts),
            ListenerProtocol::Tcp | ListenerProtocol::Udp => Self::Stream(Arc::clone(listener)),
            ListenerProtocol::Https | ListenerProtocol::TlsTerminate | ListenerProtocol::TlsPassthrough => {
                Self::Tls(hosts)
            }
        };
    }

    /// Removes a listener; without any, the port is closed.
    pub(super) fn remove(&mut self, listener: &RoutedListener) {
        let is_empty = match self {
            Self::Http(hosts) | Self::Tls(hosts) => {
                hosts.remove(listener.config.hostname.as_deref());
                hosts.is_empty()
            }
            Self::Closed | Self::Stream(_) | Self::Ingress { .. } => true,
        };
        if is_empty {
            *self = Self::Closed;
        }
    }

    /// The listener of HTTPS connections with this server name.
    pub(crate) fn https(&self, server_name: Option<&str>) -> Option<&Arc<RoutedListener>> {
        let listener = match self {
            Self::Tls(hosts) => hosts.find(server_name.unwrap_or_default())?,
            Self::Ingress { listener, .. } => listener,
            Self::Closed | Self::Http(_) | Self::Stream(_) | Self::Mesh(_) => return None,
        };
        (listener.config.protocol == ListenerProtocol::Https).then_some(listener)
    }

    /// Whether HTTPS connections may lead here.
    pub(super) fn may_be_https(&self) -> bool {
        match self {
            Self::Tls(_) => true,
            Self::Ingress { listener, .. } => listener.config.protocol == ListenerProtocol::Https,
            Self::Closed | Self::Http(_) | Self::Stream(_) | Self::Mesh(_) => false,
        }
    }
}

impl Tables {
    /// Inserts or replaces a route, which is attached with these hostnames.
    pub(super) fn insert(
        &mut self,
        id: &RouteId,
        (state, hostnames): (&RouteState, &[Arc<str>]),
        mut compile: impl FnMut(&Rule) -> Arc<CompiledRule>,
        stream: Option<Arc<CompiledStream>>,
    ) {
        self.remove(id);
        let entry = || RouteEntry { id, created: &state.created, hostnames };
        match id.kind {
            RouteKind::Http | RouteKind::Ingress => {
                let rules = state.rules.iter().filter_map(|rule| match &rule.matches {
                    Matches::Http(matches) => Some((rule.index, &matches[..], compile(rule))),
                    Matches::Grpc(_) => None,
                });
                self.http.insert(entry(), rules);
            }
            RouteKind::Grpc => {
                let rules = state.rules.iter().filter_map(|rule| match &rule.matches {
                    Matches::Grpc(matches) => Some((rule.index, &matches[..], compile(rule))),
                    Matches::Http(_) => None,
                });
                self.grpc.insert(entry(), rules);
            }
            RouteKind::Tls | RouteKind::Tcp | RouteKind::Udp => {
                if let Some(rule) = stream {
                    self.insert_stream(id, &state.created, hostnames, &rule);
                }
            }
        }
    }

    fn insert_stream(&mut self, id: &RouteId, created: &Arc<str>, hostnames: &[Arc<str>], rule: &Arc<CompiledStream>) {
        let one = Stream { order: (Arc::clone(created), id.clone()), rule: Arc::clone(rule) };
        for host in hosts(hostnames) {
            let before = self.streams.get(host).cloned().unwrap_or_default();
            let mut all: Vec<Stream> = before.iter().cloned().chain([one.clone()]).collect();
            all.sort_by(|a, b| a.order.cmp(&b.order));
            self.streams.insert(host, all.into());
        }
        Arc::make_mut(&mut self.hosts).insert(id.clone(), hostnames.to_vec());
    }

    /// Removes a route.
    pub(super) fn remove(&mut self, id: &RouteId) {
        match id.kind {
            RouteKind::Http | RouteKind::Ingress => self.http.remove(id),
            RouteKind::Grpc => self.grpc.remove(id),
            RouteKind::Tls | RouteKind::Tcp | RouteKind::Udp => {
                let Some(hostnames) = Arc::make_mut(&mut self.hosts).remove(id) else { return };
                for host in hosts(&hostnames) {
                    let rest = self.streams.get(host).into_iter().flat_map(|all| all.iter());
                    let rest: Vec<Stream> = rest.filter(|one| one.order.1 != *id).cloned().collect();
                    match rest.is_empty() {
                        true => drop(self.streams.remove(host)),
                        false => drop(self.streams.insert(host, rest.into())),
                    }
                }
            }
        }
    }

    /// The rule for a request, and the path prefix that matched.
    pub(crate) fn find(&self, view: &RequestView<'_>, is_grpc: bool) -> Option<(Arc<CompiledRule>, Option<Box<str>>)> {
        let selected = match is_grpc {
            true => self.grpc.find(view).or_else(|| self.http.find(view)),
            false => self.http.find(view),
        };
        selected.map(|selected| (Arc::clone(selected.rule), selected.prefix.map(Into::into)))
    }

    /// The rule for connections with this server name, or for all connections and flows.
    pub(crate) fn stream(&self, server_name: Option<&str>) -> Option<&Arc<CompiledStream>> {
        let found = match server_name {
            Some(name) => self.streams.find(name),
            None => self.streams.get(None),
        };
        found?.first().map(|one| &one.rule)
    }
}

/// The hosts of a route: all, when it names none.
fn hosts(hostnames: &[Arc<str>]) -> impl Iterator<Item = Option<&str>> {
    let any = hostnames.is_empty().then_some(None);
    any.into_iter().chain(hostnames.iter().map(|host| Some(&**host)))
}
