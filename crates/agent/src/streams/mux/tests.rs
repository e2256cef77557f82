use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::streams::spdy;

fn written(mux: &Mux) -> Vec<u8> {
    let mut out = BytesMut::new();
    let _ = mux.next(&mut out);
    out.to_vec()
}

#[tokio::test]
async fn streams_are_served_round_robin() {
    let mux = Mux::new(spdy::Encoder);
    let (mut a, mut b) = (mux.add(1).expect("a stream"), mux.add(3).expect("a stream"));
    a.write_all(&[1; 40_000]).await.expect("room");
    b.write_all(&[3; 10]).await.expect("room");
    let out = written(&mux);
    // One round: a part of the first stream, all of the second.
    assert_eq!(out.len(), 8 + 16 * 1024 + 8 + 10);
    assert_eq!((out[3], out[8 + 16 * 1024 + 3]), (1, 3));
}

#[tokio::test]
async fn buffers_are_bounded() {
    let mux = Mux::new(spdy::Encoder);
    let mut stream = mux.add(1).expect("a stream");
    assert_eq!(stream.write(&vec![0; HOLD * 2]).await.expect("room"), HOLD);
    let full = tokio::time::timeout(std::time::Duration::from_millis(20), stream.write(b"x"));
    assert!(full.await.is_err());
    mux.deliver(1, Bytes::from(vec![0; HOLD]));
    assert!(!mux.may_deliver(1));
    let mut some = [0; 1000];
    stream.read_exact(&mut some).await.expect("bytes");
    assert!(mux.may_deliver(1));
    for id in (3..).step_by(2).take(HOLD_ALL / HOLD) {
        std::mem::forget(mux.add(id).expect("a stream"));
        mux.deliver(id, Bytes::from(vec![0; HOLD]));
    }
    assert!(!mux.may_deliver(1), "all streams together hold too much");
    drop(stream);
    assert!(mux.may_deliver(1), "discarded data is not buffered");
}

#[tokio::test]
async fn data_written_before_shutdown_is_sent_after_drop() {
    let mux = Mux::new(spdy::Encoder);
    let mut stream = mux.add(1).expect("a stream");
    stream.write_all(b"last words").await.expect("room");
    stream.shutdown().await.expect("finished");
    drop(stream);
    let out = written(&mux);
    assert_eq!((&out[8..], out[4]), (&b"last words"[..], 1));
    assert!(mux.add(1).is_some(), "it is gone");

    let mut stream = mux.add(3).expect("a stream");
    stream.write_all(b"half a").await.expect("room");
    drop(stream);
    assert_eq!(written(&mux)[..4], [0x80, 3, 0, 3], "a reset and nothing else");
}

#[tokio::test]
async fn the_end_of_a_connection_resets_its_streams() {
    let mux = Mux::new(spdy::Encoder);
    let (mut a, mut b) = (mux.add(1).expect("a stream"), mux.add(3).expect("a stream"));
    mux.finish(3);
    mux.end();
    let mut all = Vec::new();
    assert!(a.read_to_end(&mut all).await.is_err(), "no end of stream was received");
    assert_eq!(b.read_to_end(&mut all).await.expect("the end"), 0);
    assert!(a.write_all(b"x").await.is_err());
    mux.ended().await;
}

#[tokio::test]
async fn close_flushes_buffered_data() {
    let mux = Mux::new(spdy::Encoder);
    let mut stream = mux.add(1).expect("a stream");
    stream.write_all(&[0; 50_000]).await.expect("room");
    stream.shutdown().await.expect("finished");
    mux.close();
    let mut out = BytesMut::new();
    let mut all = Vec::new();
    while let Next::Write = mux.next(&mut out) {
        all.extend_from_slice(&out.split());
    }
    let goaway = all.len() - 16;
    assert!(goaway > 50_000);
    assert_eq!(all[goaway..goaway + 4], [0x80, 3, 0, 7]);
}
