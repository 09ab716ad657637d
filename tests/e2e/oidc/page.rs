//! The page.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures::FutureExt;
use tempfile::TempDir;

use super::{audited, global, has, timeout, ways};
use crate::harness::{Browser, Global, RealProvider, eventually};

/// From where one is to the provider and back.
async fn log_in(browser: &Browser, global: &Global, provider: &RealProvider, person: &str, place: &str) {
    let at = global.url(place);
    browser.goto(&at).await;
    browser.click(".who a").await;
    browser.reads("#provider", "Log in with").await;
    browser.click("#provider").await;
    provider.agree(browser, person, |url, _| url == at).await;
    browser.reads(".who", person).await;
}

/// Signs out here and there.
async fn log_out(browser: &Browser, global: &Global, provider: &RealProvider) {
    browser.goto(&global.url("/gui/session")).await;
    browser.click("form[action='/gui/session/end'] button").await;
    browser.reads("main", "You are signed out here").await;
    browser.reads(".who", "Sign in").await;
    browser.click("main a.button").await;
    let overview = global.url("/gui");
    provider.agree(browser, "nobody", |url, _| url == overview).await;
}

async fn tells_that_nobody_is_there(browser: &Browser, global: &Global, provider: &RealProvider) {
    assert_eq!(global.get("/authn").await, ways(&provider.issuer()));
    let shown = global.get("/config").await;
    let section = &shown["apiServer"]["authn"]["openIdConnect"];
    assert_eq!(section["issuer"], provider.issuer(), "{section}");
    browser.goto(&global.url("/gui/login")).await;
    browser.reads("main", "could not be asked for its keys yet").await;
    browser.reads("main", "User token").await;
    assert!(
        !browser.complaints().await.iter().any(|one| !one.contains("503")),
        "only the answer is complained of"
    );
}

async fn ann_is_administrator(browser: &Browser, global: &Global, provider: &RealProvider) {
    log_in(browser, global, provider, "ann", "/gui/policies?mesh=default").await;
    assert!(browser.complaints().await.is_empty());
    browser.goto(&global.url("/gui/session")).await;
    browser
        .reads("main", "You are ann, of platform, everybody, mesh-system:openid, mesh-system:authenticated.")
        .await;
    browser.picture("global-session-provider-1280-light").await;
    browser.goto(&global.url("/gui/resources/globalsecrets/user-token-signing-key-1")).await;
    browser.reads("h1", "user-token-signing-key-1").await;
    let log = audited(global, "ann").await;
    assert!(has(&log, "GET", "/gui/login/done", "done"), "{log:?}");
    assert!(has(&log, "GET", "/globalsecrets/user-token-signing-key-1", "done"), "{log:?}");
    // No script reads the session, and it is sent to the page alone.
    let cookie = browser.eval("return document.cookie").await;
    assert_eq!(cookie, "", "no script sees it");
    log_out(browser, global, provider).await;
    browser.goto(&global.url("/gui/resources/globalsecrets/user-token-signing-key-1")).await;
    browser.reads("main", "Sign in").await;
}

async fn bob_writes_what_his_group_may(browser: &Browser, global: &Global, provider: &RealProvider) {
    log_in(browser, global, provider, "bob", "/gui/change").await;
    browser.write("#documents", &timeout("by-bob")).await;
    browser.click("button[value=preview]").await;
    browser.reads("button[value=apply]", "Apply it").await;
    browser.click("button[value=apply]").await;
    browser.reads("main", "How far it is").await;
    let history = global.get("/meshes/default/meshtimeouts/by-bob/_history").await;
    assert!(history.to_string().contains("user bob"), "{history}");
    browser.goto(&global.url("/gui/change")).await;
    browser.write("#documents", &timeout("of-others")).await;
    browser.click("button[value=preview]").await;
    browser.reads("main", "cannot").await;
    let log = audited(global, "bob").await;
    assert!(has(&log, "PUT", "/meshes/default/meshtimeouts/by-bob", "done"), "{log:?}");
    browser.complaints().await;
    log_out(browser, global, provider).await;
}

async fn eve_is_no_administrator(browser: &Browser, global: &Global, provider: &RealProvider) {
    log_in(browser, global, provider, "eve", "/gui/zones").await;
    browser.goto(&global.url("/gui/session")).await;
    browser.reads("main", "You are eve, of everybody, mesh-system:openid, mesh-system:authenticated.").await;
    browser.goto(&global.url("/gui/resources/globalsecrets/user-token-signing-key-1")).await;
    browser.reads("main", "cannot").await;
}

#[tokio::test]
async fn people_log_in_on_the_page() {
    let Some(mut provider) = RealProvider::new(3600) else { return };
    let folder = TempDir::new().unwrap();
    let global = global(&provider, folder.path()).await;
    let browser = Browser::start().await;
    let looking = async {
        browser.looks(1280, "light").await;
        tells_that_nobody_is_there(&browser, &global, &provider).await;
        provider.start(&[global.url("")]).await;
        eventually("the control plane knows the provider", || async {
            let metrics = global.metrics().await;
            let is_known =
                |line: &str| line.starts_with("openid_fetches_total") && line.contains("outcome=\"done\"");
            if metrics.lines().any(is_known) { Ok(()) } else { Err("not asked yet") }
        })
        .await;
        ann_is_administrator(&browser, &global, &provider).await;
        bob_writes_what_his_group_may(&browser, &global, &provider).await;
        eve_is_no_administrator(&browser, &global, &provider).await;
    };
    // A browser that nobody ends goes on without its driver.
    let outcome = AssertUnwindSafe(looking).catch_unwind().await;
    browser.quit().await;
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
}
