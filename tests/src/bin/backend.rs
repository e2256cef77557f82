//! A server for Pods of tests: responds to each line with its name, the client's address, and the address it was reached at.
//!
//! In: a port. Out: lines `name=<host> client=<ip>:<port> server=<ip>:<port>`, as the servers of the testbed say them, so that the same clients can
//! ask. It is small and begins at once, so that what a test measures is not the start of a server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};

fn main() {
    let port = std::env::args().nth(1).and_then(|word| word.parse().ok()).expect("usage: backend PORT");
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).expect("the port is free");
    for stream in listener.incoming().flatten() {
        let name = name.clone();
        std::thread::spawn(move || serve(&name, stream));
    }
}

/// Responds until the client disconnects.
fn serve(name: &str, mut stream: TcpStream) -> std::io::Result<()> {
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let answer = format!("name={name} client={} server={}\n", plain(stream.peer_addr()?), plain(stream.local_addr()?));
    let lines = BufReader::new(stream.try_clone()?).lines();
    for line in lines {
        line?;
        stream.write_all(answer.as_bytes())?;
    }
    Ok(())
}
