use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;

/// A server whose connections each answer a number of requests and are then closed, before or after one more was read.
async fn serve(connections: Vec<(usize, bool)>) -> (Client, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    let config = json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}],
    });
    let served = tokio::spawn(async move {
        let mut requests = Vec::new();
        for (answered, reads_one_more) in connections {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            for number in 0..answered + usize::from(reads_one_more) {
                let mut head = vec![0; 4096];
                let length = stream.read(&mut head).await.expect("a request");
                let line = String::from_utf8_lossy(&head[..length]).lines().next().unwrap_or_default().to_owned();
                requests.push(line);
                if number < answered {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                    stream.write_all(answer).await.expect("an answer");
                }
            }
        }
        requests
    });
    (Client::new(Arc::new(Access::from_value(&config, "a test").expect("a kubeconfig"))), served)
}

async fn send(client: &mut Client, method: Method) -> Result<u16, ClientError> {
    client.json(method, "/version", None).await.map(|(code, _)| code)
}

#[tokio::test]
async fn a_connection_that_the_server_closed_meanwhile_is_not_used_again() {
    for method in [Method::GET, Method::POST] {
        let (mut client, served) = serve(vec![(1, false), (1, false)]).await;
        assert_eq!(send(&mut client, Method::GET).await.expect("an answer"), 200);
        assert_eq!(send(&mut client, method.clone()).await.expect("an answer"), 200);
        assert_eq!(served.await.expect("a server"), ["GET /version HTTP/1.1", &format!("{method} /version HTTP/1.1")]);
    }
}

#[tokio::test]
async fn only_reads_that_a_closing_connection_lost_are_repeated() {
    let (mut client, served) = serve(vec![(1, true), (1, true)]).await;
    assert_eq!(send(&mut client, Method::GET).await.expect("an answer"), 200);
    assert_eq!(send(&mut client, Method::GET).await.expect("an answer"), 200);
    let lost = send(&mut client, Method::DELETE).await;
    assert!(matches!(lost, Err(ClientError::Broken(_))), "{lost:?}");
    let line = |method: &str| format!("{method} /version HTTP/1.1");
    assert_eq!(served.await.expect("a server"), ["GET", "GET", "GET", "DELETE"].map(line));
}
