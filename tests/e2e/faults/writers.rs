//! Writers that never pause, and the proof that nothing they were promised is lost.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use crate::harness::{control_plane::ControlPlane, eventually};

/// Resources a page of the API holds at most.
const PAGE: usize = 1_000;
/// The label that holds what was written.
const VALUE: &str = "value";
/// A resource of its own each, and one that is written again and again by its connection.
const CONNECTIONS: usize = 4;
/// After this a writer turns to the next; the write it gave up may have happened.
const PATIENCE: Duration = Duration::from_secs(10);

/// Values of one resource.
#[derive(Clone, Copy, Default, Debug)]
struct Values {
    /// The last one that was acknowledged, or 0.
    acknowledged: usize,
    /// The last one that was sent.
    sent: usize,
}

/// What became of every write so far.
#[derive(Default)]
pub struct Book {
    resources: Mutex<BTreeMap<String, Values>>,
    acknowledged: AtomicUsize,
    refused: AtomicUsize,
}

impl Book {
    /// Writes that were acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Writes that were refused or not answered so far.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    fn sent(&self, name: &str, value: usize) {
        self.resources.lock().unwrap().entry(name.to_owned()).or_default().sent = value;
    }

    fn answered(&self, name: &str, value: usize, status: Option<StatusCode>) {
        if status.is_some_and(|status| status.is_success()) {
            self.resources.lock().unwrap().entry(name.to_owned()).or_default().acknowledged = value;
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
        } else {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reads everything back; panics when something acknowledged is not there, or is older than that.
    /// Nobody must be writing.
    pub async fn check(&self, cp: &ControlPlane) {
        let stored = stored(cp).await;
        let resources = self.resources.lock().unwrap().clone();
        let lost: Vec<_> = resources
            .iter()
            .filter(|(name, values)| {
                let found = stored.get(*name).copied().unwrap_or(0);
                found < values.acknowledged || found > values.sent
            })
            .map(|(name, values)| format!("{name}: {values:?}, stored {:?}", stored.get(name)))
            .collect();
        assert!(
            lost.is_empty(),
            "{} of {} lost: {:#?}",
            lost.len(),
            resources.len(),
            &lost[..lost.len().min(5)]
        );
    }

    /// Prints what was counted, past the capture of the test harness.
    pub fn print(&self, fault: &str, rounds: usize) {
        let (acknowledged, refused) = (self.acknowledged(), self.refused());
        say(&format!(
            "{fault}: rounds {rounds}, writes acknowledged {acknowledged}, refused {refused}, lost 0"
        ));
    }
}

/// Past the capture of the test harness, which hides the output of tests that pass.
pub fn say(what: &str) {
    let _nobody_listens = writeln!(std::io::stderr(), "FAULT {what}");
}

async fn stored(cp: &ControlPlane) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for offset in (0..).step_by(PAGE) {
        let page = cp.get(&format!("/meshes/default/meshtimeouts?size={PAGE}&offset={offset}")).await;
        for item in page["items"].as_array().unwrap() {
            if let Some(value) = value_of(item) {
                found.insert(item["name"].as_str().unwrap().to_owned(), value);
            }
        }
        if page["next"].is_null() {
            break;
        }
    }
    found
}

fn value_of(item: &Value) -> Option<usize> {
    item["labels"][VALUE].as_str()?.parse().ok()
}

/// Writes until it is ended.
pub struct Writers {
    stop: Arc<AtomicBool>,
    book: Arc<Book>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Writers {
    /// Starts to write to `cp` over several connections. `round` makes the names its own.
    pub fn on(cp: &ControlPlane, book: &Arc<Book>, round: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (0..CONNECTIONS)
            .map(|connection| {
                let (base, token) = (cp.url("/meshes/default/meshtimeouts"), cp.admin_token());
                let (stop, book) = (Arc::clone(&stop), Arc::clone(book));
                tokio::spawn(write(base, token, (round, connection), stop, book))
            })
            .collect();
        Self { stop, book: Arc::clone(book), tasks }
    }

    /// Waits until this many more are acknowledged.
    pub async fn more(&self, count: usize) {
        let goal = self.book.acknowledged() + count;
        eventually("more acknowledged writes", || async move {
            let now = self.book.acknowledged();
            if now >= goal {
                Ok(())
            } else {
                Err(format!("{now} of {goal}, {} refused", self.book.refused()))
            }
        })
        .await;
    }

    /// Waits until this many more are refused.
    pub async fn refused(&self, count: usize) {
        let goal = self.book.refused() + count;
        eventually("refused writes", || async move {
            let now = self.book.refused();
            if now >= goal { Ok(()) } else { Err(format!("{now} of {goal}")) }
        })
        .await;
    }

    /// No more writes.
    pub async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

async fn write(
    base: String,
    token: String,
    (round, connection): (usize, usize),
    stop: Arc<AtomicBool>,
    book: Arc<Book>,
) {
    let client = Client::builder().timeout(PATIENCE).build().unwrap();
    for value in 1.. {
        // Every other write replaces what this connection wrote before, over all rounds.
        let (name, value) = match value % 2 {
            0 => (format!("again-{connection}"), round * 1_000_000 + value),
            _ => (format!("once-{round}-{connection}-{value}"), value),
        };
        if stop.load(Ordering::Relaxed) {
            return;
        }
        book.sent(&name, value);
        let put = client.put(format!("{base}/{name}")).bearer_auth(&token);
        let sent = put.json(&timeout(&name, value)).send().await;
        // The answer counts when all of it arrived.
        let status = match sent {
            Ok(answer) => {
                let status = answer.status();
                answer.bytes().await.is_ok().then_some(status)
            }
            Err(_) => None,
        };
        book.answered(&name, value, status);
        if !status.is_some_and(|status| status.is_success()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn timeout(name: &str, value: usize) -> Value {
    json!({
        "type": "MeshTimeout",
        "mesh": "default",
        "name": name,
        "labels": { VALUE: value.to_string() },
        "spec": { "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "1s" } }] },
    })
}

/// PUTs one resource by itself.
pub async fn put_one(cp: &ControlPlane, name: &str) -> StatusCode {
    let path = format!("/meshes/default/meshtimeouts/{name}");
    cp.call(reqwest::Method::PUT, &path, Some(timeout(name, 1))).await.0
}
