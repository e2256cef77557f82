//! A Gateway whose connections need no socket: fuzzing feeds it what clients send.
//!
//! In: rules, the slices of their Services, the stream of a client. Out: responses, by the code that serves sockets, from the first byte of HTTP
//! on. One HTTP listener serves all hosts. There is no cluster: neither TLS nor policies that need a Secret.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use api::view::EndpointSlice;
use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderValue;
use routing::cluster::RouteState;
use routing::model::{ListenerConfig, ListenerId, ListenerProtocol, RouteId, RouteKind, Rule, Target};
use tokio::io::{AsyncRead, AsyncWrite};

use super::pools::Pools;
use super::rule::CompiledRule;
use super::tables::{Parent, PortTable, RoutedListener, RoutedPort, Tables};
use super::trust::Trust;
use crate::http_proxy::{self, ClientConnection};
use crate::limits::Limits;
use crate::metrics::GatewayMetrics;
use crate::policy::{Enforcer, may_connect};
use crate::port_config::{PortConfig, Serving};

/// The number of its port.
const PORT: u16 = 80;
/// Its Gateway.
const GATEWAY: &str = "default/in-memory";

/// See the module.
pub struct InMemoryGateway {
    port_config: Arc<PortConfig>,
}

impl InMemoryGateway {
    /// All rules belong to one route without hostnames.
    #[must_use]
    pub fn new(rules: Vec<Rule>, slices: Vec<EndpointSlice>) -> Self {
        let (limits, metrics, trust) = (Limits::default(), GatewayMetrics::default(), Trust::default());
        let mut pools = Pools::new(limits, 1, metrics.clone());
        for slice in slices {
            pools.apply_slice(&slice.metadata.key(), Some(slice));
        }
        let route = RouteId { kind: RouteKind::Http, key: GATEWAY.into() };
        let state = RouteState {
            generation: 1,
            created: "".into(),
            parents: Vec::new(),
            rules: rules.into_iter().map(Arc::new).collect(),
            stream: None,
        };
        let enforcer = Enforcer::new(limits, 1, Box::new(|address| may_connect(address, &[])));
        let route_metrics = metrics.routing().for_route(GATEWAY, &route);
        let mut upstream = |target: &Target| match target {
            Target::Service(target) => Some(pools.upstream(target, None, &trust)),
            Target::Invalid(_) => None,
        };
        let means = (&enforcer, &trust.passwords);
        let compile = |rule: &Rule| Arc::new(CompiledRule::new(rule, &mut upstream, Arc::clone(&route_metrics), means));
        let mut tables = Tables::default();
        tables.insert(&route, (&state, &[]), compile, None);
        let listener = RoutedListener {
            metrics: metrics.routing().for_listener(&listener().id),
            config: Arc::new(listener()),
            tls: ArcSwapOption::empty(),
            tables: Arc::new(ArcSwap::from_pointee(tables)),
        };
        let table = ArcSwap::from_pointee(PortTable::of(&[Arc::new(listener)]));
        let (number, alt_svc, challenges) = (HeaderValue::from(PORT), ArcSwapOption::default(), Arc::default());
        let parent = Parent::Gateway(GATEWAY.into());
        let port = RoutedPort { parent, table, number, alt_svc, challenges };
        let serving = Serving::Routes(Box::new(port));
        let port_config = PortConfig::new(GATEWAY, PORT, (limits, None), serving, Arc::default());
        Self { port_config: Arc::new(port_config) }
    }

    /// Serves the connection of a client until it is closed. All connections have to be served by the same single-threaded runtime.
    pub async fn serve<I>(&self, stream: I, is_h2: bool)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let forwarded = (HeaderValue::from(PORT), HeaderValue::from_static("http"));
        let client = ClientConnection::new(Arc::clone(&self.port_config), 0, peer, forwarded);
        http_proxy::serve(stream, is_h2, client).await;
    }
}

fn listener() -> ListenerConfig {
    ListenerConfig {
        id: ListenerId { gateway: GATEWAY.into(), set: None, name: "http".into() },
        port: PORT,
        protocol: ListenerProtocol::Http,
        hostname: None,
        certificates: Vec::new(),
        client_validation: None,
    }
}

#[cfg(test)]
mod tests {
    use routing::model::Matches;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// What is answered to these bytes until the connection ends.
    async fn ask(bytes: &[u8], is_h2: bool) -> Vec<u8> {
        let rule = Rule {
            route: RouteId { kind: RouteKind::Http, key: GATEWAY.into() },
            index: 0,
            name: None,
            matches: Matches::Http(Vec::new()),
            filters: Vec::new(),
            mirrors: Vec::new(),
            backends: Vec::new(),
            request_timeout: None,
            backend_timeout: None,
            retry: None,
            session: None,
            policy: None,
            broken: None,
        };
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let served =
            tokio::spawn(async move { InMemoryGateway::new(vec![rule], Vec::new()).serve(server, is_h2).await });
        client.write_all(bytes).await.expect("sent");
        let mut answer = Vec::new();
        while !answer.windows(b"cannot be applied".len()).any(|part| part == b"cannot be applied") {
            assert_ne!(client.read_buf(&mut answer).await.expect("an answer"), 0, "it ends early");
        }
        drop(client);
        served.await.expect("it ends");
        answer
    }

    #[tokio::test]
    async fn streams_are_served_like_sockets() {
        let answer = ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", false).await;
        assert!(answer.starts_with(b"HTTP/1.1 500 "), "without a backend: {answer:?}");
        // SETTINGS, and HEADERS with `:method: GET`, `:scheme: http`, `:path: /` and `:authority: a`.
        let frames = b"\0\0\0\x04\0\0\0\0\0\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x01\x01a";
        let answer = ask(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], frames].concat(), true).await;
        assert_eq!(answer[3], 4, "SETTINGS: {answer:?}");
    }
}
