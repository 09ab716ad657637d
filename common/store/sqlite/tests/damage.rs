//! Flipped bits, in every sort of page.
//!
//! A flip is noticed when the store does not open. It is harmless when the store opens and holds exactly
//! what was written: the bit was in a free page, in bytes that no cell uses, in a part of the journal that
//! was folded into the file already, or in how a statement of the schema is spelled. Leases are not compared:
//! their epochs tell writers of one process apart, and a process that starts is the only one.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::{policy, store::Change};

pub(super) const PAGE: usize = 4_096;
/// In each table, in each index, and in as many places of the journal.
const FLIPS: usize = 24;

/// Everything a store says.
#[derive(Debug, PartialEq)]
pub(super) struct Contents {
    identity: StoreIdentity,
    revision: Revision,
    resources: Vec<Arc<Resource>>,
    changes: Vec<Change>,
    sessions: Vec<(String, String)>,
}

impl Contents {
    pub(super) fn names(&self) -> Vec<String> {
        self.resources.iter().map(|resource| resource.name().to_owned()).collect()
    }
}

pub(super) async fn contents(store: &SqliteStore) -> Result<Contents, StoreError> {
    let snapshot = store.snapshot().await?;
    let Changes::Since { changes, .. } = store.changes_since(3.into(), usize::MAX).await? else {
        panic!("the log reaches back")
    };
    let sessions = store.sessions("").await?;
    let identity = store.identity();
    Ok(Contents { identity, revision: snapshot.revision, resources: snapshot.resources, changes, sessions })
}

/// Pages of each sort full of rows, some of them owned, some deleted again.
pub(super) async fn fill(store: &SqliteStore) {
    let mesh =
        Resource::new(ResourceKey::global(&kinds::mesh::KIND, "default"), chrono::DateTime::UNIX_EPOCH);
    for n in 0..80 {
        let key = ResourceKey::new(&policy::mesh_timeout::KIND, "default", format!("policy-{n}").as_str());
        let mut resource = Resource::new(key.clone(), chrono::DateTime::UNIX_EPOCH)
            .with_spec(format!("{{\"value\":\"{}\"}}", "x".repeat(n * 7)))
            .with_label("kuma.io/display-name", &format!("policy {n}"));
        resource.owner = Some(mesh.key.clone());
        let mut writes = vec![Write::put(mesh.clone()), Write::put(resource)];
        if n % 5 == 4 {
            writes.push(Write::delete_when(key, crate::store::Precondition::None));
        }
        store.transact(Batch::of(writes)).await.unwrap();
        let document = Some(format!("{{\"n\":{n}}}"));
        store.put_sessions(vec![(format!("zone/{}", n % 40), document)]).await.unwrap();
    }
    store.acquire("leader", "a", Duration::from_secs(3600), false).await.unwrap();
}

/// The pages of each table and index.
async fn pages(path: &Path) -> BTreeMap<String, Vec<usize>> {
    let mut connection = connect(path).await;
    let rows: Vec<(String, i64)> =
        sqlx::query_as("SELECT name, pageno FROM dbstat").fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let mut pages: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (name, page) in rows {
        pages.entry(name).or_default().push(page.try_into().unwrap());
    }
    pages
}

struct Tally {
    noticed: usize,
    harmless: usize,
}

/// Opens a copy of the files in `from` with one bit of `name` flipped.
async fn flip(from: &Path, name: &str, bit: (usize, u8), wanted: &Contents, tally: &mut Tally) {
    let folder = TempDir::new().unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let damaged = folder.path().join(name);
    let mut bytes = fs::read(&damaged).unwrap();
    let (at, bit) = bit;
    bytes[at] ^= 1 << bit;
    fs::write(&damaged, bytes).unwrap();
    match SqliteStore::open(folder.path().join("store.db")).await {
        Ok(store) => match contents(&store).await {
            Ok(found) => {
                assert_eq!(found, *wanted, "byte {at}, bit {bit} of {name} went unnoticed");
                tally.harmless += 1;
            }
            Err(error) => panic!("byte {at}, bit {bit} of {name} was noticed too late: {error}"),
        },
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("store.db"), "byte {at}, bit {bit} of {name}: {text}");
            tally.noticed += 1;
        }
    }
}

#[tokio::test]
async fn every_flipped_bit_is_noticed_or_changes_nothing() {
    let (crashed, folded) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = folded.path().join("store.db");
    let store = SqliteStore::open(&path).await.unwrap();
    fill(&store).await;
    let wanted = contents(&store).await.unwrap();
    for name in ["store.db", "store.db-wal", "store.db.acknowledged"] {
        fs::copy(folded.path().join(name), crashed.path().join(name)).unwrap();
    }
    store.close().await;
    drop(store);
    let pages = pages(&path).await;
    assert!(pages.contains_key("resources_owner") && pages.contains_key("changes"), "{pages:?}");

    let mut random = StdRng::seed_from_u64(14);
    let (mut all, mut harmless) = (0, 0);
    for (name, pages) in &pages {
        let mut tally = Tally { noticed: 0, harmless: 0 };
        for _ in 0..FLIPS {
            let page = pages[random.random_range(0..pages.len())];
            let at = (page - 1) * PAGE + random.random_range(0..PAGE);
            flip(folded.path(), "store.db", (at, random.random_range(0..8)), &wanted, &mut tally).await;
        }
        println!("{name}: {} noticed, {} harmless", tally.noticed, tally.harmless);
        (all, harmless) = (all + FLIPS, harmless + tally.harmless);
    }
    let mut tally = Tally { noticed: 0, harmless: 0 };
    let journal = fs::read(crashed.path().join("store.db-wal")).unwrap().len();
    for _ in 0..FLIPS {
        let bit = (random.random_range(0..journal), random.random_range(0..8));
        flip(crashed.path(), "store.db-wal", bit, &wanted, &mut tally).await;
    }
    println!("journal: {} noticed, {} harmless", tally.noticed, tally.harmless);
    assert!(tally.noticed > 0 && harmless < all, "some bits matter");
}

/// The types of columns are the driver's to read, and it is not prepared for them to be anything but text.
#[tokio::test]
async fn a_definition_that_is_not_text_is_noticed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let store = SqliteStore::open(&path).await.unwrap();
    fill(&store).await;
    store.close().await;
    drop(store);
    let sound = fs::read(&path).unwrap();
    let is_type = |at: &usize| [b" TEXT".as_slice(), b" BLOB"].contains(&&sound[*at..at + 5]);
    let mut noticed = 0;
    for at in (0..sound.len() - 5).filter(is_type) {
        let mut bytes = sound.clone();
        bytes[at + 2] ^= 0x80;
        fs::write(&path, bytes).unwrap();
        // A few are in what earlier definitions left in a page.
        if let Err(error) = SqliteStore::open(&path).await {
            let text = error.to_string();
            assert!(text.contains("is damaged") && text.contains("store.db"), "byte {at}: {text}");
            noticed += 1;
        }
    }
    assert!(noticed > 10, "the tables have columns: {noticed}");
}

/// Puts single pages of another moment in the place of those of `folder`; a start notices or finds what is wanted.
async fn pages_of(other: &Path, folder: &Path, wanted: &Contents) -> Tally {
    let path = folder.join("store.db");
    let (now, then) = (fs::read(&path).unwrap(), fs::read(other).unwrap());
    let covered = journaled(&folder.join("store.db-wal"));
    // Of leases and sessions nothing says which version is the newest: epochs are for one process, and sessions
    // are said again every few seconds.
    let pages = pages(&path).await;
    let meant = pages.iter().filter(|(name, _)| !name.contains("leases") && !name.contains("sessions"));
    let mut tally = Tally { noticed: 0, harmless: 0 };
    let of = |bytes: &[u8], page: usize| bytes.get((page - 1) * PAGE..page * PAGE).map(<[u8]>::to_vec);
    for page in meant.flat_map(|(_, pages)| pages).copied().filter(|page| !covered.contains(page)) {
        let Some(old) = of(&then, page).filter(|old| of(&now, page).as_ref() != Some(old)) else { continue };
        let copy = TempDir::new().unwrap();
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        let mut bytes = now.clone();
        bytes[(page - 1) * PAGE..page * PAGE].copy_from_slice(&old);
        fs::write(copy.path().join("store.db"), bytes).unwrap();
        match SqliteStore::open(copy.path().join("store.db")).await {
            Ok(store) => {
                let found = contents(&store).await;
                assert_eq!(found.unwrap(), *wanted, "page {page} went unnoticed");
                tally.harmless += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("store.db"), "page {page}: {error}");
                tally.noticed += 1;
            }
        }
    }
    tally
}

/// The pages that a journal holds.
fn journaled(journal: &Path) -> BTreeSet<usize> {
    let (header, frame) = (32, 24 + PAGE);
    let bytes = fs::read(journal).unwrap_or_default();
    let frames = bytes.get(header..).unwrap_or_default().chunks_exact(frame);
    frames.map(|frame| u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize).collect()
}

/// A journal hides what it holds, and nothing else. What was written over beside it is noticed, whether it is of
/// another store or what this one held before, in which every row fits its checksum.
#[tokio::test]
async fn a_page_the_journal_does_not_cover_is_noticed_when_it_is_another() {
    let (folder, before, other) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = folder.path().join("store.db");
    let store = SqliteStore::open(other.path().join("store.db")).await.unwrap();
    fill(&store).await;
    store.close().await;
    let store = SqliteStore::open(&path).await.unwrap();
    fill(&store).await;
    store.close().await;
    let old = before.path().join("store.db");
    fs::copy(&path, &old).unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    for n in 0..80 {
        let key = ResourceKey::new(&policy::mesh_timeout::KIND, "default", format!("policy-{n}").as_str());
        let resource = Resource::new(key, chrono::DateTime::UNIX_EPOCH)
            .with_spec(format!("{{\"value\":\"{}\"}}", "y".repeat(n * 7)));
        store.transact(Batch::of([Write::put(resource)])).await.unwrap();
    }
    store.close().await;
    // A journal that covers little.
    let store = SqliteStore::open(&path).await.unwrap();
    store.transact(Batch::of([Write::put(zone("late"))])).await.unwrap();
    let wanted = contents(&store).await.unwrap();
    let crashed = TempDir::new().unwrap();
    for name in ["store.db", "store.db-wal", "store.db.acknowledged"] {
        fs::copy(folder.path().join(name), crashed.path().join(name)).unwrap();
    }
    store.close().await;
    assert!(!journaled(&crashed.path().join("store.db-wal")).is_empty(), "there is a journal");
    for (what, page_source) in [("its own, from before", old), ("another's", other.path().join("store.db"))] {
        let tally = pages_of(&page_source, crashed.path(), &wanted).await;
        println!("pages of {what}: {} noticed, {} harmless", tally.noticed, tally.harmless);
        assert!(tally.noticed > 3, "{what}: {}", tally.noticed);
    }
}

/// Bits that flip under a running process are found by the look that is taken now and then.
#[tokio::test]
async fn damage_under_a_running_store_is_told_and_stops_its_writes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let store = SqliteStore::open(&path).await.unwrap();
    fill(&store).await;
    store.close().await;
    let store = SqliteStore::open(&path).await.unwrap();
    store.check().await.unwrap();
    // In the middle of a page of each table.
    for (_, pages) in pages(&path).await {
        let mut bytes = fs::read(&path).unwrap();
        let from = (pages[0] - 1) * PAGE;
        bytes[from + 100..from + 3_000].fill(0xee);
        fs::write(&path, bytes).unwrap();
    }
    let refused = store.transact(Batch::of([Write::put(zone("late"))])).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unwritable(_)), "{refused}");
    let health = store.health().borrow().clone();
    assert!(health.damage.is_some_and(|what| what.contains("store.db is damaged")));
    store.put_sessions(vec![("late".to_owned(), None)]).await.unwrap_err();
}
