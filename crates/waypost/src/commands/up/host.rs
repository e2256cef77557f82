//! `--host-dns`: configures the resolver of this machine, once the DNS of the cluster responds.
//!
//! In: the addresses of the DNS Service. Out: those that respond, in the resolver configuration. Configured too early, programs would query the
//! next nameserver and get NXDOMAIN for names of the cluster.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use kernel::host_names::HostNames;
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

/// Timeout until the Service responds.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a query, and the delay before the next.
const QUERY_TIMEOUT: Duration = Duration::from_millis(500);
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// A query for the NS records of the root; any response will do.
const QUERY: [u8; 17] = [0x77, 0x70, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1];

/// Configures the resolver.
///
/// # Errors
/// When no address responds, or the configuration cannot be written.
pub(super) async fn configure(ips: &[IpAddr], domain: &str) -> anyhow::Result<()> {
    let mut there = Vec::new();
    for ip in ips {
        if timeout(TIMEOUT, responds(*ip)).await == Ok(true) {
            there.push(*ip);
        }
    }
    ensure!(!there.is_empty(), "--host-dns: no DNS response from {ips:?}; is the proxy of this machine off?");
    let files = HostNames::default().configure(&there, domain);
    let files = files.context("--host-dns: writing the resolver configuration of this machine")?;
    tracing::info!(?files, servers = ?there, "configured the host's resolver; `waypost cleanup` restores it");
    Ok(())
}

/// Waits for a response; false without a route to the address.
async fn responds(ip: IpAddr) -> bool {
    let own = if ip.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    loop {
        // A new socket for each attempt: a conntrack entry of an earlier one may lead nowhere.
        let Ok(socket) = UdpSocket::bind(SocketAddr::new(own, 0)).await else { return false };
        if socket.connect(SocketAddr::new(ip, 53)).await.is_err() {
            return false;
        }
        // Until the rules are written, ICMP errors of any kind may arrive.
        let asked = async {
            socket.send(&QUERY).await?;
            socket.recv(&mut [0; 512]).await
        };
        if matches!(timeout(QUERY_TIMEOUT, asked).await, Ok(Ok(_))) {
            return true;
        }
        sleep(RETRY_DELAY).await;
    }
}
