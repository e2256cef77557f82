//! Login, with a browser: a link, a second use of it, no link at all, and a restarted server.

use testbed::browser::Browser;
use testbed::{Home, Server};

use super::{link, server, visitor};

const LIVE: &str = "document.querySelector('#pulse')?.dataset.state === 'live'";
const OUTSIDE: &str = "document.querySelector('main.login')?.innerText.includes('waypost page')";

#[test]
fn a_link_is_valid_once_and_its_token_is_removed_from_the_address() {
    let server = server();
    let stranger = Browser::start(900, 700);
    stranger.open(&format!("https://{}/page/", server.address));
    stranger.until(OUTSIDE);

    let link = link(&server);
    let browser = Browser::start(1280, 900);
    browser.open(&link);
    browser.until(LIVE);
    assert_eq!(browser.eval("return location.hash"), "#/");
    assert_eq!(browser.eval("return document.cookie"), "", "no script sees the cookie");
    browser.reload();
    browser.until(LIVE);
    assert_eq!(browser.complaints(), [""; 0]);

    stranger.open(&link);
    stranger.until("document.querySelector('[role=alert]')?.innerText.includes('used already')");
    stranger.until(OUTSIDE);
}

#[test]
fn logging_out_shows_the_login_view() {
    let server = server();
    let browser = visitor(&server);
    browser
        .until("[...document.querySelectorAll('button')].find((one) => one.innerText === 'Log out')?.click() ?? true");
    browser.until(OUTSIDE);
    browser.reload();
    browser.until(OUTSIDE);
}

#[test]
fn a_lost_connection_is_shown_and_the_page_reconnects() {
    let home = testbed::folder();
    let mut first = Server::start_with(Home::Kept(home.path().to_owned()), &[]);
    let address = first.address.clone();
    let browser = visitor(&first);
    // Services are shown once the server has diagnosed them.
    browser.until("document.querySelector('main')?.innerText.includes('kubernetes')");
    first.kill();
    browser.until("document.querySelector('#lost')?.innerText.includes('Connection lost')");
    assert!(browser.text("#lost").contains("The data below is of that moment"));
    assert!(browser.text("main").contains("kubernetes"), "what was known is still shown");
    assert_eq!(browser.eval("return document.querySelector('main').dataset.stale"), "true");

    // Sessions are kept in memory alone: a new server requires a new login.
    let second = Server::start_with(Home::Kept(home.path().to_owned()), &["--listen", &address]);
    browser.until(OUTSIDE);
    assert!(browser.text("[role=alert]").contains("restarted"), "{}", browser.text("body"));
    browser.open(&link(&second));
    browser.until(LIVE);
    browser.until("document.querySelector('#lost') === null");
}
