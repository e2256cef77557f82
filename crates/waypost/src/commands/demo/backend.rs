//! The backend of the demo: creates thumbnails, and responds with the name of its Pod.
//!
//! In: HTTP requests. Out: for `POST /thumbnail` the thumbnail; for `/environment`, `/resolver` and `/addresses/NAME` what this
//! Pod can discover of the cluster. It is this program itself, so that the demo needs no image.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};

use super::http::Message;
use super::picture;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until the process is stopped.
pub(super) fn exec(port: u16) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).with_context(|| format!("listening on {port}"))?;
    for stream in listener.incoming().flatten() {
        // Errors of clients are ignored.
        std::thread::spawn(move || serve(stream));
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let request = Message::read(&mut stream)?;
    let (code, body) = match answer(&request) {
        Ok(body) => ("200 OK", body),
        Err(error) => ("400 Bad Request", error.to_string().into_bytes()),
    };
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let headers = vec![("x-pod".to_owned(), of("POD_NAME")), ("x-version".to_owned(), of("VERSION"))];
    Message { first: format!("HTTP/1.1 {code}"), headers, body }.write(&mut stream)
}

fn answer(request: &Message) -> anyhow::Result<Vec<u8>> {
    match request.subject() {
        "/healthz" => Ok(b"ok".to_vec()),
        "/thumbnail" => picture::thumbnail(&request.body),
        "/environment" => {
            let all: Map<String, Value> = std::env::vars().map(|(name, value)| (name, value.into())).collect();
            Ok(Value::Object(all).to_string().into_bytes())
        }
        "/resolver" => Ok(std::fs::read("/etc/resolv.conf")?),
        path => match path.strip_prefix("/addresses/") {
            // With the resolver of the C library, as other programs.
            Some(name) => match (name, 80).to_socket_addrs() {
                Ok(found) => Ok(found.map(|address| format!("{}\n", address.ip())).collect::<String>().into_bytes()),
                Err(error) => bail!("{name}: {error}"),
            },
            None => bail!("there are /thumbnail, /environment, /resolver and /addresses/NAME"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_and_questions_are_answered_and_the_rest_refused() {
        let ask = |path: &str, body: &[u8]| {
            answer(&Message { first: format!("GET {path} HTTP/1.1"), headers: Vec::new(), body: body.to_vec() })
        };
        let small = picture::thumbnail(&picture::sample()).expect("a thumbnail");
        assert_eq!(ask("/thumbnail", &picture::sample()).expect("a thumbnail"), small);
        assert!(ask("/thumbnail", b"no picture").is_err() && ask("/elsewhere", b"").is_err());
        let variables: Value = serde_json::from_slice(&ask("/environment", b"").expect("variables")).expect("JSON");
        assert_eq!(variables["PATH"].as_str(), std::env::var("PATH").ok().as_deref());
        assert_eq!(ask("/addresses/127.0.0.1", b"").expect("an address"), b"127.0.0.1\n");
    }
}
