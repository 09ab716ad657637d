//! What anybody may ask for is not made on the threads that serve everybody, where it is as long as what there is.

use std::{collections::BTreeSet, sync::mpsc, task::Poll, thread::available_parallelism};

use super::*;
use crate::{
    document::Document,
    rest::routes::RouteMethod,
    store::{Batch, Write},
};

/// What is answered at once however much there is: it is about few things, whose names are in the path, or about numbers
/// that are known.
const SHORT: [&str; 8] = [
    "/",
    "/global-insights",
    "/_kri/{kri}",
    "/_resources",
    "<list>/{name}",
    "<list>/{name}/_hostnames",
    "<list>/{name}/_overview",
    "<overviews>/{name}",
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
    let exclusive = json!({ "type": "Mesh", "name": "default", "meshServices": { "mode": "Exclusive" } });
    let many = (0..300)
        .flat_map(|n| [dataplane(&format!("d{n}")), policy(n), service(n), zone(n), mesh(&format!("m{n}"))]);
    many.chain([exclusive]).collect()
}

/// The API over all that.
async fn large() -> Arc<Api> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(uuid::Uuid::nil()));
    let env = Env::system("test");
    let resource = |document: &Value| Document::parse(document).unwrap().into_resource(env.now());
    let writes: Vec<Write> = documents().iter().map(|document| Write::put(resource(document))).collect();
    store.transact(Batch::of(writes)).await.unwrap();
    let index = Feed::load(Arc::clone(&store)).await.unwrap().reader();
    Api::new(store, index, env, config(Mode::Global))
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

#[tokio::test]
async fn what_strangers_ask_for_waits_for_a_thread_of_its_own_where_it_is_long() {
    let api = large().await;
    let revision = api.index.current().revision;
    // Nobody has such a thread now.
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
    let router = api.router(Mounted::new());
    let (mut waited, mut at_once) = (BTreeSet::new(), Vec::new());
    let is_about = |path: &str| {
        let mut parts = path.split('/').filter(|part| !part.is_empty() && !part.starts_with('{'));
        let kind = parts.find(|part| *part != "meshes").unwrap_or("meshes");
        kind == "sync"
            || kind.starts_with("global-insight")
            || kind.starts_with('_')
            || KINDS.iter().any(|(known, _)| *known == kind)
    };
    for one in api.mounted().routes {
        if one.route.method() != RouteMethod::Get || !is_about(&one.path) {
            continue;
        }
        let path = concrete(&one.path, revision);
        let mut request = Request::get(&path).header("host", "localhost").body(Body::empty()).unwrap();
        let peer = ([192, 0, 2, 1], 1).into();
        request.extensions_mut().insert(crate::runtime::http::Connection { peer, tls: false });
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
            None => drop(waited.insert(one.route.path())),
            // That is for those who have shown who they are.
            Some(401 | 403) => {}
            Some(_) if SHORT.contains(&one.route.path()) => {}
            Some(status) => at_once.push(format!("{path}: {status}")),
        }
    }
    drop(busy);
    assert!(at_once.is_empty(), "answered at once:\n{}", at_once.join("\n"));
    for route in
        ["<list>", "<all>", "<list>/_overview", "/global-insight", "/sync", "/sync/revisions/{revision}"]
    {
        assert!(waited.contains(route), "{route} is not among {waited:?}");
    }
    assert!(waited.contains("/sync/zones/{zone}/{kind}/{name}"));
}
