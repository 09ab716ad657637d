//! The page of global and of zones in a real browser. Pictures of all of it are written to `target/screenshots`.

use std::panic::{AssertUnwindSafe, resume_unwind};

use common::kds::metadata::Peer;
use futures::FutureExt;
use reqwest::Method;
use serde_json::Value;
use thirtyfour::Key;

use crate::{
    harness::{Browser, Global, KdsPeer, Options, Zone, control_plane::ControlPlane, eventually},
    mesh::{ALLOW_ALL, Member, Shape, federation_with, ingress},
};

const QUICK: &str = "type: MeshTimeout\nmesh: default\nname: quick\nspec:\n  targetRef: {kind: Mesh}\n  to:\n  - targetRef: {kind: Mesh}\n    default: {http: {requestTimeout: 7s}}\n";

const CANARY: &str =
    "type: Rollout\nname: canary\nspec: { waves: [{ zones: { names: [zone-1] }, pause: manual }] }\n";

/// Signs in as administrator, with keys only.
async fn sign_in(browser: &Browser, cp: &ControlPlane) {
    browser.goto(&cp.url("/gui/session")).await;
    browser.write("#token", cp.admin_token().trim()).await;
    browser.press(Key::Enter).await;
    browser.reads("h1", "Overview").await;
    browser.reads(".who", "admin").await;
}

/// The name of a dataplane on a control plane, which is another on global.
async fn dataplane(cp: &ControlPlane, display: &str) -> String {
    eventually("the dataplane is there and connected", || async move {
        let all = cp.try_get("/dataplanes/_overview").await?;
        let mut items = all["items"].as_array().into_iter().flatten();
        let found =
            items.find(|item| item["name"] == display || item["labels"]["kuma.io/display-name"] == display);
        let is_connected =
            |item: &Value| item["dataplaneInsight"]["subscriptions"][0]["connectTime"].is_string();
        let found = found.filter(|item| is_connected(item)).and_then(|item| item["name"].as_str());
        found.map(str::to_owned).ok_or_else(|| all.to_string())
    })
    .await
}

/// Nothing is wider than the window, and nothing stands on the console.
async fn is_well(browser: &Browser, what: &str) {
    let (wide, window) = ("return document.documentElement.scrollWidth", "return window.innerWidth");
    let (wide, window) = (browser.eval(wide).await, browser.eval(window).await);
    assert!(wide.as_u64() <= window.as_u64(), "{what} is {wide} wide in a window of {window}");
    let complaints = browser.complaints().await;
    assert!(complaints.is_empty(), "{what}: {complaints:#?}");
}

/// Every page of a control plane in every size, light and dark.
async fn all_pages(browser: &Browser, cp: &ControlPlane, name: &str, zone: &str) {
    let proxy = dataplane(cp, "client-1").await;
    let pages = [
        ("overview", "/gui".to_owned(), "who reaches whom"),
        ("zones", "/gui/zones".to_owned(), "zone-1"),
        ("zone", format!("/gui/zones/{zone}"), "what is wrong now"),
        ("meshes", "/gui/meshes".to_owned(), "default"),
        ("mesh", "/gui/meshes/default".to_owned(), "who calls whom"),
        ("services", "/gui/services".to_owned(), "backend"),
        ("dataplanes", "/gui/dataplanes".to_owned(), "client-1"),
        ("dataplane", format!("/gui/dataplanes/default/{proxy}"), "certificate"),
        ("dataplane-rules", format!("/gui/dataplanes/default/{proxy}?show=rules"), "meshtrafficpermission"),
        ("dataplane-explain", format!("/gui/dataplanes/default/{proxy}?show=explain"), "outbound:"),
        ("dataplane-config", format!("/gui/dataplanes/default/{proxy}?show=config&find=backend"), "parts"),
        ("dataplane-stats", format!("/gui/dataplanes/default/{proxy}?show=stats&find=upstream"), "lines"),
        ("dataplane-clusters", format!("/gui/dataplanes/default/{proxy}?show=clusters"), "lines"),
        ("policies", "/gui/policies".to_owned(), "allow-all"),
        ("policy", "/gui/resources/meshtrafficpermissions/allow-all?mesh=default".to_owned(), "who has it"),
        ("history", "/gui/history".to_owned(), "revision"),
        ("change", "/gui/change".to_owned(), "yaml"),
        ("rollouts", "/gui/rollouts".to_owned(), "waves"),
        ("session", "/gui/session".to_owned(), "user token"),
    ];
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (320, "light"), (2560, "dark")] {
        browser.looks(width, scheme).await;
        for (page, path, words) in &pages {
            let path = match (name, *page) {
                // What came from global has another name in the zone only where it is not a policy of everybody.
                ("zone", "policy") => policy_of_zone(cp).await,
                _ => path.clone(),
            };
            browser.goto(&cp.url(&path)).await;
            let what = format!("{name}-{page}-{width}-{scheme}");
            let text = browser.text("body").await.to_lowercase();
            assert!(text.contains(words), "{what} lacks {words:?}: {text}");
            is_well(browser, &what).await;
            browser.picture(&what).await;
        }
    }
}

/// Where the zone has what global calls `allow-all`.
async fn policy_of_zone(zone: &ControlPlane) -> String {
    let all = zone.get("/meshes/default/meshtrafficpermissions").await;
    let name = all["items"][0]["name"].as_str().unwrap_or_default().to_owned();
    format!("/gui/resources/meshtrafficpermissions/{name}?mesh=default")
}

/// What an operator asks at night stands where it belongs.
async fn says_everything(browser: &Browser, cp: &ControlPlane, of_zone: &[(&str, &str)]) {
    let proxy = dataplane(cp, "client-1").await;
    let overview = [
        ("#figures", "dataplanes online"),
        ("#map", "ingress"),
        ("#map", "behind"),
        ("#reach", "backend (default)"),
    ];
    let of_proxy = [
        ("#state", "online"),
        ("#certificate", "ca-1"),
        ("#certificate", "Good for"),
        ("#outbounds", "backend"),
        ("#counts", "CDS"),
    ];
    let of_dump = [("main", "backend"), ("main", "parts")];
    let of_found = [("#dataplanes", "client-1")];
    for (path, said) in [
        ("/gui".to_owned(), &overview[..]),
        ("/gui/zones/zone-1".to_owned(), of_zone),
        (format!("/gui/dataplanes/default/{proxy}"), &of_proxy),
        (format!("/gui/dataplanes/default/{proxy}?show=config&find=backend"), &of_dump),
        ("/gui/dataplanes?search=client-1&status=online".to_owned(), &of_found),
    ] {
        browser.goto(&cp.url(&path)).await;
        for (selector, words) in said {
            browser.reads(selector, words).await;
        }
    }
    // How far peers are behind is a line as soon as two looks were taken.
    browser.goto(&cp.url("/gui")).await;
    let lines = "return document.querySelectorAll('#map polyline.spark').length";
    eventually("lines of the last minutes", || async {
        let drawn = browser.eval(lines).await;
        if drawn.as_u64() >= Some(2) { Ok(()) } else { Err(drawn.to_string()) }
    })
    .await;
}

/// Of a zone, by global.
const ZONE_ON_GLOBAL: &[(&str, &str)] = &[
    ("#state", "online"),
    ("#state", "From global"),
    ("#state", "To global"),
    ("#state", "Instance"),
    ("#state", "that is good for"),
    ("#refused", "Nothing is refused"),
    ("#timeline", "The last 24 hours"),
    ("#counts", "MeshTrafficPermission"),
    ("#streams", "global to zone"),
    ("#streams", "config dump"),
    ("#ways", "backend (default)"),
    ("main", "Configuration"),
];

/// Of itself.
const ZONE_ITSELF: &[(&str, &str)] = &[
    ("#state", "connected for"),
    ("#state", "From global"),
    ("#state", "that is good for"),
    ("#refused", "Nothing is refused"),
    ("#withheld", "Nothing is withheld"),
    ("#timeline", "The last 24 hours"),
    ("#received", "MeshTrafficPermission"),
    ("#sent", "Dataplane"),
    ("main", "Configuration"),
];

/// Everything is reached by keys, and it is seen where one is.
async fn keys_suffice(browser: &Browser, global: &Global) {
    browser.looks(1280, "light").await;
    browser.goto(&global.url("/gui")).await;
    let focus = "const at = document.activeElement; return [at.textContent.trim(), getComputedStyle(at).outlineStyle]";
    browser.press(Key::Tab).await;
    let at = browser.eval(focus).await;
    assert_eq!(at[0], "Skip to content", "{at}");
    let mut seen = Vec::new();
    for _ in 0..12 {
        browser.press(Key::Tab).await;
        let at = browser.eval(focus).await;
        assert_ne!(at[1], "none", "the focus is seen at {at}");
        seen.push(at[0].as_str().unwrap_or_default().to_owned());
    }
    for name in ["Overview", "Zones", "Meshes", "Services", "Dataplanes", "Policies", "History", "Change"] {
        assert!(seen.iter().any(|one| one == name), "{name} is not among {seen:?}");
    }
    // On into the map, and from there to a zone.
    for _ in 0..6 {
        let label = browser.eval("return document.activeElement.getAttribute('aria-label') || ''").await;
        if label.as_str().is_some_and(|label| label.starts_with("Zone zone-1")) {
            browser.press(Key::Enter).await;
            browser.reads("h1", "zone-1").await;
            return;
        }
        browser.press(Key::Tab).await;
    }
    panic!("no zone of the map was reached: {seen:?}");
}

/// Reading and searching go without scripts.
async fn goes_without_scripts(browser: &Browser, global: &Global) {
    browser.scripts(false).await;
    browser.goto(&global.url("/gui/dataplanes")).await;
    browser.reads("#dataplanes", "backend-1").await;
    browser.write("input[name=search]", "client").await;
    browser.press(Key::Enter).await;
    browser.reads_no_more("#dataplanes", "backend-1").await;
    assert!(browser.url().await.contains("search=client"), "{}", browser.url().await);
    browser.scripts(true).await;
}

/// A change is shown, made and followed.
async fn changes(browser: &Browser, global: &Global) {
    browser.looks(1280, "light").await;
    browser.goto(&global.url("/gui/change")).await;
    browser.write("#documents", QUICK).await;
    browser.click("button[value=preview]").await;
    browser.reads("main", "Proxies it is for").await;
    browser.reads(".diff", "+ ").await;
    is_well(browser, "the preview").await;
    browser.picture("global-preview-1280-light").await;
    let (status, _) = global.call(Method::GET, "/meshes/default/meshtimeouts/quick", None).await;
    assert_eq!(status.as_u16(), 404, "nothing is written yet");
    browser.click("button[value=apply]").await;
    browser.reads("#progress", "Everybody concerned has acknowledged it").await;
    browser.picture("global-progress-1280-light").await;
    is_well(browser, "the progress").await;
}

/// A change goes to one zone first, which the page shows as it goes on, and to the others at the press of a button.
async fn goes_in_waves(browser: &Browser, global: &Global, waiting: &Zone) {
    global.apply(CANARY);
    browser.looks(1280, "light").await;
    browser.goto(&global.url("/gui/change")).await;
    browser.write("#documents", &QUICK.replace("7s", "9s")).await;
    browser.eval("document.querySelector('#rollout').value = 'canary'; return null").await;
    browser.click("button[value=preview]").await;
    browser.reads("main", "In the waves of canary").await;
    browser.click("button[value=apply]").await;
    browser.reads("h1", "canary").await;
    browser.reads("#state", "paused").await;
    browser.reads("#waves", "has the change").await;
    browser.reads("#waves", "waits").await;
    is_well(browser, "a rollout").await;
    browser.picture("global-rollout-1280-light").await;
    let timeout = async || {
        let list = waiting.try_get("/meshes/default/meshtimeouts").await?;
        let quick = list["items"].as_array().into_iter().flatten();
        let mut quick = quick.filter(|item| item["labels"]["kuma.io/display-name"] == "quick");
        let found =
            quick.next().map(|item| item["spec"]["to"][0]["default"]["http"]["requestTimeout"].clone());
        found.ok_or_else(|| list.to_string())
    };
    assert_eq!(timeout().await.unwrap(), "7s", "it is not the turn of zone-2");
    browser.click("#state form[action$=advance] button").await;
    browser.reads("#state", "finished").await;
    browser.reads_no_more("#waves", "waits").await;
    assert_eq!(timeout().await.unwrap(), "9s");
    browser.goto(&global.url("/gui/rollouts")).await;
    browser.reads("#rollouts", "finished").await;
    for width in [320, 2560] {
        browser.looks(width, "dark").await;
        browser.goto(&global.url("/gui/rollouts/canary")).await;
        browser.reads("#state", "finished").await;
        is_well(browser, "a rollout that is over").await;
        browser.picture(&format!("global-rollout-{width}-dark")).await;
    }
}

/// What a zone refused is offered again by a button, and it shows by itself that the zone took it.
async fn offers_again(browser: &Browser, global: &Global) {
    let peer = KdsPeer::connect(global, "picky").await;
    let mut down = peer.down(peer.first("MeshTimeout", Peer::default())).await.unwrap();
    let first = down.next().await.unwrap();
    let quick = first.resources.iter().find(|item| item.name.contains("quick")).unwrap().name.clone();
    down.refuse("picky", &first, &quick, "there is no room").await;
    browser.looks(1280, "light").await;
    browser.goto(&global.url("/gui/zones/picky")).await;
    browser.reads("#refused", "there is no room").await;
    browser.picture("global-zone-refused-1280-light").await;
    is_well(browser, "a zone that refused something").await;
    browser.click("#refused button").await;
    let again = down.next().await.unwrap();
    assert_eq!((again.resources.len(), &again.resources[0].name), (1, &quick));
    down.accept("picky", &again).await;
    browser.reads_no_more("#refused", "there is no room").await;
    browser.reads("#refused", "Nothing is refused").await;
    drop((down, peer));
    eventually("the zone is gone", || async {
        let (status, answer) = global.call(Method::DELETE, "/zones/picky", None).await;
        if status.is_success() { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

/// A zone that dies shows by itself, and that it is back as well.
async fn is_live(browser: &Browser, global: &mut Global, zones: &mut [Zone]) {
    browser.looks(1280, "dark").await;
    browser.goto(&global.url("/gui")).await;
    browser.reads("#live", "live").await;
    browser.eval("window.unchanged = true; return null").await;
    browser.reads("#map", "2 of 2 zones online").await;
    zones[1].process.kill();
    browser.reads("#wrong", "zone-2 is offline").await;
    browser.reads("#map", "1 of 2 zones online").await;
    browser.picture("global-overview-lost-1280-dark").await;
    zones[1].start_again().await;
    browser.reads_no_more("#wrong", "zone-2 is offline").await;
    browser.reads("#map", "2 of 2 zones online").await;
    assert_eq!(browser.eval("return window.unchanged").await, true, "the page was not loaded again");
    is_well(browser, "the overview").await;

    // A zone shows that it lost global.
    browser.goto(&zones[0].url("/gui/zones/zone-1")).await;
    browser.reads("#live", "live").await;
    browser.reads("#state", "connected for").await;
    browser.reads("#timeline", "The last 24 hours").await;
    let spans = "return document.querySelectorAll('#timeline svg .span.open').length";
    assert_eq!(browser.eval(spans).await, 1, "one session is open");
    global.process.kill();
    browser.reads("#wrong", "not connected since").await;
    browser.reads("#timeline", "ended").await;
    browser.reads_no_more("#timeline", "connected").await;
    assert_eq!(browser.eval(spans).await, 0, "its loss is on the line");
    browser.picture("zone-zone-lost-1280-dark").await;
    is_well(browser, "the zone").await;
}

#[tokio::test]
async fn the_page_in_a_browser() {
    let (mut global, mut zones) = federation_with(2, Options::impatient(), Options::default()).await;
    global.apply(ALLOW_ALL);
    let _ingresses = (ingress(&global, &zones[0]).await, ingress(&global, &zones[1]).await);
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    let far = Member::join(&zones[1], Shape::http("client-2", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    far.reaches(0, "backend-1").await;

    let browser = Browser::start().await;
    let looking = async {
        sign_in(&browser, &global).await;
        all_pages(&browser, &global, "global", "zone-1").await;
        says_everything(&browser, &global, ZONE_ON_GLOBAL).await;
        keys_suffice(&browser, &global).await;
        goes_without_scripts(&browser, &global).await;
        changes(&browser, &global).await;
        goes_in_waves(&browser, &global, &zones[1]).await;
        offers_again(&browser, &global).await;
        sign_in(&browser, &zones[0]).await;
        all_pages(&browser, &zones[0], "zone", "zone-1").await;
        says_everything(&browser, &zones[0], ZONE_ITSELF).await;
        is_live(&browser, &mut global, &mut zones).await;
    };
    // A browser that nobody ends goes on without its driver.
    let outcome = AssertUnwindSafe(looking).catch_unwind().await;
    browser.quit().await;
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
}
