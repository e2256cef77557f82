use super::client::{Connection, Frame, Plain, Socket, agent, control, data};

const EXEC: &str = "/exec/default/web/main?output=1&error=1";

fn exec(words: &[&str]) -> String {
    words.iter().fold(EXEC.to_owned(), |path, word| format!("{path}&command={word}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn exec_over_websocket_returns_output_and_status() {
    for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io"] {
        let (agent, _) = agent();
        let mut socket = Socket::open(&agent, &exec(&["echo", "hello"]), protocol).await;
        let (channels, code) = socket.channels().await;
        assert_eq!(text(&channels[1]), "hello\n");
        assert_eq!(text(&channels[3]), r#"{"metadata":{},"status":"Success"}"#);
        assert_eq!(code, 1000);
    }
}

#[tokio::test]
async fn the_first_message_is_empty() {
    let (agent, _) = agent();
    let mut socket = Socket::open(&agent, &exec(&["hang"]), "v4.channel.k8s.io").await;
    assert_eq!(socket.next().await, (2, vec![1].into()));
    let mut socket = Socket::open(&agent, "/exec/default/web/main?error=1&command=hang", "v4.channel.k8s.io").await;
    assert_eq!(socket.next().await, (2, vec![2].into()));
    let mut socket = Socket::open(&agent, "/exec/default/web/main?input=1&command=hang", "v4.channel.k8s.io").await;
    assert_eq!(socket.next().await, (2, vec![3].into()));
}

#[tokio::test]
async fn legacy_protocols_use_text_errors_and_base64() {
    let (agent, _) = agent();
    let mut socket = Socket::open(&agent, &exec(&["exit", "3"]), "channel.k8s.io").await;
    let (channels, _) = socket.channels().await;
    let wanted = "command terminated with non-zero exit code: error executing command [exit 3], exit code 3";
    assert_eq!(text(&channels[3]), wanted);
    let mut socket = Socket::open(&agent, &exec(&["exit", "0"]), "").await;
    assert_eq!(socket.channels().await.0[3], b"");

    let mut socket = Socket::open(&agent, &format!("{}&input=1", exec(&["cat"])), "v4.base64.channel.k8s.io").await;
    assert_eq!(socket.next().await, (1, "1".into()));
    socket.send(1, b"0aGVsbG8=").await;
    assert_eq!(socket.next().await, (1, "1aGVsbG8=".into()));
    socket.send(1, b"0not base64!").await;
    let (kind, reason) = socket.next().await;
    assert_eq!((kind, &reason[..2]), (8, &1007u16.to_be_bytes()[..]));
}

#[tokio::test]
async fn v5_has_a_close_message_for_stdin() {
    let (agent, _) = agent();
    let mut socket = Socket::open(&agent, &format!("{}&input=1", exec(&["cat"])), "v5.channel.k8s.io").await;
    socket.send(2, b"\0one ").await;
    // In parts, with a ping between them.
    socket.0.send(&super::client::masked(0x02, b"\0tw")).await;
    socket.send(9, b"there?").await;
    socket.0.send(&super::client::masked(0x80, b"o")).await;
    socket.send(2, &[255, 0]).await;
    let (channels, code) = socket.channels().await;
    assert_eq!((text(&channels[1]).as_str(), code), ("one two", 1000));
    assert!(text(&channels[3]).contains("Success"));
}

#[tokio::test]
async fn pings_are_answered() {
    let (agent, _) = agent();
    let mut socket = Socket::open(&agent, &exec(&["hang"]), "v5.channel.k8s.io").await;
    assert_eq!(socket.next().await.0, 2);
    socket.send(9, b"you there?").await;
    assert_eq!(socket.next().await, (10, "you there?".into()));
}

#[tokio::test]
async fn a_command_is_killed_when_its_client_disconnects() {
    let (agent, fake) = agent();
    let mut socket = Socket::open(&agent, &exec(&["hang"]), "v5.channel.k8s.io").await;
    socket.send(8, &1000u16.to_be_bytes()).await;
    let (_, code) = socket.channels().await;
    assert_eq!(code, 1000);
    fake.until_ended_early(1).await;
    drop(Socket::open(&agent, &exec(&["hang"]), "v5.channel.k8s.io").await);
    fake.until_ended_early(2).await;
    // An attached process keeps running.
    drop(Socket::open(&agent, "/attach/default/web/main?input=1&output=1", "v5.channel.k8s.io").await);
    let mut socket = Socket::open(&agent, "/attach/default/web/main?input=1&output=1", "v4.channel.k8s.io").await;
    assert_eq!(socket.next().await, (2, vec![1].into()));
    socket.send(2, b"\0still here").await;
    assert_eq!(socket.next().await, (2, "\u{1}still here".into()));
    assert_eq!(fake.ended_early(), 2);
}

#[tokio::test]
async fn terminal_sizes_are_applied() {
    let (agent, _) = agent();
    let path = "/exec/default/web/main?output=1&tty=1&command=sizes&command=2";
    let mut socket = Socket::open(&agent, path, "v5.channel.k8s.io").await;
    socket.send(2, b"\x04{\"Width\":80,\"Height\":24}").await;
    socket.send(2, b"\x04{\"Width\":132,\"Height\":50}").await;
    assert_eq!(text(&socket.channels().await.0[1]), "80x24\n132x50\n");

    let mut plain = Plain::open(&agent, path, "v3.channel.k8s.io").await;
    for (id, kind) in [(1, "error"), (3, "stdout"), (5, "resize")] {
        plain.stream(id, &[("streamtype", kind)]).await;
    }
    plain.connection.send(&data(5, b"{\"Width\":1,\"Height\":2}\n{\"Width\":3,\"Height\":4}\n", false)).await;
    assert_eq!(text(&plain.all_of(3).await), "1x2\n3x4\n");
}

#[tokio::test]
async fn a_command_over_spdy_in_every_version() {
    let (agent, _) = agent();
    let wanted = "command terminated with non-zero exit code: error executing command [exit 4], exit code 4";
    for (version, report) in [
        ("v4.channel.k8s.io", r#""message":"4","#),
        ("v3.channel.k8s.io", wanted),
        ("v2.channel.k8s.io", wanted),
        ("channel.k8s.io", wanted),
    ] {
        let mut plain = Plain::open(&agent, &exec(&["exit", "4"]), version).await;
        for (id, kind) in [(1, "error"), (3, "stdout"), (5, "stderr")] {
            plain.stream(id, &[("streamtype", kind)]).await;
            assert_eq!(plain.next().await, Some(Frame::Reply(id)));
        }
        let (mut said, mut ended) = (Vec::new(), Vec::new());
        while let Some(frame) = plain.next().await {
            match frame {
                Frame::Data(1, bytes, finish) => {
                    said.extend_from_slice(&bytes);
                    ended.extend(finish.then_some(1));
                }
                Frame::Data(id, bytes, true) if bytes.is_empty() => ended.push(id),
                Frame::Goaway => break,
                other => panic!("{other:?}"),
            }
        }
        ended.sort_unstable();
        assert_eq!(ended, [1, 3, 5]);
        let said = text(&said);
        assert!(said.contains(report) || said.contains(r#""message":"4""#), "{version}: {said}");
    }
}

#[tokio::test]
async fn streams_can_be_half_closed() {
    let (agent, _) = agent();
    let path = format!("{}&input=1", exec(&["cat"])).replace("&error=1", "");
    let mut plain = Plain::open(&agent, &path, "v4.channel.k8s.io").await;
    for (id, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
        plain.stream(id, &[("streamtype", kind)]).await;
    }
    plain.connection.send(&data(3, b"all of it", true)).await;
    assert_eq!(text(&plain.all_of(5).await), "all of it");
    assert!(text(&plain.all_of(1).await).contains("Success"));
}

#[tokio::test]
async fn large_output_is_complete_for_clients_without_window_updates() {
    let (agent, _) = agent();
    let mut plain = Plain::open(&agent, &exec(&["flood", "3000000"]), "v4.channel.k8s.io").await;
    for (id, kind) in [(1, "error"), (3, "stdout"), (5, "stderr")] {
        plain.stream(id, &[("streamtype", kind)]).await;
    }
    assert_eq!(plain.all_of(3).await.len(), 3_000_000);
    let mut socket = Socket::open(&agent, &exec(&["flood", "3000000"]), "v5.channel.k8s.io").await;
    assert_eq!(socket.channels().await.0[1].len(), 3_000_000);
}

#[tokio::test]
async fn windows_of_settings_are_respected() {
    let (agent, _) = agent();
    let mut plain = Plain::open(&agent, &exec(&["flood", "100000"]).replace("&error=1", ""), "v4.channel.k8s.io").await;
    // SETTINGS: the first window is 1000 bytes.
    plain.connection.send(&control(4, &[0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 3, 232])).await;
    for (id, kind) in [(1, "error"), (3, "stdout")] {
        plain.stream(id, &[("streamtype", kind)]).await;
    }
    let mut have = 0;
    while have < 1000 {
        if let Some(Frame::Data(3, bytes, _)) = plain.next().await {
            have += bytes.len();
        }
    }
    assert_eq!(have, 1000);
    plain.connection.send(&control(6, &[0, 0, 0, 1])).await;
    assert_eq!(plain.next().await, Some(Frame::Ping(1)), "nothing comes until there is room");
    plain.connection.send(&control(9, &[0, 0, 0, 3, 0, 1, 134, 160])).await;
    // All streams together began with 65536.
    while have < 65536 {
        if let Some(Frame::Data(3, bytes, _)) = plain.next().await {
            have += bytes.len();
        }
    }
    plain.connection.send(&control(6, &[0, 0, 0, 3])).await;
    assert_eq!(plain.next().await, Some(Frame::Ping(3)), "nothing comes until there is room");
    plain.connection.send(&control(9, &[0, 0, 0, 0, 0, 1, 134, 160])).await;
    assert_eq!(have + plain.all_of(3).await.len(), 100_000);
}

#[tokio::test]
async fn windows_grow_as_input_is_read() {
    let (agent, _) = agent();
    let path = format!("{}&input=1", exec(&["cat"])).replace("&error=1", "");
    let mut plain = Plain::open(&agent, &path, "v4.channel.k8s.io").await;
    for (id, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
        plain.stream(id, &[("streamtype", kind)]).await;
    }
    plain.connection.send(&data(3, &[7; 60000], false)).await;
    let (mut granted, mut all, mut back) = (0, 0, 0);
    while granted < 32768 || all < 32768 || back < 60000 {
        match plain.next().await {
            Some(Frame::Credit(3, bytes)) => granted += bytes,
            Some(Frame::Credit(0, bytes)) => all += bytes,
            Some(Frame::Data(5, bytes, _)) => back += bytes.len(),
            Some(Frame::Reply(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_read_blocks_its_client() {
    let (agent, fake) = agent();
    let mut socket = Socket::open(&agent, &format!("{}&input=1", exec(&["deaf"])), "v5.channel.k8s.io").await;
    let sent = tokio::time::timeout(std::time::Duration::from_millis(500), async {
        let mut sent = 0;
        loop {
            socket.send(2, &[0; 8192]).await;
            sent += 1;
            assert!(sent < 200, "nothing holds this much");
        }
    });
    assert!(sent.await.is_err());
    drop(socket);
    fake.until_ended_early(1).await;
}

#[tokio::test]
async fn start_errors_are_reported_before_or_on_the_error_stream() {
    let (agent, fake) = agent();
    let upgrade =
        [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "v4.channel.k8s.io")];
    for (path, code, said) in [
        ("/exec/default/none/main?output=1&command=cat", 404, "pod does not exist\n"),
        ("/exec/default/web/other?output=1&command=cat", 404, "container not found (\"other\")\n"),
        ("/exec/default/web/main?output=1", 400, "you must specify at least 1 command\n"),
        ("/portForward/default/none", 404, "pod does not exist\n"),
    ] {
        let mut connection = Connection::new(&agent);
        let (got, _) = connection.ask(&format!("POST {path}"), &upgrade).await;
        assert_eq!((got, text(&connection.exactly(said.len()).await).as_str()), (code, said));
    }
    let mut socket = Socket::open(&agent, &exec(&["nonesuch"]), "v5.channel.k8s.io").await;
    let (channels, _) = socket.channels().await;
    let wanted = "Internal error occurred: error executing command in container: exec: \\\"nonesuch\\\": executable file not found";
    assert!(text(&channels[3]).contains(wanted), "{}", text(&channels[3]));
    let mut socket = Socket::open(&agent, &exec(&["vanish"]), "v5.channel.k8s.io").await;
    assert!(text(&socket.channels().await.0[3]).contains("the process is gone"));

    fake.end(&super::client::web());
    let mut connection = Connection::new(&agent);
    let (code, _) = connection.ask(&format!("POST {}", exec(&["cat"])), &upgrade).await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn unknown_protocols_are_refused() {
    let (agent, _) = agent();
    let spdy = ("Upgrade", "SPDY/3.1");
    for (headers, code) in [
        (vec![], 400),
        (vec![("Connection", "Upgrade"), spdy], 400),
        (vec![("Connection", "Upgrade"), spdy, ("X-Stream-Protocol-Version", "v9.channel.k8s.io")], 403),
        (vec![("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Protocol", "v9")], 403),
        (vec![("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")], 400),
    ] {
        let (got, head) = Connection::new(&agent).ask(&format!("GET {}", exec(&["cat"])), &headers).await;
        assert_eq!(got, code, "{headers:?} {head}");
    }
}
