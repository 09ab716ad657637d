//! The work, on a store in memory and a folder that is real.
#![allow(clippy::unwrap_used)]

use std::{fs, time::SystemTime};

use axum::{
    body::Body,
    http::{Request, StatusCode},
};
use common::{
    config::AccessSection,
    envoy_config,
    mode::Mode,
    model::{Kind, kinds::mesh},
    rest::{ApiConfig, Mounted, standard_admissions},
    runtime::Env,
    store::{Store, feed::Feed, index::Index, memory::MemoryStore},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tower::ServiceExt;

use super::*;

/// Long enough for a busy machine; no test waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(30);

struct Desk {
    folder: TempDir,
    store: Arc<MemoryStore>,
    index: IndexReader,
    status: Arc<FolderStatus>,
    api: Arc<Api>,
    stop: CancellationToken,
    leading: Vec<JoinHandle<()>>,
}

impl Desk {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::new(uuid::Uuid::nil()));
        let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
        let (index, stop) = (feed.reader(), CancellationToken::new());
        tokio::spawn(feed.run(stop.clone()));
        let status = Arc::new(FolderStatus::new(folder.path()));
        let config = ApiConfig {
            anonymous_may_write: true,
            access: AccessSection::default().rules,
            admissions: standard_admissions(false, None),
            files: Some(Arc::clone(&status) as _),
            ..ApiConfig::new(Mode::standalone_zone("east"))
        };
        let api = Api::new(Arc::clone(&store) as _, index.clone(), Env::system("test"), config);
        Self { folder, store, index, status, api, stop, leading: Vec::new() }
    }

    /// With the work under way.
    async fn leading() -> Self {
        let mut desk = Self::new().await;
        desk.lead().await;
        desk
    }

    async fn lead(&mut self) {
        let lease = self.store.acquire("zone/leader", "one", Duration::from_secs(60), true).await.unwrap();
        let fence = Fence { name: "zone/leader".to_owned(), epoch: lease.unwrap().epoch };
        let (work, stop) = (self.work(), self.stop.clone());
        self.leading.push(tokio::spawn(async move { work.lead(fence, stop).await }));
    }

    fn work(&self) -> FolderResources {
        let (status, api) = (Arc::clone(&self.status), Arc::clone(&self.api));
        FolderResources::new(self.folder.path(), status, api, self.index.clone(), Env::system("test"))
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.path().join(file), text).unwrap();
    }

    fn remove(&self, file: &str) {
        fs::remove_file(self.folder.path().join(file)).unwrap();
    }

    async fn until(&self, what: &str, holds: impl Fn(&Index) -> bool) {
        let mut reader = self.index.clone();
        let waiting = async {
            while !holds(&reader.latest()) {
                assert!(reader.changed().await);
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("never {what}: {:?}", self.status.view());
        }
    }

    async fn until_there(&self, kind: &'static Kind, name: &str) {
        self.until(name, |index| index.find(kind, "", name).is_some()).await;
    }

    async fn until_gone(&self, kind: &'static Kind, name: &str) {
        self.until(name, |index| index.find(kind, "", name).is_none()).await;
    }

    /// Waits until the status shows these problems of this file (of the folder where that is empty).
    async fn until_told(&self, file: &str, expected: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let shown = serde_json::to_value(self.status.view().1).unwrap();
            let of = match file {
                "" => shown.clone(),
                _ => shown["files"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|f| f["file"] == file)
                    .cloned()
                    .unwrap_or_default(),
            };
            let told = of["problems"].as_array().cloned().unwrap_or_default();
            let is_it = match expected {
                "" => !of.is_null() && told.is_empty(),
                _ => told.iter().any(|problem| problem.as_str().is_some_and(|text| text.contains(expected))),
            };
            if is_it {
                return;
            }
            assert!(Instant::now() < end, "{file} never tells {expected:?}: {shown}");
            tokio::task::yield_now().await;
        }
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let body = if method == "PUT" { Body::from(body.to_string()) } else { Body::empty() };
        let router = self.api.router(Mounted::new());
        let response = router.oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }
}

fn raw(name: &str, cluster: &str) -> String {
    format!(
        "type: EnvoyConfig\nname: {name}\nspec:\n  nodes: [{{id: '*'}}]\n  clusters: [{{name: {cluster}}}]\n"
    )
}

fn holds(index: &Index, name: &str, cluster: &str) -> bool {
    let found = index.find(&envoy_config::KIND, "", name);
    found.is_some_and(|config| String::from_utf8_lossy(&config.spec).contains(&format!("\"{cluster}\"")))
}

#[tokio::test]
async fn files_that_come_change_break_and_go_are_followed() {
    let desk = Desk::leading().await;
    desk.write("a.yaml", &raw("a", "one"));
    desk.until_there(&envoy_config::KIND, "a").await;
    // Other files are none of its business.
    desk.write("notes.txt", "type: Mesh\nname: no\n");
    desk.write(".hidden.yaml", "type: Mesh\nname: no\n");

    fs::create_dir_all(desk.folder.path().join("sub/deeper")).unwrap();
    desk.write("sub/deeper/b.yml", &format!("{}---\n{}", raw("b", "one"), raw("c", "one")));
    desk.until_there(&envoy_config::KIND, "c").await;

    // As editors and configuration tools write: a new file in the place of the old one.
    desk.write(".a.yaml.new", &raw("a", "two"));
    fs::rename(desk.folder.path().join(".a.yaml.new"), desk.folder.path().join("a.yaml")).unwrap();
    desk.until("the new content", |index| holds(index, "a", "two")).await;

    desk.write("a.yaml", "type: EnvoyConfig\nname: a\nspec: {nodes: [], clusters: [{name: three}]}\n");
    desk.until_told("a.yaml", "spec.nodes: must select something").await;
    assert!(holds(&desk.index.current(), "a", "two"), "the last good state stays");
    desk.write("a.yaml", &raw("a", "three"));
    desk.until("what is good again", |index| holds(index, "a", "three")).await;
    desk.until_told("a.yaml", "").await;

    desk.write("sub/deeper/b.yml", &raw("b", "one"));
    desk.until_gone(&envoy_config::KIND, "c").await;
    desk.remove("a.yaml");
    desk.until_gone(&envoy_config::KIND, "a").await;
    fs::remove_dir_all(desk.folder.path().join("sub")).unwrap();
    desk.until_gone(&envoy_config::KIND, "b").await;
    assert!(desk.index.current().find(&mesh::KIND, "", "no").is_none());
    desk.stop.cancel();
    for leading in desk.leading {
        leading.await.unwrap();
    }
}

#[tokio::test]
async fn what_a_file_owns_is_read_only_in_the_api() {
    let desk = Desk::leading().await;
    let mine = json!({"type": "EnvoyConfig", "name": "mine", "spec": {"nodes": [{"id": "x"}]}});
    let (status, answer) = desk.ask("PUT", "/envoyconfigs/mine", &mine).await;
    // Administrators only: who asks here shows nothing.
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    let (status, answer) = desk.ask("PUT", "/meshes/mine", &json!({"type": "Mesh", "name": "mine"})).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    desk.write("a.yaml", "type: Mesh\nname: theirs\n");
    desk.until_there(&mesh::KIND, "theirs").await;
    for (method, path, body) in [
        ("PUT", "/meshes/theirs", json!({"type": "Mesh", "name": "theirs"})),
        ("DELETE", "/meshes/theirs", json!(null)),
    ] {
        let (status, answer) = desk.ask(method, path, &body).await;
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{answer}");
        assert!(answer.contains("a.yaml"), "{answer}");
    }
    // What somebody applied becomes the business of the file that says it, and goes with it.
    desk.write("b.yaml", "type: Mesh\nname: mine\nlabels: {team: shop}\n");
    let labelled =
        |index: &Index| index.find(&mesh::KIND, "", "mine").is_some_and(|m| m.label("team") == Some("shop"));
    desk.until("the mesh of the file", labelled).await;
    let (status, _) = desk.ask("DELETE", "/meshes/mine", &json!(null)).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    desk.remove("b.yaml");
    desk.until_gone(&mesh::KIND, "mine").await;
    // A label says nothing that anybody could say.
    let forged = json!({"type": "Mesh", "name": "forged", "labels": {"strait.io/provided-by": "files"}});
    assert_eq!(desk.ask("PUT", "/meshes/forged", &forged).await.0, StatusCode::CREATED);
    assert_eq!(desk.ask("DELETE", "/meshes/forged", &json!(null)).await.0, StatusCode::OK);
    desk.stop.cancel();
}

#[tokio::test]
async fn what_is_refused_is_tried_again_and_told() {
    let desk = Desk::leading().await;
    let web = "type: Dataplane\nmesh: late\nname: web\nnetworking: {address: 127.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web}}]}\n";
    desk.write("web.yaml", web);
    desk.until_told("web.yaml", "Dataplane late/web: ").await;
    let late = json!({"type": "Mesh", "name": "late"});
    assert_eq!(desk.ask("PUT", "/meshes/late", &late).await.0, StatusCode::CREATED);
    desk.until("the dataplane", |index| index.list(&common::model::kinds::dataplane::KIND).count() == 1)
        .await;
    desk.until_told("web.yaml", "").await;
    desk.stop.cancel();
}

#[tokio::test]
async fn after_a_start_only_what_is_known_to_be_gone_is_deleted() {
    let mut desk = Desk::leading().await;
    desk.write("a.yaml", &raw("a", "one"));
    desk.write("b.yaml", &raw("b", "one"));
    desk.until_there(&envoy_config::KIND, "a").await;
    desk.until_there(&envoy_config::KIND, "b").await;
    desk.stop.cancel();
    for leading in desk.leading.drain(..) {
        leading.await.unwrap();
    }
    // While nobody looks, one file goes and another one breaks.
    desk.remove("b.yaml");
    desk.write("a.yaml", "type: [");
    let again = Desk { stop: CancellationToken::new(), ..desk };
    let feed = Feed::load(Arc::clone(&again.store) as Arc<dyn Store>).await.unwrap();
    let mut again = Desk { index: feed.reader(), ..again };
    tokio::spawn(feed.run(again.stop.clone()));
    let config = ApiConfig {
        files: Some(Arc::clone(&again.status) as _),
        ..ApiConfig::new(Mode::standalone_zone("east"))
    };
    again.api = Api::new(Arc::clone(&again.store) as _, again.index.clone(), Env::system("test"), config);
    again.lead().await;
    again.until_told("", "a.yaml was never read").await;
    let index = again.index.current();
    assert!(
        holds(&index, "a", "one") && holds(&index, "b", "one"),
        "either may be what the broken file says"
    );
    again.write("a.yaml", &raw("a", "two"));
    again.until_gone(&envoy_config::KIND, "b").await;
    again.until("what is good again", |index| holds(index, "a", "two")).await;
    // A folder that cannot be read says nothing.
    let elsewhere = again.folder.path().with_extension("elsewhere");
    fs::rename(again.folder.path(), &elsewhere).unwrap();
    again.until_told("", "cannot read").await;
    assert!(holds(&again.index.current(), "a", "two"));
    fs::rename(&elsewhere, again.folder.path()).unwrap();
    again.write("c.yaml", &raw("c", "one"));
    again.until_there(&envoy_config::KIND, "c").await;
    again.stop.cancel();
}

/// A volume that is not mounted is an empty folder.
#[tokio::test]
async fn a_folder_that_lost_much_is_asked_about_before_anything_is_deleted() {
    let mut desk = Desk::leading().await;
    let all: Vec<String> = (0..30).map(|n| format!("r{n}")).collect();
    let (inside, elsewhere) = (desk.folder.path().join("volume"), tempfile::tempdir().unwrap());
    fs::create_dir(&inside).unwrap();
    for name in &all {
        desk.write(&format!("volume/{name}.yaml"), &raw(name, "one"));
    }
    let count = |index: &Index| index.list(&envoy_config::KIND).count();
    desk.until("all of them", |index| count(index) == 30).await;
    // Some may go, as ever; many may not.
    for name in &all[..5] {
        desk.remove(&format!("volume/{name}.yaml"));
    }
    desk.until("fewer", |index| count(index) == 25).await;
    desk.write("first.yaml", &raw("first", "one"));
    desk.until_there(&envoy_config::KIND, "first").await;
    fs::rename(&inside, elsewhere.path().join("volume")).unwrap();
    desk.until_told("", "25 of 26 resources that came from files are in no file any more").await;
    assert_eq!(count(&desk.index.current()), 26);
    // A number that is another says nothing.
    desk.write("confirm-deletes", "26");
    desk.until_told("", "write 25 into the file confirm-deletes").await;
    assert_eq!(count(&desk.index.current()), 26);
    desk.write("confirm-deletes", "25\n");
    desk.until("what was meant", |index| count(index) == 1).await;

    // Of a folder in which nothing was seen nothing is known.
    desk.stop.cancel();
    for leading in desk.leading.drain(..) {
        leading.await.unwrap();
    }
    desk.remove("first.yaml");
    desk.stop = CancellationToken::new();
    let feed = Feed::load(Arc::clone(&desk.store) as Arc<dyn Store>).await.unwrap();
    desk.index = feed.reader();
    tokio::spawn(feed.run(desk.stop.clone()));
    desk.lead().await;
    desk.until_told("", "1 of 1 resources that came from files are not there: the folder is empty").await;
    desk.write("second.yaml", &raw("second", "one"));
    desk.until_gone(&envoy_config::KIND, "first").await;
    desk.stop.cancel();
}

#[test]
fn what_cannot_be_looked_at_or_is_half_written_is_not_gone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.yaml");
    let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let look_at = |now: SystemTime| scan(folder.path(), now, &mut |_| {}).without_unfinished();
    let look = || look_at(written + QUIET);
    let write = |text: &str| {
        fs::write(&file, text).unwrap();
        fs::File::options().append(true).open(&file).unwrap().set_modified(written).unwrap();
    };
    let mut files = FolderFiles::default();
    write(&raw("a", "one"));
    files.take(look());
    assert_eq!((files.wanted().0.len(), files.doubts()), (1, Vec::<String>::new()));

    // Whoever writes has begun with nothing.
    write("");
    files.take(look_at(written + QUIET / 2));
    let (wanted, problems) = files.wanted();
    assert_eq!(wanted.len(), 1, "{problems:?}");
    assert!(problems["a.yaml"][0].contains("still writing"), "{problems:?}");
    assert!(look_at(written - QUIET).files["a.yaml"].is_ok(), "a time to come says nothing");

    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/nowhere/a.yaml", &file).unwrap();
    files.take(look());
    assert_eq!(files.wanted().0.len(), 1);
    assert!(files.doubts()[0].contains("cannot look at"), "{:?}", files.doubts());
    fs::remove_file(&file).unwrap();
    files.take(look());
    assert_eq!((files.wanted().0.len(), files.doubts()), (0, Vec::<String>::new()));
}

#[tokio::test]
async fn a_pass_that_is_to_stop_begins_nothing_more() {
    let desk = Desk::new().await;
    desk.write("a.yaml", "{type: EnvoyConfig, name: a, spec: {nodes: [{id: '*'}], clusters: [{name: a}]}}");
    let lease = desk.store.acquire("zone/leader", "one", Duration::from_secs(60), true).await.unwrap();
    let fence = Fence { name: "zone/leader".to_owned(), epoch: lease.unwrap().epoch };
    let stop = CancellationToken::new();
    stop.cancel();
    tokio::time::timeout(PATIENCE, desk.work().lead(fence, stop)).await.expect("it ends");
    assert!(desk.index.current().find(&envoy_config::KIND, "", "a").is_none());
}

#[test]
fn what_was_stored_is_known_unless_somebody_wrote_after_it() {
    for (shown, stored, known) in [
        (Some(7), 7, Some(7)),
        // The same was there before; what answers then is where the store is.
        (Some(5), 7, Some(5)),
        (Some(8), 7, None),
        (None, 7, None),
    ] {
        assert_eq!(known_at(shown, stored), known, "{shown:?} {stored}");
    }
}
