//! A real browser, driven as a person would drive it: Chromium through chromedriver, spoken to over HTTP.
//!
//! In: addresses, key presses, scripts. Out: what the page then is. Waiting is done inside the page, picture by picture, until what is waited for
//! is so; nothing waits for ever. A browser that is missing fails the test that needs it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::session::TIMEOUT;

/// What a person presses; the numbers are WebDriver's.
pub mod keys {
    /// Tab.
    pub const TAB: &str = "\u{e004}";
    /// Enter.
    pub const ENTER: &str = "\u{e007}";
    /// Escape.
    pub const ESCAPE: &str = "\u{e00c}";
    /// End.
    pub const END: &str = "\u{e010}";
    /// Home.
    pub const HOME: &str = "\u{e011}";
    /// Arrow up.
    pub const UP: &str = "\u{e013}";
    /// Arrow right.
    pub const RIGHT: &str = "\u{e014}";
    /// Arrow down.
    pub const DOWN: &str = "\u{e015}";
}

/// How often chromedriver is started until it has a port.
const STARTS: usize = 5;

/// A browser with one window.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// What the browser keeps; removed with it.
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser with a window of this size.
    #[must_use]
    #[track_caller]
    pub fn start(width: u32, height: u32) -> Self {
        let (driver, port) = driver();
        let profile = crate::folder();
        let options = json!({
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", "--disable-component-update",
                format!("--window-size={width},{height}"), format!("--user-data-dir={}", profile.path().display()),
            ],
        });
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "acceptInsecureCerts": true, "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"}, "timeouts": {"script": TIMEOUT.as_millis()},
        }}});
        let mut browser = Self { driver, port, session: String::new(), _profile: profile };
        let made = browser.ask("POST", "/session", &wanted);
        browser.session = made["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    /// Opens an address.
    #[track_caller]
    pub fn open(&self, url: &str) {
        self.command("POST", "/url", &json!({"url": url}));
    }

    /// Reloads the page.
    #[track_caller]
    pub fn reload(&self) {
        self.command("POST", "/refresh", &json!({}));
    }

    /// Runs a script, whose `return` is the answer.
    #[must_use]
    #[track_caller]
    pub fn eval(&self, script: &str) -> Value {
        self.command("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Runs a script for what it does.
    #[track_caller]
    pub fn run(&self, script: &str) {
        self.command("POST", "/execute/sync", &json!({"script": script, "args": []}));
    }

    /// Runs a script of which `await` is a part.
    #[must_use]
    #[track_caller]
    pub fn eval_async(&self, body: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1];\
             (async () => {{ {body} }})().then(done, (error) => done('failed: ' + error));"
        );
        self.command("POST", "/execute/async", &json!({"script": script, "args": []}))
    }

    /// Waits until an expression is true, and answers what it is then.
    #[track_caller]
    pub fn until(&self, expression: &str) -> Value {
        let timeout = TIMEOUT.as_millis() / 2;
        let script = format!(
            "const done = arguments[arguments.length - 1];\
             const begun = performance.now();\
             const look = () => {{\
               let now; try {{ now = ({expression}); }} catch (error) {{ now = null; }}\
               if (now) done({{now}}); else if (performance.now() - begun > {timeout}) done(null); else setTimeout(look, 15);\
             }}; look();"
        );
        let mut found = self.command("POST", "/execute/async", &json!({"script": script, "args": []}));
        assert!(!found.is_null(), "this did not become true: {expression}\nthe page says:\n{}", self.text("body"));
        found["now"].take()
    }

    /// The visible text of the first element of a selector.
    #[must_use]
    #[track_caller]
    pub fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({selector:?})?.innerText ?? ''");
        self.eval(&script).as_str().unwrap_or_default().to_owned()
    }

    /// Clicks on the first element of a selector, with the mouse.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let found = self.command("POST", "/element", &json!({"using": "css selector", "value": selector}));
        let element = found.as_object().and_then(|map| map.values().next()).and_then(Value::as_str);
        let element = element.unwrap_or_else(|| panic!("there is no {selector}"));
        self.command("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Presses keys, one right after the other, wherever the focus is.
    #[track_caller]
    pub fn press(&self, keys: &[&str]) {
        let actions: Vec<Value> =
            keys.iter().flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key}))).collect();
        self.command("POST", "/actions", &json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}));
    }

    /// Types text, letter by letter.
    #[track_caller]
    pub fn type_text(&self, text: &str) {
        let letters: Vec<String> = text.chars().map(String::from).collect();
        self.press(&letters.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Makes the browser prefer light or dark.
    #[track_caller]
    pub fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let command = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}});
        self.command("POST", "/goog/cdp/execute", &command);
    }

    /// Console messages of the browser since the last call: script errors, load errors, and violations of the page's content security policy.
    #[must_use]
    #[track_caller]
    pub fn complaints(&self) -> Vec<String> {
        let log = self.command("POST", "/se/log", &json!({"type": "browser"}));
        let entries = log.as_array().into_iter().flatten();
        entries
            .filter(|entry| entry["level"] == "SEVERE" || entry["source"] == "security")
            .map(|entry| entry["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    #[track_caller]
    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        self.ask(method, &format!("/session/{}{path}", self.session), body)
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let (code, mut answer) =
            exchange(self.port, method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        assert_eq!(code, 200, "{method} {path}: {}", answer["value"]["message"]);
        answer["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser; without it, killing the driver would leave it behind.
        let _ = exchange(self.port, "DELETE", &format!("/session/{}", self.session), &json!({}));
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Starts chromedriver at a port that it chooses. It picks one that is free in one address family and binds it in the other, too, where it may be
/// in use: then it exits, and the next one picks again.
fn driver() -> (Child, u16) {
    (0..STARTS).find_map(|_| begin_driver()).expect("chromedriver says its port")
}

fn begin_driver() -> Option<(Child, u16)> {
    let mut child = Command::new("chromedriver")
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("chromedriver is needed for this test (package chromium-driver): {error}"));
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    let Some(port) = port else {
        // Its output has ended, so it has, or is about to.
        let _ = child.wait();
        return None;
    };
    // It keeps writing; the output is discarded, and the pipe must stay open.
    std::thread::spawn(move || lines.for_each(drop));
    Some((child, port))
}

/// One request, one answer, one connection.
fn exchange(port: u16, method: &str, path: &str, body: &Value) -> std::io::Result<(u16, Value)> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(TIMEOUT * 2))?;
    let body = if method == "GET" || method == "DELETE" { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes())?;
    socket.write_all(body.as_bytes())?;
    let mut answer = BufReader::new(socket);
    let mut line = String::new();
    answer.read_line(&mut line)?;
    let code = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let mut length = 0;
    loop {
        line.clear();
        if answer.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut bytes = vec![0; length];
    answer.read_exact(&mut bytes)?;
    Ok((code, serde_json::from_slice(&bytes)?))
}
