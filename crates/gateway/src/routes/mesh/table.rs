//! What connections to a port of a Service lead to, by the namespace of their clients.
//!
//! In: the source of a connection. Out: what it is read as, and the rule of a request or of the connection. Clients without
//! routes get the endpoints of the Service itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use routing::http_table::RequestView;
use routing::model::{Clients, ListenerProtocol, MeshPort};

use crate::clients::Source;
use crate::routes::rule::{CompiledRule, CompiledStream};
use crate::routes::tables::Tables;

/// A port of a Service.
pub(crate) struct MeshTable {
    port: Arc<MeshPort>,
    /// Tables by clients, for each place of the port.
    tables: BTreeMap<Clients, Arc<ArcSwap<Tables>>>,
    own: OwnEndpoints,
}

/// The endpoints of the Service itself, for requests and for bytes.
#[derive(Clone)]
pub(crate) struct OwnEndpoints {
    pub(crate) http: Arc<CompiledRule>,
    pub(crate) stream: Arc<CompiledStream>,
}

impl MeshTable {
    pub(super) const fn new(
        port: Arc<MeshPort>,
        tables: BTreeMap<Clients, Arc<ArcSwap<Tables>>>,
        own: OwnEndpoints,
    ) -> Self {
        Self { port, tables, own }
    }

    /// Number of the port.
    pub(crate) fn number(&self) -> u16 {
        self.port.number
    }

    /// What connections of a client are read as.
    pub(super) fn protocol(&self, client: &Source) -> ListenerProtocol {
        self.port.place_of(client.namespace()).map_or(ListenerProtocol::Tcp, |(_, protocol)| protocol)
    }

    /// The rule of a connection whose bytes are forwarded.
    pub(super) fn stream(&self, client: &Source, server_name: Option<&str>) -> Option<Arc<CompiledStream>> {
        match self.tables_of(client, |protocol| protocol != ListenerProtocol::Http) {
            Some(tables) => tables.load().stream(server_name).cloned(),
            None => Some(Arc::clone(&self.own.stream)),
        }
    }

    /// The rule of a request, and the path prefix that matched. None if there are routes, and none of their rules takes it.
    pub(crate) fn http(
        &self,
        client: &Source,
        view: &RequestView<'_>,
        is_grpc: bool,
    ) -> Option<(Arc<CompiledRule>, Option<Box<str>>)> {
        // A connection stays when the routes of its client go.
        let tables = self.tables_of(client, |protocol| protocol == ListenerProtocol::Http);
        match tables.map(|tables| tables.load_full()).filter(|tables| tables.is_routed) {
            Some(tables) => tables.find(view, is_grpc),
            None => Some((Arc::clone(&self.own.http), None)),
        }
    }

    /// The tables for a client, if its connections are read as this.
    fn tables_of(
        &self,
        client: &Source,
        is_it: impl FnOnce(ListenerProtocol) -> bool,
    ) -> Option<&Arc<ArcSwap<Tables>>> {
        let (clients, _) = self.port.place_of(client.namespace()).filter(|(_, protocol)| is_it(*protocol))?;
        self.tables.get(&clients)
    }
}
