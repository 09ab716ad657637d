//! The clock of the machine jumps while the processes run.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::writers::{Book, Writers};
use crate::{
    harness::{Global, Options, Zone, eventually},
    mesh::{ALLOW_ALL, MESH, Member, Shape},
};

/// Ten minutes either way, and back.
const JUMPS: [&str; 4] = ["+600", "+0", "-600", "+0"];

/// The library of the package `faketime`, for programs with threads.
pub fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let mut named = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    named.find(|path| path.exists()).expect("no libfaketime: run `demo/setup.sh test`")
}

/// A clock that a test can set, for a process and its children. Durations are left alone, as the machine's
/// monotonic clock would be.
struct Clock(PathBuf);

impl Clock {
    fn in_folder(folder: &Path, name: &str) -> Self {
        let clock = Self(folder.join(name));
        clock.set("+0");
        clock
    }

    fn set(&self, offset: &str) {
        // Replaced and not rewritten, so that nobody reads half of it.
        let next = self.0.with_extension("next");
        std::fs::write(&next, offset).unwrap();
        std::fs::rename(next, &self.0).unwrap();
    }

    fn options(&self) -> Options {
        Options::default().by(&[
            "env",
            &format!("LD_PRELOAD={}", library().display()),
            &format!("FAKETIME_TIMESTAMP_FILE={}", self.0.display()),
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        ])
    }
}

async fn online(global: &Global) {
    eventually("the zone is online", || async move {
        match global.zone_status("zone-1").await?.as_str() {
            "online" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
}

/// What must hold whatever the clocks say.
async fn goes_on(global: &mut Global, zone: &mut Zone, client: &Member, book: &Arc<Book>, round: usize) {
    let writers = Writers::on(global, book, round);
    writers.more(20).await;
    writers.end().await;
    book.check(global).await;
    global.ready().await;
    zone.ready().await;
    online(global).await;
    client.reaches(0, "backend-1").await;
    let policies = global.get("/meshes/default/meshtimeouts?size=1").await["total"].clone();
    let zone = &*zone;
    eventually("the zone has as many policies", || async {
        let there = zone.try_get("/meshes/default/meshtimeouts?size=1").await?["total"].clone();
        if there == policies { Ok(()) } else { Err(format!("{there} of {policies}")) }
    })
    .await;
}

#[tokio::test]
async fn ten_minutes_forth_and_back_on_either_side_hurt_nobody() {
    let folder = tempfile::TempDir::new().unwrap();
    let clocks = ["global", "zone"].map(|name| Clock::in_folder(folder.path(), name));
    let mut global = Global::start_with(clocks[0].options()).await;
    global.apply(MESH);
    global.apply(ALLOW_ALL);
    let mut zone = Zone::start_with(&global, "zone-1", clocks[1].options()).await;
    online(&global).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    let _backend = Member::join(&zone, Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zone, Shape::http("client-1", "client", &["backend"])).await;
    let book = Arc::new(Book::default());
    goes_on(&mut global, &mut zone, &client, &book, 0).await;
    let mut rounds = 0;
    for clock in &clocks {
        for offset in JUMPS {
            clock.set(offset);
            rounds += 1;
            goes_on(&mut global, &mut zone, &client, &book, rounds).await;
        }
    }
    assert!(global.process.runs() && zone.process.runs());
    book.print("clock jumps of 10 minutes", rounds);
}
