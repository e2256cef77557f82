//! The pod behind gRPC: a minimal server of HTTP/2 with prior knowledge, so that what is measured is the proxy in front of it.
//!
//! In: calls of any method. Out: the same message to each, and the status 0.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context as _, ensure};
use bytes::BytesMut;
use testbed::net::Pod;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::frames::{Frame, PREFACE, Windows, block, flag, kind, put, put_start};
use crate::lb::pod::BODY;

/// The length of a message with its prefix, in bytes.
pub const MESSAGE: usize = BODY + 5;

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
        .name("grpc-pod".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                while let Ok((stream, _)) = listener.accept().await {
                    let _ = stream.set_nodelay(true);
                    // A connection ends when its client ends it.
                    tokio::spawn(async move { answer(stream).await.ok() });
                }
            });
        })
        .context("starting a thread")?;
    Ok(())
}

/// A message with its prefix: not compressed, and its length.
#[must_use]
pub fn message() -> Vec<u8> {
    let length = u32::try_from(BODY).unwrap_or(0).to_be_bytes();
    [&[0], &length[..], &[b'x'; BODY]].concat()
}

/// Answers the calls of one connection.
///
/// # Errors
/// When the client ends it, or does not speak HTTP/2.
pub async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> anyhow::Result<()> {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).await?;
    ensure!(preface == PREFACE, "no preface");
    let (head, message, trailers) =
        (block(&[(":status", "200"), ("content-type", "application/grpc")]), message(), block(&[("grpc-status", "0")]));
    let length = i64::try_from(message.len())?;
    let (mut buffer, mut out, mut windows) = (BytesMut::with_capacity(1 << 16), Vec::new(), Windows::default());
    let mut called = VecDeque::new();
    put_start(&mut out);
    loop {
        if !out.is_empty() {
            stream.write_all(&out).await?;
            out.clear();
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        while let Some(frame) = Frame::take(&mut buffer)? {
            windows.see(&frame, &mut out);
            match frame.kind {
                kind::HEADERS | kind::DATA if frame.has(flag::END_STREAM) => called.push_back(frame.stream),
                kind::RST_STREAM => called.retain(|stream| *stream != frame.stream),
                _ => {}
            }
        }
        while windows.sendable >= length
            && let Some(stream) = called.pop_front()
        {
            windows.sendable -= length;
            put(&mut out, kind::HEADERS, flag::END_HEADERS, stream, &head);
            put(&mut out, kind::DATA, 0, stream, &message);
            put(&mut out, kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &trailers);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU8;

    use super::*;
    use crate::gateway::h2_client::{Request, converse};
    use crate::gateway::load::{Gate, MEASURING};

    #[test]
    fn the_client_and_the_pod_understand_each_other_beyond_the_first_window() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (near, far) = tokio::io::duplex(1 << 16);
        let (phase, mut times) = (AtomicU8::new(MEASURING), Vec::new());
        // More than the initial window holds, in both directions.
        let (gate, request) = (Gate::new(&phase).at_most(2000), Request::grpc("grpc.example"));
        let done = runtime.block_on(async {
            tokio::select! {
                done = converse(near, &request, 8, &gate, &mut times) => done,
                ended = answer(far) => panic!("the pod ended first: {ended:?}"),
            }
        });
        done.expect("all calls are answered");
        assert!(times.len() >= 2000, "{}", times.len());
    }
}
