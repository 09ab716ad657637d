//! The disk below the database: full, read-only, failing.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use reqwest::{Method, StatusCode};
use serde_json::json;
use tempfile::TempDir;

use super::{
    machine::{SmallDisk, StillDisk, run},
    writers::{Book, Writers, put_one, say},
};
use crate::{
    harness::{ControlPlane, Global, Options, eventually},
    mesh::{ALLOW_ALL, Member, Shape, federation_with},
};

fn database(folder: &Path) -> (PathBuf, Options) {
    let path = folder.join("strait.db");
    let options = Options::default().with("store.sqlite.path", &path.display().to_string());
    (path, options)
}

/// What must hold while nothing can be written: said with this word, served, alive.
pub async fn tells_that_writing_fails(cp: &mut ControlPlane, word: &str) {
    let told = eventually("not ready", || {
        let asked = cp.not_ready();
        async { asked.await.ok_or("ready") }
    })
    .await;
    assert!(told.contains("\"store\"") && told.contains(word), "it says what and why: {told}");
    assert!(cp.healthy().await, "the process is healthy");
    assert_eq!(put_one(cp, "meanwhile").await, StatusCode::SERVICE_UNAVAILABLE);
    cp.get("/meshes/default").await;
    let metrics = cp.metrics().await;
    assert!(metrics.lines().any(|l| l.starts_with("store_writable{") && l.ends_with(" 0")), "{metrics}");
    assert!(cp.process.runs());
}

/// How often writing failed so far.
async fn failures(cp: &ControlPlane) -> u64 {
    let metrics = cp.metrics().await;
    let line = metrics.lines().find(|line| line.starts_with("store_write_failures_total{"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("there is a metric")
}

/// Waits, while somebody writes, until not even the smallest write finds room any more: on a full disk there may
/// be some left in pages that are there.
pub async fn exhausted(cp: &ControlPlane) {
    let seen = std::cell::Cell::new((usize::MAX, 0));
    eventually("eight tries without one that works", || async {
        let recovered = cp.process.whole_log().matches("the store can be written again").count();
        let now = failures(cp).await;
        if seen.get().0 != recovered {
            seen.set((recovered, now));
        }
        let failed = now - seen.get().1;
        if failed >= 8 { Ok(()) } else { Err(format!("{failed} of 8")) }
    })
    .await;
}

/// It does not call itself ready again as long as writing fails, however often it tries by itself.
pub async fn stays_unready(cp: &ControlPlane) {
    let goal = failures(cp).await + 4;
    eventually("four more tries", || async {
        assert!(cp.not_ready().await.is_some(), "it is ready while nothing can be written");
        let now = failures(cp).await;
        if now >= goal { Ok(()) } else { Err(format!("{now} of {goal}")) }
    })
    .await;
}

/// What must hold after it: healed by itself, nothing lost, also not after a crash.
pub async fn healed(cp: &mut ControlPlane, book: &Arc<Book>) {
    cp.ready().await;
    book.check(cp).await;
    let writers = Writers::on(cp, book, 1_000);
    writers.more(20).await;
    writers.end().await;
    cp.process.kill();
    cp.start_again().await;
    book.check(cp).await;
}

/// One line when it begins and one when it is over, however many writes were refused.
pub fn logged_once(cp: &ControlPlane) {
    let log = cp.process.log();
    assert_eq!(log.matches("the store cannot be written:").count(), 1, "{log}");
    assert_eq!(log.matches("request failed").count(), 0, "not a line for every request: {log}");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    let disk = SmallDisk::mount(6);
    let (_, options) = database(disk.path());
    let mut global = Global::start_with(options).await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(30).await;
    disk.fill();
    writers.refused(20).await;
    tells_that_writing_fails(&mut global, "strait.db").await;
    writers.end().await;
    // Nobody writes: it finds out by itself that there is room again.
    disk.free();
    global.ready().await;
    logged_once(&global);
    healed(&mut global, &book).await;
    book.print("full disk", 1);
}

/// Nobody has to lose a write first.
#[tokio::test]
async fn a_full_disk_is_told_before_anybody_writes() {
    let disk = SmallDisk::mount(6);
    let (_, options) = database(disk.path());
    let mut global = Global::start_with(options).await;
    assert_eq!(global.not_ready().await, None);
    disk.fill();
    let told = eventually("not ready", || async { global.not_ready().await.ok_or("ready") }).await;
    assert!(told.contains("\"store\"") && told.contains("strait.db"), "it says what and why: {told}");
    assert!(global.healthy().await, "the process is healthy");
    disk.free();
    global.ready().await;
    let log = global.process.log();
    assert_eq!(log.matches("the store is running out of room").count(), 1, "{log}");
    say("full disk: told before anybody wrote, healed");
}

#[tokio::test]
async fn a_zone_with_a_full_disk_serves_the_proxies_it_has_and_those_that_come() {
    let disk = SmallDisk::mount(6);
    let (_, options) = database(disk.path());
    let (global, mut zones) = federation_with(1, Options::default(), options).await;
    global.apply(ALLOW_ALL);
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    disk.fill();
    let zone = &mut zones[0];
    let dataplane = json!({
        "type": "Dataplane", "mesh": "default", "name": "late",
        "networking": { "address": "127.0.0.1", "inbound": [{ "port": 1, "tags": { "kuma.io/service": "late" } }] },
    });
    eventually("a refused write", || {
        let sent = zone.call(Method::PUT, "/meshes/default/dataplanes/late", Some(dataplane.clone()));
        async move {
            match sent.await {
                (StatusCode::SERVICE_UNAVAILABLE, _) => Ok(()),
                (status, body) => Err(format!("{status}: {body}")),
            }
        }
    })
    .await;
    assert!(zone.not_ready().await.is_some_and(|told| told.contains("\"store\"")));
    client.reaches(0, "backend-1").await;
    // One that knows nothing yet gets all it needs.
    let client = client.with_fresh_envoy(zone).await;
    client.reaches(0, "backend-1").await;
    assert!(zone.healthy().await && zone.process.runs());
    disk.free();
    zone.ready().await;
    let (status, body) = zone.call(Method::PUT, "/meshes/default/dataplanes/late", Some(dataplane)).await;
    assert!(status.is_success(), "{status}: {body}");
    eventually("the late dataplane at global", || async {
        let there = global.try_get("/meshes/default/dataplanes").await?.to_string();
        if there.contains("\"late") { Ok(()) } else { Err(there) }
    })
    .await;
    say("full disk of a zone: proxies served, healed");
}

#[tokio::test]
async fn a_disk_that_stands_still_is_said_to_and_nothing_else_does() {
    let disk = StillDisk::mount(24);
    let (_, options) = database(disk.path());
    let mut global = Global::start_with(options).await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(30).await;
    let still = disk.stand_still();
    let told = eventually("not ready", || async { global.not_ready().await.ok_or("ready") }).await;
    assert!(told.contains("\"store\"") && told.contains("no answer"), "it says what and why: {told}");
    assert!(global.healthy().await, "the process is healthy");
    global.get("/meshes/default").await;
    let metrics = global.metrics().await;
    assert!(metrics.lines().any(|l| l.starts_with("store_writable{") && l.ends_with(" 0")), "{metrics}");
    drop(still);
    writers.more(20).await;
    writers.end().await;
    global.ready().await;
    healed(&mut global, &book).await;
    book.print("disk that stands still", 1);
}

/// A session of a zone begins with a write, its epoch, and waits for room.
#[tokio::test]
async fn a_zone_that_connects_again_while_the_disk_of_global_is_full_serves_on_and_says_why() {
    let disk = SmallDisk::mount(6);
    let (_, options) = database(disk.path());
    let (global, mut zones) = federation_with(1, options, Options::default()).await;
    global.apply(ALLOW_ALL);
    let _backend = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    disk.fill();
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.refused(10).await;
    writers.end().await;
    zones[0].process.kill();
    let zone = &mut zones[0];
    zone.start_again().await;
    let why = |link: &serde_json::Value| link["lastError"].as_str().unwrap_or_default().to_owned();
    {
        let zone = &*zone;
        eventually("the zone says why it is not connected", || async {
            let link = zone.try_get("/strait/link").await?;
            let told =
                link["connected"] == false && why(&link).contains("the store of global cannot be written");
            if told { Ok(()) } else { Err(link.to_string()) }
        })
        .await;
    }
    let told = global.not_ready().await.expect("global is not ready");
    assert!(told.contains("strait.db"), "global says why itself: {told}");
    // With what it has it serves the proxies that are there and one that knows nothing yet.
    client.reaches(0, "backend-1").await;
    let client = client.with_fresh_envoy(zone).await;
    client.reaches(0, "backend-1").await;
    assert!(zone.not_ready().await.is_none(), "it is ready without its global");
    disk.free();
    eventually("the zone is online again", || async {
        match global.zone_status("zone-1").await?.as_str() {
            "online" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
    book.check(&global).await;
    // An epoch that is given out is stored: no two sessions have the same.
    let log = global.process.whole_log();
    let opened = log.lines().filter(|line| line.contains("zone session opened"));
    let epochs: Vec<&str> =
        opened.filter_map(|line| line.rsplit_once("epoch=").map(|(_, epoch)| epoch)).collect();
    let distinct: std::collections::BTreeSet<&str> = epochs.iter().copied().collect();
    assert!(epochs.len() >= 2 && distinct.len() == epochs.len(), "{epochs:?}");
    say("full disk of global: a zone that came back served its proxies, said why, and connected by itself");
}

/// What a connected zone says meanwhile is put off, and nothing else of its session is.
#[tokio::test]
async fn a_connected_zone_keeps_its_session_while_the_disk_of_global_is_full() {
    let disk = SmallDisk::mount(6);
    let (_, options) = database(disk.path());
    let (global, zones) = federation_with(1, options, Options::default()).await;
    let zone = &zones[0];
    let dataplane = |name: &str| {
        json!({
            "type": "Dataplane", "mesh": "default", "name": name,
            "networking": { "address": "127.0.0.1", "inbound": [{ "port": 1, "tags": { "kuma.io/service": name } }] },
        })
    };
    let at_global = async |name: &str, wanted: bool| {
        eventually("what the zone said, at global", || async {
            let there = global.try_get("/meshes/default/dataplanes").await?.to_string();
            if there.contains(name) == wanted { Ok(()) } else { Err(there) }
        })
        .await;
    };
    let path = |name: &str| format!("/meshes/default/dataplanes/{name}");
    zone.call(Method::PUT, &path("early"), Some(dataplane("early"))).await;
    at_global("early", true).await;
    let sessions = || {
        let log = global.process.whole_log();
        (log.matches("zone session opened").count(), log.matches("zone session ended").count())
    };
    let (before, since) = (sessions(), zone.get("/strait/link").await["since"].clone());
    disk.fill();
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.refused(10).await;
    writers.end().await;
    zone.call(Method::PUT, &path("late"), Some(dataplane("late"))).await;
    let is_put_off = async || {
        eventually("the zone says what waits", || async {
            let link = zone.try_get("/strait/link").await?;
            let told = link["refusals"].to_string().contains("the store of global cannot be written now");
            if told && link["connected"] == true { Ok(()) } else { Err(link.to_string()) }
        })
        .await;
    };
    is_put_off().await;
    zone.call(Method::DELETE, &path("early"), None).await;
    is_put_off().await;
    assert_eq!(global.zone_status("zone-1").await.as_deref(), Ok("online"));
    disk.free();
    at_global("late", true).await;
    at_global("early", false).await;
    eventually("nothing waits any more", || async {
        let link = zone.try_get("/strait/link").await?;
        let nothing = link["refusals"].as_object().is_some_and(serde_json::Map::is_empty);
        if nothing { Ok(()) } else { Err(link.to_string()) }
    })
    .await;
    assert_eq!(zone.get("/strait/link").await["since"], since, "it is the same connection");
    assert_eq!(sessions(), before, "and the same session: {}", global.process.whole_log());
    book.check(&global).await;
    say("full disk of global: a connected zone kept its session, and what it said was stored afterwards");
}

#[tokio::test]
async fn a_disk_that_became_read_only_refuses_writes_until_it_is_not() {
    let folder = TempDir::new().unwrap();
    let (path, options) = database(folder.path());
    let mut global = Global::start_with(options).await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(30).await;
    let journal = format!("{}-wal", path.display());
    let read_only = ReadOnly::make(&[path.to_str().unwrap(), &journal]);
    writers.refused(20).await;
    tells_that_writing_fails(&mut global, "strait.db").await;
    writers.end().await;
    drop(read_only);
    global.ready().await;
    logged_once(&global);
    healed(&mut global, &book).await;
    book.print("read-only files", 1);
}

/// Files that nobody may write, not even who has them open: a mounted file system cannot be made read-only
/// while files are open for writing, except by its own failure.
struct ReadOnly(Vec<String>);

impl ReadOnly {
    fn make(files: &[&str]) -> Self {
        run("chattr", &[&["+i"], files].concat());
        Self(files.iter().map(|&file| file.to_owned()).collect())
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _told_by_the_cleanup = Command::new("chattr").arg("-i").args(&self.0).status();
    }
}

#[tokio::test]
async fn an_io_error_refuses_writes_until_it_is_over() {
    let folder = TempDir::new().unwrap();
    let (_, options) = database(folder.path());
    // A limit of the size of files makes every write beyond it fail, where the signal for it is ignored.
    let mut global = Global::start_with(options.by(&["env", "--ignore-signal=XFSZ"])).await;
    let book = Arc::new(Book::default());
    let id = global.process.id().to_string();
    for (round, limit) in ["4096:unlimited", "0:unlimited", "65536:unlimited"].iter().enumerate() {
        let writers = Writers::on(&global, &book, round);
        writers.more(20).await;
        run("prlimit", &["--pid", &id, &format!("--fsize={limit}")]);
        writers.refused(10).await;
        tells_that_writing_fails(&mut global, "strait.db").await;
        run("prlimit", &["--pid", &id, "--fsize=unlimited:unlimited"]);
        writers.more(10).await;
        global.ready().await;
        writers.end().await;
        book.check(&global).await;
    }
    logged_once(&global);
    healed(&mut global, &book).await;
    book.print("I/O errors", 3);
}
