//! The two clients: `gateway::http1` and hyper's.
//!
//! In: a stream to the server. Out: requests, each with its complete response. Both send the same headers: the gateway's client adds
//! `X-Forwarded-*` itself, hyper's finds them in the request.

use std::future::poll_fn;

use anyhow::ensure;
use bytes::Bytes;
use gateway::headers::Client as Forwarded;
use gateway::http1::chunked::BodyDecoder;
use gateway::http1::{Connection, RequestBody, Stream};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;

use crate::lb::pod::BODY;
use crate::lb::stage;

/// Which client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `gateway::http1`.
    Gateway,
    /// hyper's.
    Hyper,
}

/// One connection of a client, and the headers of its requests.
pub struct Client {
    sender: Sender,
    headers: HeaderMap,
}

enum Sender {
    Gateway(Box<Connection>, Forwarded),
    Hyper(SendRequest<Empty<Bytes>>),
}

impl Client {
    /// Starts HTTP on a stream.
    ///
    /// # Errors
    /// When hyper does not start.
    pub async fn open(kind: Kind, stream: impl Stream + 'static) -> anyhow::Result<Self> {
        let value = HeaderValue::from_static;
        let mut headers = HeaderMap::new();
        headers.insert(HOST, value(stage::HOST));
        headers.insert(USER_AGENT, value("bench/1"));
        headers.insert(ACCEPT, value("*/*"));
        let forwarded = Forwarded { ip: value("192.0.2.7"), port: value("80"), proto: value("http") };
        let sender = match kind {
            Kind::Gateway => Sender::Gateway(Connection::new(stream), forwarded),
            Kind::Hyper => {
                headers.insert("x-forwarded-for", forwarded.ip);
                headers.insert("x-forwarded-port", forwarded.port);
                headers.insert("x-forwarded-proto", forwarded.proto);
                let (sender, connection) = handshake(TokioIo::new(stream)).await?;
                tokio::spawn(connection);
                Sender::Hyper(sender)
            }
        };
        Ok(Self { sender, headers })
    }

    /// One request, and its response to the last byte.
    ///
    /// # Errors
    /// When the response is not the expected one.
    pub async fn exchange(&mut self) -> anyhow::Result<()> {
        let mut length = 0;
        let status = match &mut self.sender {
            Sender::Gateway(connection, forwarded) => {
                let mut request = request(&self.headers, RequestBody::default());
                let head = connection.send_request(&mut request, forwarded).await?;
                let mut decoder = BodyDecoder::new(head.body_length);
                let body = request.body_mut();
                while !decoder.is_done()
                    && let Some(frame) = poll_fn(|cx| connection.poll_body(cx, body, &mut decoder)).await
                {
                    length += frame?.data_ref().map_or(0, Bytes::len);
                }
                head.status
            }
            Sender::Hyper(sender) => {
                sender.ready().await?;
                let (head, mut body) = sender.send_request(request(&self.headers, Empty::new())).await?.into_parts();
                while let Some(frame) = body.frame().await {
                    length += frame?.data_ref().map_or(0, Bytes::len);
                }
                head.status
            }
        };
        ensure!(status == StatusCode::OK && length == BODY, "status {status} with {length} bytes");
        Ok(())
    }
}

fn request<B>(headers: &HeaderMap, body: B) -> Request<B> {
    let mut request = Request::new(body);
    *request.uri_mut() = hyper::Uri::from_static("/index.html");
    *request.headers_mut() = headers.clone();
    request
}
