//! The pod: a minimal server, so that what is measured is the load balancer in front of it.
//!
//! In: requests without bodies. Out: the same answer to each.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::Context as _;
use testbed::net::Pod;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The body of every answer.
pub const BODY: usize = 128;

/// Has a pod serve a port, on a separate thread.
///
/// # Errors
/// When it cannot listen.
pub fn serve(pod: &Pod, port: u16) -> anyhow::Result<()> {
    let listener =
        pod.in_namespace(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))).context("listening in a pod")?;
    listener.set_nonblocking(true).context("listening in a pod")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    std::thread::Builder::new()
        .name("pod".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                while let Ok((stream, _)) = listener.accept().await {
                    let _ = stream.set_nodelay(true);
                    tokio::spawn(answer(stream));
                }
            });
        })
        .context("starting a thread")?;
    Ok(())
}

/// Answers the requests of one connection.
pub async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let reply =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {BODY}\r\n\r\n{}", "x".repeat(BODY));
    let (mut seen, mut piece) = (Vec::new(), [0; 8192]);
    loop {
        match stream.read(&mut piece).await {
            Ok(count @ 1..) => seen.extend_from_slice(&piece[..count]),
            _ => return,
        }
        while let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
            seen.drain(..end + 4);
            if stream.write_all(reply.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}
