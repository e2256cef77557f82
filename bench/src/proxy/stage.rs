//! The test network for proxies: a separate node for each, a client pod on it, and one remote machine that has all endpoints.
//!
//! ```text
//! client pod ─▶ node: the proxy's rules ─▶ underlay ─▶ far: listens on every address of 10.128.0.0/9
//!                                            └─▶ api: the server and this program
//! ```
//! What no rule redirects goes to the remote machine too, which rejects it as unreachable: a kernel without a route would do so no more than
//! once a second, and a client would wait. A client in a pod takes the path of most traffic, and its address is not translated.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use serde_json::Value;
use testbed::net::{Cluster, Node, Outside, Pod, objects};
use tokio::time::sleep;

use super::objects::{ENDPOINTS, HERE, PROBE_TARGET, TARGET, VIPS};

/// How many callers may wait at the far machine; the kernel's own limit.
const BACKLOG: i32 = 4096;
/// In so long a far machine that has something to do does something.
const LOOK: Duration = Duration::from_millis(20);

/// See the module. Dropping it removes everything on it.
pub struct Stage {
    api: Outside,
    far: Outside,
    reached: Arc<Mutex<Reached>>,
    cluster: Cluster,
}

/// What the remote machine received.
#[derive(Default)]
struct Reached {
    connections: u64,
    endpoints: HashSet<IpAddr>,
}

/// The place of one proxy.
#[derive(Clone)]
pub struct Seat {
    /// Where its rules are.
    pub node: Node,
    /// The client.
    pub client: Pod,
}

impl Stage {
    /// Builds it.
    ///
    /// # Errors
    /// When the remote machine cannot listen.
    pub fn new() -> anyhow::Result<Self> {
        let cluster = Cluster::new();
        let (api, far) = (cluster.outside("api"), cluster.outside("far"));
        // Every address of the range is its own, without a list of them.
        far.ip(&format!("route add local {ENDPOINTS} dev lo\nroute add local {VIPS} dev lo\n"));
        far.nft(&format!(
            "table ip stage {{ chain in {{ type filter hook input priority 0; ip daddr {VIPS} reject with icmp type \
             host-unreachable; }}; }}"
        ));
        let reached = Arc::default();
        let stage = Self { api, far, reached, cluster };
        stage.listen(Ipv4Addr::UNSPECIFIED, TARGET)?;
        stage.listen(HERE, PROBE_TARGET)?;
        Ok(stage)
    }

    /// Does this work on the machine of the API server; threads and programs that it starts are there too.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.api.in_namespace(work)
    }

    /// The machine that has all endpoints.
    #[must_use]
    pub const fn far(&self) -> &Outside {
        &self.far
    }

    /// Where the API server may listen.
    #[must_use]
    pub fn api(&self) -> IpAddr {
        self.api.v4().into()
    }

    /// A new node with a client on it.
    #[must_use]
    pub fn seat(&self, name: &str) -> Seat {
        let node = self.cluster.node(name);
        let far = self.far.v4();
        node.ip(&format!("route add {ENDPOINTS} via {far}\nroute add {VIPS} via {far}\n"));
        // A call before the rules are there is remembered as one that leads nowhere; a later one from its port would too.
        node.sysctl("net/netfilter/nf_conntrack_tcp_timeout_syn_sent", "1");
        let [pods, _] = node.pod_cidrs();
        self.far.route(&pods, &node);
        let client = node.pod("client");
        Seat { node, client }
    }

    /// Forgets which endpoints were reached, once the far machine has nothing left to do.
    pub async fn forget_reached(&self) {
        let connections = || self.reached.lock().connections;
        let mut before = connections();
        loop {
            sleep(LOOK).await;
            let now = connections();
            if now == before {
                break;
            }
            before = now;
        }
        self.reached.lock().endpoints.clear();
    }

    /// How many endpoints were reached since.
    #[must_use]
    pub fn reached(&self) -> usize {
        self.reached.lock().endpoints.len()
    }

    fn listen(&self, at: Ipv4Addr, port: u16) -> anyhow::Result<()> {
        let at = SocketAddr::new(at.into(), port);
        let listener = self.far.in_namespace(|| TcpListener::bind(at)).with_context(|| format!("listening on {at}"))?;
        // Callers may be ahead of the thread below for a moment; none is to be turned away for that.
        rustix::net::listen(&listener, BACKLOG).context("making room for callers")?;
        let reached = Arc::clone(&self.reached);
        std::thread::Builder::new().name("far".to_owned()).spawn(move || accept(&listener, &reached))?;
        Ok(())
    }
}

impl Seat {
    /// The Node object.
    #[must_use]
    pub fn object(&self) -> Value {
        objects::node(&self.node).json()
    }
}

/// Takes connections, and lets go of them at once.
fn accept(listener: &TcpListener, reached: &Mutex<Reached>) {
    // A connection that its client has already given up may fail; the next one need not.
    for connection in listener.incoming().flatten() {
        let address = connection.local_addr();
        let mut reached = reached.lock();
        reached.connections += 1;
        reached.endpoints.extend(address.map(|address| address.ip()));
    }
}
