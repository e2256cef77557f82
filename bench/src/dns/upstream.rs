//! The upstream server for external names: answers every A query with the same address, and everything else with NODATA.

use std::net::{SocketAddr, UdpSocket};

use anyhow::Context as _;

/// Type and class of an A query.
const ADDRESS: [u8; 4] = [0, 1, 0, 1];
/// Its response: the queried name, a TTL of one hour, 192.0.2.80.
const RECORD: [u8; 16] = [0xc0, 12, 0, 1, 0, 1, 0, 0, 14, 16, 0, 4, 192, 0, 2, 80];
/// The length of the header.
const HEADER: usize = 12;

/// Starts serving, for as long as the program runs.
///
/// # Errors
/// When the address cannot be bound.
pub fn open(at: SocketAddr) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(at).with_context(|| format!("listening on {at}"))?;
    std::thread::Builder::new().name("upstream".to_owned()).spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            if let Some(answer) = answer(&buffer[..count]) {
                let _ = socket.send_to(&answer, from);
            }
        }
    })?;
    Ok(())
}

/// The question alone, without what may follow it, and its answer.
fn answer(message: &[u8]) -> Option<Vec<u8>> {
    let mut end = HEADER;
    while *message.get(end)? != 0 {
        end += 1 + usize::from(message[end]);
    }
    let mut out = message.get(..end + 5)?.to_vec();
    let is_address = out.ends_with(&ADDRESS);
    out[2..HEADER].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    if is_address {
        out.extend(RECORD);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_answered_and_nothing_else() {
        let ask = |kind: u8| [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, b'a', 0, 0, kind, 0, 1][..], &[0; 11]].concat();
        let found = answer(&ask(1)).expect("an answer");
        assert_eq!((found.len(), &found[..8]), (19 + 16, &[0, 7, 0x81, 0x80, 0, 1, 0, 1][..]));
        assert_eq!(answer(&ask(13)).expect("an answer").len(), 19);
        assert_eq!(answer(&[0; 12]), None);
    }
}
