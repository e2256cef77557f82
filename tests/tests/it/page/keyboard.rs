//! The page without a mouse.

use testbed::browser::Browser;
use testbed::browser::keys::{DOWN, END, ENTER, ESCAPE, HOME, RIGHT, TAB, UP};

use super::{expose, row_is, server, visitor};

/// The Service whose row has the focus.
fn focused(browser: &Browser) -> String {
    let key = browser.eval("return document.activeElement?.closest('[data-key]')?.dataset.key ?? ''");
    key.as_str().unwrap_or_default().to_owned()
}

#[test]
fn everything_can_be_reached_and_left_by_keys() {
    let server = server();
    let mut session = server.session();
    for name in ["a", "b", "c", "d", "e"] {
        expose(&mut session, name, name);
    }
    let browser = visitor(&server);
    browser.until(&row_is("e", "failing"));
    // From the top by tabs: the first stop leads past everything, and each stop can be seen.
    browser.press(&[TAB]);
    assert_eq!(browser.eval("return document.activeElement.innerText"), "Skip to content");
    let mut stops = Vec::new();
    for _ in 0..25 {
        browser.press(&[TAB]);
        let seen = "const one = document.activeElement; return getComputedStyle(one).outlineStyle !== 'none' && one.getClientRects().length > 0";
        assert_eq!(browser.eval(seen), true, "the focus cannot be seen after {stops:?}");
        if !focused(&browser).is_empty() {
            break;
        }
        stops.push(browser.eval("return document.activeElement.innerText || document.activeElement.id").to_string());
    }
    assert_eq!(focused(&browser), "default/a", "the list is one stop, after {stops:?}");
    for wanted in ["Maps", "Events", "filter"] {
        assert!(stops.iter().any(|stop| stop.contains(wanted)), "{wanted} is no stop: {stops:?}");
    }

    // Two presses before the next picture are two steps.
    browser.press(&[DOWN, DOWN]);
    browser.until("document.activeElement?.closest('[data-key]')?.dataset.key === 'default/c'");
    browser.press(&[DOWN, DOWN, UP]);
    browser.until("document.activeElement?.closest('[data-key]')?.dataset.key === 'default/d'");
    browser.press(&[HOME]);
    browser.until("document.activeElement?.closest('[data-key]')?.dataset.key === 'default/a'");
    browser.press(&[END, UP]);
    browser.until("document.activeElement?.closest('[data-key]')?.dataset.key === 'default/e'");
    // A row that comes in above does not move the focus.
    expose(&mut session, "aa", "aa");
    browser.until(&row_is("aa", "failing"));
    assert_eq!(focused(&browser), "default/e");

    browser.press(&[ENTER]);
    browser.until("location.hash === '#/service/default/e' && document.activeElement?.id === 'title'");
    assert_eq!(browser.eval("return document.title"), "default/e – Waypost");
}

#[test]
fn a_slash_leads_to_the_filter_and_the_list_answers() {
    let server = server();
    let mut session = server.session();
    for name in ["apple", "pear", "plum"] {
        expose(&mut session, name, name);
    }
    let browser = visitor(&server);
    browser.until(&row_is("plum", "failing"));
    browser.press(&["/"]);
    browser.until("document.activeElement?.id === 'filter'");
    browser.type_text("p/l");
    browser.until("document.querySelector('.count').innerText.startsWith('0 of 4')");
    browser.run("document.activeElement.select()");
    browser.type_text("app=pl");
    browser.until("document.querySelector('.count').innerText.startsWith('1 of 4')");
    assert!(browser.text(".picture").contains("plum"), "{}", browser.text("main"));
}

#[test]
fn a_map_is_walked_by_arrows() {
    let server = server();
    let browser = visitor(&server);
    browser.open(&format!("https://{}/page/#/maps", server.address));
    browser.until("document.querySelector('.square')?.focus() ?? document.activeElement?.matches('.square')");
    browser.press(&[RIGHT, RIGHT, DOWN]);
    browser.until("document.activeElement?.dataset.cell === '18'");
    browser.press(&[HOME, ENTER]);
    browser.until("document.activeElement?.ariaLabel === '10.96.0.0: free'");
    browser.press(&[RIGHT]);
    browser.until("document.activeElement?.ariaLabel === '10.96.0.1: default/kubernetes'");
    browser.press(&[ESCAPE]);
    browser.until("document.activeElement?.ariaLabel.startsWith('10.96.0.0 to 10.96.0.255')");
}
