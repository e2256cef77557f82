//! A thousand Services: the document stays small, and the page answers.

use testbed::browser::keys::{END, HOME};

use super::{expose, run_pod, server, visitor};

#[test]
fn a_thousand_services_stay_fluid() {
    let server = server();
    let mut session = server.session();
    run_pod(&mut session, "web-1", "web", "10.244.0.41", true);
    for at in 0..1000 {
        expose(&mut session, &format!("svc-{at:04}"), if at % 2 == 0 { "web" } else { "none" });
    }
    let browser = visitor(&server);
    browser.until("document.querySelector('.count').innerText.startsWith('1001 of 1001')");
    browser.until("document.querySelector('.chips').innerText.includes('500')");
    let size = "return document.querySelectorAll('*').length";
    let small = browser.eval(size).as_u64().expect("a number");
    assert!(small < 1500, "{small} elements");

    browser.run("document.querySelector('[data-row]').focus()");
    browser.press(&[END]);
    browser.until("document.activeElement?.closest('[data-key]')?.dataset.key === 'default/svc-0999'");
    let posinset = "return document.activeElement.closest('li').getAttribute('aria-posinset')";
    assert_eq!(browser.eval(posinset), "1001", "a screen reader hears how far it is");
    browser.press(&[HOME]);
    browser.until("document.activeElement?.closest('[data-key]')?.dataset.key === 'default/kubernetes'");

    // A hundred changes one after the other: each is shown in the end.
    for at in 0..100 {
        expose(&mut session, &format!("new-{at:03}"), "web");
    }
    browser.until("document.querySelector('.count').innerText.startsWith('1101 of 1101')");
    browser.press(&["/"]);
    browser.type_text("new-099");
    browser.until("document.querySelector('.count').innerText.startsWith('1 of 1101')");
    assert!(browser.text(".picture").contains("new-099"));
    let grown = browser.eval(size).as_u64().expect("a number");
    assert!(grown < 1500, "{grown} elements");
    assert_eq!(browser.complaints(), [""; 0]);
}
