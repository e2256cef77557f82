//! Receives a header from a connection, and not a byte more.
//!
//! In: a new connection. Out: the client, and the same connection behind the header.

use std::io;
use std::net::SocketAddr;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::{Parsed, parse};

/// Bytes that are looked at together.
const PIECE: usize = 256;

/// Receives a header; returns the client, if the header has one.
///
/// # Errors
/// When the connection ends or begins with something else.
pub(crate) async fn receive(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let mut header = Vec::new();
    let mut piece = [0; PIECE];
    loop {
        let count = stream.peek(&mut piece).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let before = header.len();
        header.extend(piece.iter().take(count));
        let parsed = parse(&header).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        // All bytes of an incomplete header belong to it.
        let ours = match parsed {
            Parsed::Incomplete => count,
            Parsed::Complete { length, .. } => length - before,
        };
        // They are there already.
        stream.read_exact(piece.get_mut(..ours).unwrap_or_default()).await?;
        if let Parsed::Complete { client, .. } = parsed {
            return Ok(client);
        }
    }
}
