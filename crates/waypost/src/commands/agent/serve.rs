//! The HTTPS port of the agent, for logs, exec and reports of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use agent::serve::{Allow, Listening, Tls};
use agent::workloads::Workloads;
use anyhow::Context as _;
use jiff::Timestamp;
use rest::pki;

/// Opens the port on all addresses. `tls` comes from [`pki::Served`].
pub(super) async fn open(port: u16, tls: &Tls, workloads: Arc<dyn Workloads>) -> anyhow::Result<Listening> {
    let allow: Allow = Arc::new(|certificate: &[u8]| pki::may_ask_agents(certificate, Timestamp::now()));
    let at = |ip: IpAddr| Listening::open(SocketAddr::new(ip, port), tls.clone(), allow.clone(), workloads.clone());
    // The IPv6 wildcard accepts both families.
    let opened = match at(Ipv6Addr::UNSPECIFIED.into()).await {
        Err(error) if error.raw_os_error() == Some(kernel::Errno::AFNOSUPPORT.raw_os_error()) => {
            at(Ipv4Addr::UNSPECIFIED.into()).await
        }
        opened => opened,
    };
    opened.with_context(|| format!("opening the agent's port {port}; another program may have it (a kubelet?)"))
}
