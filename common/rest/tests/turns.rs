//! What anybody may ask for is not made on the threads that serve everybody, where it is as long as what there is.

use std::{collections::BTreeSet, sync::mpsc, task::Poll, thread::available_parallelism};

use super::*;
use crate::{
    document::Document,
    rest::routes::{RouteMethod, RoutePlace, TABLE},
    store::{Batch, Write, history::Author},
};

/// What is answered at once however much there is: it is about few things, whose names are in the path, or about numbers
/// that are known.
const SHORT: [&str; 20] = [
    "/",
    "/global-insights",
    "/_kri/{kri}",
    "/_resources",
    "<list>/{name}",
    "<list>/{name}/_hostnames",
    "<list>/{name}/_overview",
    "<overviews>/{name}",
    "/tokens/dataplane",
    "/tokens/zone",
    "/tokens/user",
    // Of pages.
    "/gui/zones/{zone}/approve",
    "/gui/zones/{zone}/offer",
    "/gui/session",
    "/gui/session/end",
    "/gui/login",
    "/gui/login/done",
    "/gui/live",
    "/gui/page.css",
    "/gui/page.js",
];

/// Paths of kinds there is much of, and the name of one.
const KINDS: [(&str, &str); 9] = [
    ("dataplanes", "d1"),
    ("dataplanes+insights", "d1"),
    ("meshtimeouts", "t1"),
    ("meshservices", "s1"),
    ("zones", "z1"),
    ("zones+insights", "z1"),
    ("meshes", "m1"),
    ("mesh-insights", "m1"),
    ("service-insights", "web"),
];

fn documents() -> Vec<Value> {
    let policy = |n: usize| {
        let to = json!([{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "1s" } }]);
        json!({ "type": "MeshTimeout", "mesh": "default", "name": format!("t{n}"), "spec": { "to": to } })
    };
    let service = |n: usize| {
        json!({ "type": "MeshService", "mesh": "default", "name": format!("s{n}"), "spec": {
            "selector": { "dataplaneTags": { "kuma.io/service": "web" } }, "ports": [{ "port": 80 }],
        } })
    };
    let zone = |n: usize| json!({ "type": "Zone", "name": format!("z{n}") });
    let rollout = |n: usize| json!({ "type": "Rollout", "name": format!("r{n}"), "spec": { "waves": [] } });
    let exclusive = json!({ "type": "Mesh", "name": "default", "meshServices": { "mode": "Exclusive" } });
    let many = (0..300).flat_map(|n| {
        [dataplane(&format!("d{n}")), policy(n), service(n), zone(n), mesh(&format!("m{n}")), rollout(n)]
    });
    many.chain([exclusive]).collect()
}

fn timeout(seconds: u32) -> Value {
    json!({ "type": "MeshTimeout", "mesh": "default", "name": "t1", "spec": { "to": [
        { "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": format!("{seconds}s") } }] } })
}

/// The API over all that.
async fn large() -> Arc<Api> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(uuid::Uuid::nil()));
    let env = Env::system("test");
    let resource = |document: &Value| Document::parse(document).unwrap().into_resource(env.now());
    let writes: Vec<Write> = documents().iter().map(|document| Write::put(resource(document))).collect();
    store.transact(Batch::of(writes)).await.unwrap();
    // And something to take back.
    let change = Batch::of([Write::put(resource(&timeout(9)))]).by(Author::User("ann".to_owned()));
    store.transact(change).await.unwrap();
    let index = Feed::load(Arc::clone(&store)).await.unwrap().reader();
    let config = ApiConfig { localhost_is_admin: true, gui: PAGE.to_owned(), ..config(Mode::Global) };
    Api::new(store, index, env, config)
}

fn concrete(path: &str, revision: Revision) -> String {
    let named = |(kind, _): &(&str, &str)| path.contains(&format!("/{kind}/{{name}}"));
    let name = KINDS.into_iter().find(named).map_or("none", |(_, name)| name);
    let kri = "kri_msvc_default__1_s1_80";
    [
        ("{mesh}", "default"),
        ("{zone}", "z1"),
        ("{kind}/{name}", "meshtimeouts/t1?mesh=default"),
        ("{name}", name),
        ("{kri}", kri),
        ("{route}", kri),
        ("{revision}", &revision.to_string()),
    ]
    .into_iter()
    .fold(path.to_owned(), |path, (placeholder, value)| path.replace(placeholder, value))
}

/// The threads on which long answers are made; none is free as long as these are there.
async fn busy(api: &Api) -> Vec<mpsc::Sender<()>> {
    let mut busy = Vec::new();
    for _ in 0..available_parallelism().unwrap().get() {
        let (done, until) = mpsc::channel::<()>();
        let making = api.making.clone();
        tokio::spawn(async move { making.long(move || until.recv().is_ok()).await });
        busy.push(done);
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    busy
}

/// Who waited for such a thread, and who did not.
#[derive(Default)]
struct Looks {
    waited: BTreeSet<&'static str>,
    at_once: Vec<String>,
}

impl Looks {
    /// Asks from the machine with this address, where `route` is.
    async fn ask(&mut self, router: &Router, route: &'static str, peer: [u8; 4], request: Request<Body>) {
        let (mut request, path) = (request, route);
        let connection = crate::runtime::http::Connection { peer: (peer, 1).into(), tls: false };
        request.extensions_mut().insert(connection);
        let shown = format!("{} {}", request.method(), request.uri());
        let mut answer = Box::pin(router.clone().oneshot(request));
        let mut found = None;
        for _ in 0..50 {
            if let Poll::Ready(answer) = futures::poll!(&mut answer) {
                found = Some(answer.unwrap().status().as_u16());
                break;
            }
            tokio::task::yield_now().await;
        }
        match found {
            None => drop(self.waited.insert(path)),
            // That is for those who have shown who they are.
            Some(401 | 403) if peer != LOCALHOST => {}
            Some(_) if SHORT.contains(&path) => {}
            Some(status) => self.at_once.push(format!("{shown}: {status}")),
        }
    }

    fn all_waited(&self, some: &[&str]) {
        assert!(self.at_once.is_empty(), "answered at once:\n{}", self.at_once.join("\n"));
        for route in some {
            assert!(self.waited.contains(route), "{route} is not among {:?}", self.waited);
        }
    }
}

const STRANGER: [u8; 4] = [192, 0, 2, 1];
const LOCALHOST: [u8; 4] = [127, 0, 0, 1];

#[tokio::test]
async fn what_strangers_ask_for_waits_for_a_thread_of_its_own_where_it_is_long() {
    let api = large().await;
    let revision = api.index.current().revision;
    let busy = busy(&api).await;
    let router = api.router(Mounted::new());
    let is_about = |path: &str| {
        let mut parts = path.split('/').filter(|part| !part.is_empty() && !part.starts_with('{'));
        let kind = parts.find(|part| *part != "meshes").unwrap_or("meshes");
        kind == "sync"
            || kind.starts_with("global-insight")
            || kind.starts_with('_')
            || KINDS.iter().any(|(known, _)| *known == kind)
    };
    let mut looks = Looks::default();
    for one in api.mounted().routes {
        if one.route.method() != RouteMethod::Get || !is_about(&one.path) {
            continue;
        }
        let path = concrete(&one.path, revision);
        let request = Request::get(&path).header("host", "localhost").body(Body::empty()).unwrap();
        looks.ask(&router, one.route.path(), STRANGER, request).await;
    }
    drop(busy);
    looks.all_waited(&[
        "<list>",
        "<all>",
        "<list>/_overview",
        "/global-insight",
        "/sync",
        "/sync/revisions/{revision}",
        "/sync/zones/{zone}/{kind}/{name}",
    ]);
}

#[tokio::test]
async fn what_is_posted_waits_as_well_also_where_it_is_only_tried() {
    let api = large().await;
    let busy = busy(&api).await;
    let router = api.router(Mounted::new());
    let mut looks = Looks::default();
    let send = |method: &str, path: &str, body: Value| {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        request.body(Body::from(body.to_string())).unwrap()
    };
    for one in api.mounted().routes.iter().filter(|one| one.route.method() == RouteMethod::Post) {
        let body = match one.route.path() {
            "/history/undo" => json!({ "since": 1, "dryRun": true }),
            path if path.ends_with("/begin") => json!({ "resources": [timeout(2)], "dryRun": true }),
            _ => json!({}),
        };
        let request = send("POST", &one.path.replace("{name}", "r1"), body);
        looks.ask(&router, one.route.path(), LOCALHOST, request).await;
    }
    let tried = send("PUT", "/meshes/default/meshtimeouts/t1?dryRun=true", timeout(2));
    looks.ask(&router, "<list>/{name}?dryRun", LOCALHOST, tried).await;
    drop(busy);
    looks.all_waited(&["/history/undo", "<list>/{name}/begin", "<list>/{name}?dryRun"]);
}

#[tokio::test]
async fn every_page_waits_as_what_it_asks_for_does() {
    let api = large().await;
    let busy = busy(&api).await;
    let source = Arc::new(crate::gui::ZonesSeen(Arc::new(Zones(ZoneHealth::Online))));
    let parts = crate::gui::PageParts {
        bus: crate::events::EventBus::new(4),
        source,
        shutdown: tokio_util::sync::CancellationToken::new(),
    };
    let router = crate::gui::router(&api, Mounted::new(), parts).0;
    let mut looks = Looks::default();
    for route in TABLE.iter().filter(|route| route.place() == RoutePlace::Page) {
        let path = [
            ("{zone}", "z1"),
            ("/meshes/{mesh}", "/meshes/default"),
            ("{mesh}/{name}", "default/d1?show=rules"),
            ("{kind}/{name}", "meshtimeouts/t1?mesh=default"),
            ("{name}", "r1"),
            ("{action}", "halt"),
            ("{revision}", "2"),
        ]
        .into_iter()
        .fold(route.path().to_owned(), |path, (part, value)| path.replace(part, value));
        let request =
            Request::builder().method(route.method().as_str()).uri(&path).header("host", "localhost");
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = request.header("origin", "http://localhost").header("sec-fetch-site", "same-origin");
        let form = "documents=type:+MeshTimeout%0Amesh:+default%0Aname:+t1%0Aspec:+{}";
        looks.ask(&router, route.path(), LOCALHOST, request.body(Body::from(form)).unwrap()).await;
    }
    drop(busy);
    looks.all_waited(&["/gui", "/gui/dataplanes", "/gui/policies", "/gui/services", "/gui/change"]);
}
