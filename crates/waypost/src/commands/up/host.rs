//! The programs of this machine are told whom to ask for names, once that is somebody who answers.
//!
//! In: the addresses of the Service of the DNS. Out: those that answer, in the settings of the machine. Told too early, programs would
//! find nobody there, ask the next server for names of the cluster, and believe that there are none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use kernel::host_names::HostNames;
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

/// How long a Service may take until it leads here.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one question is waited for, and after how long it is asked again.
const ONCE: Duration = Duration::from_millis(500);
const AGAIN: Duration = Duration::from_millis(10);
/// Who is responsible for everything: whatever is replied, somebody is there.
const QUESTION: [u8; 17] = [0x77, 0x70, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1];

/// Tells them.
///
/// # Errors
/// When nobody answers at any of the addresses, or the settings cannot be written.
pub(super) async fn tell(ips: &[IpAddr], domain: &str) -> anyhow::Result<()> {
    let mut there = Vec::new();
    for ip in ips {
        if timeout(PATIENCE, answers(*ip)).await == Ok(true) {
            there.push(*ip);
        }
    }
    ensure!(!there.is_empty(), "--host-dns: nobody answers at {ips:?}; is the proxy of this machine off?");
    let told = HostNames::default().tell(&there, domain);
    let told = told.context("--host-dns: telling the programs of this machine whom to ask")?;
    tracing::info!(?told, servers = ?there, "programs of this machine ask here for names; `waypost cleanup` undoes it");
    Ok(())
}

/// Waits until somebody answers there; false when this machine has no way to such an address.
async fn answers(ip: IpAddr) -> bool {
    let own = if ip.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    loop {
        // A socket of its own for each try: what the kernel remembers of an earlier one leads nowhere.
        let Ok(socket) = UdpSocket::bind(SocketAddr::new(own, 0)).await else { return false };
        if socket.connect(SocketAddr::new(ip, 53)).await.is_err() {
            return false;
        }
        // Until the rules are there, routers and rules on the way say all kinds of things.
        let asked = async {
            socket.send(&QUESTION).await?;
            socket.recv(&mut [0; 512]).await
        };
        if matches!(timeout(ONCE, asked).await, Ok(Ok(_))) {
            return true;
        }
        sleep(AGAIN).await;
    }
}
