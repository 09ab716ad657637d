//! The disk below the database: full, read-only, failing.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use reqwest::{Method, StatusCode};
use serde_json::json;
use tempfile::TempDir;

use super::writers::{Book, Writers, put_one, say};
use crate::{
    harness::{ControlPlane, Envoy, Global, Options, eventually},
    mesh::{ALLOW_ALL, Member, Shape, federation_with},
};

/// A file system of its own, a few MiB large.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// Mounts it.
    fn mount() -> Self {
        let folder = TempDir::new().unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=6m", "tmpfs", &folder.path().display().to_string()]);
        Self { folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Takes all room there is.
    fn fill(&self) {
        let ballast = fs::File::create(self.path().join("ballast")).unwrap();
        let mut size = 0;
        for step in [65_536, 4_096, 1] {
            while std::os::unix::fs::FileExt::write_all_at(&ballast, &vec![1; step], size).is_ok() {
                size += step as u64;
            }
        }
    }

    /// Gives the room back.
    fn free(&self) {
        fs::remove_file(self.path().join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process may still have files open.
        let _gone_with_the_machine = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Runs a tool that changes the machine for this test. Without the right to, the test fails: it would look
/// as if it had passed.
fn run(tool: &str, args: &[&str]) {
    let output = Command::new(tool).args(args).output();
    let output = output.unwrap_or_else(|e| panic!("{tool} is missing ({e}): demo/setup.sh test installs it"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {args:?}: {said}; this test needs the rights of root");
}

fn database(folder: &Path) -> (PathBuf, Options) {
    let path = folder.join("strait.db");
    let options = Options::default().with("store.sqlite.path", &path.display().to_string());
    (path, options)
}

/// What must hold while nothing can be written: said, served, alive.
async fn tells_that_writing_fails(cp: &mut ControlPlane) {
    let told = eventually("not ready", || {
        let asked = cp.not_ready();
        async { asked.await.ok_or("ready") }
    })
    .await;
    assert!(told.contains("\"store\"") && told.contains("strait.db"), "it says what and why: {told}");
    assert!(cp.healthy().await, "the process is healthy");
    assert_eq!(put_one(cp, "meanwhile").await, StatusCode::SERVICE_UNAVAILABLE);
    cp.get("/meshes/default").await;
    let metrics = cp.metrics().await;
    assert!(metrics.lines().any(|l| l.starts_with("store_writable{") && l.ends_with(" 0")), "{metrics}");
    assert!(cp.process.runs());
}

/// What must hold after it: healed by itself, nothing lost, also not after a crash.
async fn healed(cp: &mut ControlPlane, book: &Arc<Book>) {
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
fn logged_once(cp: &ControlPlane) {
    let log = cp.process.log();
    assert_eq!(log.matches("the store cannot be written:").count(), 1, "{log}");
    assert_eq!(log.matches("request failed").count(), 0, "not a line for every request: {log}");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    let disk = SmallDisk::mount();
    let (_, options) = database(disk.path());
    let mut global = Global::start_with(options).await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(30).await;
    disk.fill();
    writers.refused(20).await;
    tells_that_writing_fails(&mut global).await;
    // Nobody writes: it finds out by itself that there is room again.
    writers.end().await;
    disk.free();
    global.ready().await;
    logged_once(&global);
    healed(&mut global, &book).await;
    book.print("full disk", 1);
}

#[tokio::test]
async fn a_zone_with_a_full_disk_serves_the_proxies_it_has_and_those_that_come() {
    let disk = SmallDisk::mount();
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
    let Member { envoy, outbounds, .. } = client;
    let admin = envoy.admin;
    drop(envoy);
    let _fresh = Envoy::sidecar(zone, "default", "client-1", admin).await;
    eventually("an answer through a fresh Envoy", || async {
        let answer = reqwest::get(format!("http://{}/", outbounds[0])).await.map_err(|e| e.to_string())?;
        if answer.status().is_success() { Ok(()) } else { Err(answer.status().to_string()) }
    })
    .await;
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
    tells_that_writing_fails(&mut global).await;
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
        tells_that_writing_fails(&mut global).await;
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
