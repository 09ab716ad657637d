//! A federation in a simulated network: one global, two zones, stores that survive their hosts.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use chrono::DateTime;
use common::{
    events::{Event, Subscriber},
    kds::signature::KeyOfResources,
    model::{Kind, Origin, Resource, ResourceKey},
    rest::{ZoneHealth, ZoneStatusSource},
    runtime::http::Limits,
    store::{Batch, Precondition, Store, Write, index::IndexReader, memory::MemoryStore},
};
use futures::FutureExt;
use global::{
    kds::{GlobalKdsSettings, Kds},
    recovery::{Recovery, RecoveryOptions, RecoveryReport},
    relay::{RelayControlPlane, RelayParts, RelaySettings},
};
use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;
use turmoil::{Builder, Sim};
use zone::kds::{Dial, Link, Moves, Ways, ZoneKdsSettings};

use crate::{
    network::{ANOTHER, GLOBAL, RELAYS, SECOND_GLOBAL, SimDial, ZONE_REPLICA, listener},
    oracle,
    plane::{NoEnvoys, Plane, store},
};

pub const ZONES: [&str; 2] = ["zone-1", "zone-2"];
const TICK: Duration = Duration::from_millis(10);

/// A durable disk: what a host finds when it starts.
type Disk = Rc<RefCell<Arc<MemoryStore>>>;

pub struct Federation {
    pub sim: Sim<'static>,
    disks: BTreeMap<&'static str, Disk>,
    pub dials: SimDial,
    links: Rc<RefCell<BTreeMap<&'static str, Link>>>,
    moves: Rc<RefCell<BTreeMap<&'static str, Moves>>>,
    /// Ends a zone in order.
    stops: Rc<RefCell<BTreeMap<&'static str, CancellationToken>>>,
    /// What global last said about each zone, and when it said so for the first time.
    health: Rc<RefCell<BTreeMap<&'static str, (ZoneHealth, Duration)>>>,
    /// What global's bus told, and when.
    events: Rc<RefCell<Vec<(Duration, Event)>>>,
    /// How many of them are noted.
    noted: usize,
    /// What each owner wrote and nobody else may touch.
    owned: BTreeMap<&'static str, BTreeMap<ResourceKey, Resource>>,
    /// Everything that happened, for comparing two runs.
    pub history: Vec<String>,
    revisions: BTreeMap<&'static str, u64>,
    stores: u128,
    operator: Rc<Operator>,
    /// The file of keys that zones trust, where they ask for signatures.
    trusted: Option<NamedTempFile>,
}

/// What a federation is made of besides one global and two zones.
#[derive(Clone, Copy, Default)]
pub struct Shape {
    /// A second instance of global, on the same store.
    pub another_global: bool,
    /// A second replica of the first zone, on the same store.
    pub another_replica: bool,
    /// Two relays between global and the zones, which take either.
    pub relays: bool,
    /// Global signs, and the zones take nothing else.
    pub signed: bool,
}

/// The same key in every run.
pub const SIGNING_KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH
-----END PRIVATE KEY-----
";

/// What an operator wants of global, and what came of it.
#[derive(Default)]
struct Operator {
    wanted: RefCell<Option<RecoveryOptions>>,
    outcome: RefCell<Option<Result<RecoveryReport, String>>>,
}

impl Federation {
    /// With timeouts short enough for many schedules.
    pub fn new(seed: u64) -> Self {
        Self::with_settings(seed, quick())
    }

    /// The same with more in it.
    pub fn shaped(seed: u64, shape: Shape) -> Self {
        Self::build(seed, quick(), shape)
    }

    pub fn with_settings(seed: u64, settings: GlobalKdsSettings) -> Self {
        Self::build(seed, settings, Shape::default())
    }

    fn build(seed: u64, settings: GlobalKdsSettings, shape: Shape) -> Self {
        let instances: &'static [&'static str] =
            if shape.another_global { &[GLOBAL, ANOTHER] } else { &[GLOBAL] };
        let relays: &'static [&'static str] = if shape.relays { &RELAYS } else { &[] };
        let key = shape.signed.then(|| KeyOfResources::from_pem(SIGNING_KEY).unwrap());
        let trusted = key.as_ref().map(|key| {
            let file = NamedTempFile::new().unwrap();
            std::fs::write(file.path(), key.public_pem()).unwrap();
            file
        });
        let settings = GlobalKdsSettings { signing_key: key.map(Arc::new), ..settings };
        let sim = Builder::new()
            .tick_duration(TICK)
            .simulation_duration(Duration::from_secs(600))
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(30))
            .tcp_capacity(4096)
            .rng_seed(seed)
            .build();
        let mut federation = Self {
            sim,
            disks: BTreeMap::new(),
            dials: SimDial::to(instances),
            links: Rc::default(),
            moves: Rc::default(),
            health: Rc::default(),
            events: Rc::default(),
            noted: 0,
            stops: Rc::default(),
            owned: BTreeMap::new(),
            history: Vec::new(),
            revisions: BTreeMap::new(),
            stores: 0,
            operator: Rc::default(),
            trusted,
        };
        federation.start_global(seed, settings.clone());
        if shape.another_global {
            federation.start_another(ANOTHER, seed, settings);
        }
        for relay in relays {
            federation.start_relay(relay, seed);
        }
        for zone in ZONES {
            federation.disk(zone);
            let is_replicated = shape.another_replica && zone == ZONES[0];
            federation.start_zone(zone, zone, seed, relays, is_replicated);
            if is_replicated {
                federation.start_zone(ZONE_REPLICA, zone, seed, relays, true);
            }
        }
        federation
    }

    fn disk(&mut self, host: &'static str) -> Disk {
        self.stores += 1;
        let disk: Disk = Rc::new(RefCell::new(store(self.stores)));
        self.disks.insert(host, Rc::clone(&disk));
        self.owned.insert(host, BTreeMap::new());
        disk
    }

    fn start_global(&mut self, seed: u64, settings: GlobalKdsSettings) {
        let disk = self.disk(GLOBAL);
        let (starts, health) = (RefCell::new(0), Rc::clone(&self.health));
        let (events, operator) = (Rc::clone(&self.events), Rc::clone(&self.operator));
        self.sim.host(GLOBAL, move || {
            *starts.borrow_mut() += 1;
            let (store, seed) = (Arc::clone(&disk.borrow()), seed ^ *starts.borrow());
            let (settings, health) = (settings.clone(), Rc::clone(&health));
            let (events, operator) = (Rc::clone(&events), Rc::clone(&operator));
            async move {
                let plane = Plane::start(store, GLOBAL, seed).await;
                tokio::task::spawn_local(listen(plane.bus.subscribe("simulation"), events));
                let kds = plane.kds_with(settings, Arc::new(global::kds::AnyZone));
                tokio::task::spawn_local(observe(kds.clone(), plane.index.clone(), health));
                tokio::task::spawn_local(operate(recovery(&plane, &kds), operator));
                kds.serve(listener().await, None, Limits::default(), plane.stop.clone())
                    .await
                    .map_err(Into::into)
            }
        });
    }

    /// Another global, which zones may move to.
    pub fn start_second_global(&mut self, seed: u64) {
        let disk = self.disk(SECOND_GLOBAL);
        let starts = RefCell::new(0);
        self.sim.host(SECOND_GLOBAL, move || {
            *starts.borrow_mut() += 1;
            let (store, seed) = (Arc::clone(&disk.borrow()), seed ^ *starts.borrow() ^ 1 << 50);
            async move {
                let plane = Plane::start(store, SECOND_GLOBAL, seed).await;
                let kds = plane.kds_with(quick(), Arc::new(global::kds::AnyZone));
                kds.serve(listener().await, None, Limits::default(), plane.stop.clone())
                    .await
                    .map_err(Into::into)
            }
        });
    }

    /// Starts an instance of global on the store of the first. Nobody watches what it says.
    fn start_another(&mut self, host: &'static str, seed: u64, settings: GlobalKdsSettings) {
        let disk = Rc::clone(&self.disks[GLOBAL]);
        let starts = RefCell::new(0);
        self.sim.host(host, move || {
            *starts.borrow_mut() += 1;
            let (store, seed) = (Arc::clone(&disk.borrow()), seed ^ *starts.borrow() ^ 1 << 48);
            let settings = settings.clone();
            async move {
                let plane = Plane::start(store, host, seed).await;
                let kds = plane.kds_with(settings, Arc::new(global::kds::AnyZone));
                kds.serve(listener().await, None, Limits::default(), plane.stop.clone())
                    .await
                    .map_err(Into::into)
            }
        });
    }

    fn start_relay(&mut self, relay: &'static str, seed: u64) {
        let disk = self.disk(relay);
        let (starts, dials) = (RefCell::new(0), self.dials.clone());
        self.sim.host(relay, move || {
            *starts.borrow_mut() += 1;
            let (store, dials) = (Arc::clone(&disk.borrow()), dials.clone());
            let seed = seed ^ *starts.borrow() ^ u64::from(relay.as_bytes()[6]) << 48;
            async move {
                let plane = Plane::start(store, relay, seed).await;
                let parts = RelayParts {
                    settings: RelaySettings {
                        gzip: false,
                        backoff: (Duration::from_millis(100), Duration::from_secs(2)),
                        connect_timeout: Duration::from_secs(2),
                        beat: Duration::from_secs(1),
                        ..RelaySettings::new(relay)
                    },
                    zones: quick(),
                    store: Arc::clone(&plane.store) as Arc<dyn Store>,
                    index: plane.index.clone(),
                    env: plane.env.clone(),
                    dial: Arc::new(dials),
                };
                let relay = RelayControlPlane::new(parts, |_| Arc::new(global::kds::AnyZone)).await?;
                let (kds, stop) = (relay.kds(), plane.stop.clone());
                tokio::task::spawn_local(async move { relay.follow(stop).await });
                kds.serve(listener().await, None, Limits::default(), plane.stop.clone())
                    .await
                    .map_err(Into::into)
            }
        });
    }

    /// Starts a replica of a zone, which is all of it unless it `is_replicated`.
    fn start_zone(
        &mut self,
        host: &'static str,
        zone: &'static str,
        seed: u64,
        relays: &'static [&'static str],
        is_replicated: bool,
    ) {
        let disk = Rc::clone(&self.disks[zone]);
        let trusted = self.trusted.as_ref().map(|file| file.path().to_owned());
        let (starts, dials, links) = (RefCell::new(0), self.dials.clone(), Rc::clone(&self.links));
        let (stops, moves) = (Rc::clone(&self.stops), Rc::clone(&self.moves));
        self.sim.host(host, move || {
            *starts.borrow_mut() += 1;
            let trusted = trusted.clone();
            let (store, dials, links) = (Arc::clone(&disk.borrow()), dials.clone(), Rc::clone(&links));
            let (stops, moves) = (Rc::clone(&stops), Rc::clone(&moves));
            let seed =
                seed ^ *starts.borrow() ^ (host.len() as u64) << 32 ^ u64::from(host.as_bytes()[5]) << 40;
            async move {
                let plane = Plane::start(store, host, seed).await;
                let settings = ZoneKdsSettings {
                    // Maps reach the wire in random order, and compressed that is a random length.
                    gzip: false,
                    backoff: (Duration::from_millis(100), Duration::from_secs(2)),
                    connect_timeout: Duration::from_secs(2),
                    stall_after: Duration::from_secs(4),
                    shares_store: is_replicated,
                    trusted_keys: trusted,
                    ..ZoneKdsSettings::new(zone)
                };
                let dial = way(relays, &dials, &plane);
                let connector = plane.connector(settings, dial, Arc::new(NoEnvoys));
                let connector = connector.with_dials(Arc::new(dials));
                moves.borrow_mut().insert(host, connector.moves());
                links.borrow_mut().insert(host, connector.link());
                stops.borrow_mut().insert(host, plane.stop.clone());
                match is_replicated {
                    true => connector.run_as_replica(plane.stop.clone()).await,
                    false => connector.run(None, plane.stop.clone()).await,
                }
                // The process lives a little longer than its connection, as real ones do.
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(())
            }
        });
    }

    pub fn store(&self, host: &str) -> Arc<MemoryStore> {
        Arc::clone(&self.disks[host].borrow())
    }

    pub fn link(&self, zone: &str) -> Link {
        self.links.borrow()[zone].clone()
    }

    pub fn moves(&self, zone: &str) -> Moves {
        self.moves.borrow()[zone].clone()
    }

    /// What global says about a zone, and since which moment of the simulation.
    pub fn health(&self, zone: &str) -> (ZoneHealth, Duration) {
        self.health.borrow()[zone]
    }

    /// Runs until global says this about a zone; how long that took.
    pub fn until_health(&mut self, zone: &str, wanted: ZoneHealth, patience: Duration) -> Duration {
        let start = self.sim.elapsed();
        while self.health(zone).0 != wanted {
            assert!(
                self.sim.elapsed() - start < patience,
                "{zone} is {:?} after {patience:?}",
                self.health(zone)
            );
            self.step();
        }
        self.sim.elapsed() - start
    }

    /// What global's bus has told.
    pub fn events(&self) -> Vec<(Duration, Event)> {
        self.events.borrow().clone()
    }

    pub fn origin(host: &str) -> Origin {
        if [GLOBAL, SECOND_GLOBAL].contains(&host) { Origin::Global } else { Origin::Zone(host.into()) }
    }

    /// Writes a resource as its owner, through the store of a host.
    pub fn put(&mut self, host: &'static str, kind: &'static Kind, mesh: &str, name: &str, spec: Vec<u8>) {
        let key = ResourceKey::new(kind, mesh, name);
        self.put_resource(host, Resource::new(key, DateTime::UNIX_EPOCH).with_spec(spec));
    }

    /// The same for a resource that has more than a spec.
    pub fn put_resource(&mut self, host: &'static str, resource: Resource) {
        let resource = Resource { origin: Self::origin(host), ..resource };
        let key = resource.key.clone();
        self.note(format!("{host} writes {key}"));
        self.transact(host, Write::put(resource.clone()));
        self.owned.get_mut(host).unwrap().insert(key, resource);
    }

    /// Writes what was synced in an earlier life.
    pub fn plant(&mut self, host: &'static str, resource: Resource) {
        self.transact(host, Write::put(resource));
    }

    pub fn delete(&mut self, host: &'static str, kind: &'static Kind, mesh: &str, name: &str) {
        let key = ResourceKey::new(kind, mesh, name);
        self.note(format!("{host} deletes {key}"));
        self.transact(host, Write::delete_when(key.clone(), Precondition::OwnedBy(Self::origin(host))));
        self.owned.get_mut(host).unwrap().remove(&key);
    }

    fn transact(&self, host: &str, write: Write) {
        let store = self.store(host);
        let commit = store.transact(Batch::of([write]));
        commit.now_or_never().expect("a memory store never waits").unwrap();
    }

    /// Crashes a host; its store loses everything too when `lose_store`.
    pub fn crash(&mut self, host: &'static str, lose_store: bool) {
        self.note(format!("{host} crashes{}", if lose_store { " and loses its store" } else { "" }));
        self.sim.crash(host);
        if lose_store {
            self.stores += 1;
            *self.disks[host].borrow_mut() = store(self.stores);
            self.owned.get_mut(host).unwrap().clear();
            self.revisions.remove(host);
        }
    }

    /// Crashes a host, and puts `store` in place of its own.
    pub fn restore(&mut self, host: &'static str, store: Arc<MemoryStore>) {
        self.note(format!("{host} crashes and gets another store"));
        self.sim.crash(host);
        *self.disks[host].borrow_mut() = store;
        self.revisions.remove(host);
    }

    /// What a host owns, to compare with later.
    pub fn owned_by(&self, host: &'static str) -> BTreeMap<ResourceKey, Resource> {
        self.owned[host].clone()
    }

    /// What a host should own from now on.
    pub fn now_owns(&mut self, host: &'static str, owned: BTreeMap<ResourceKey, Resource>) {
        self.owned.insert(host, owned);
    }

    /// Recovers global from its zones; `each` looks at every tick of it.
    pub fn recover(
        &mut self,
        options: RecoveryOptions,
        mut each: impl FnMut(&Self),
    ) -> Result<RecoveryReport, String> {
        self.note("an operator recovers global".to_owned());
        *self.operator.outcome.borrow_mut() = None;
        *self.operator.wanted.borrow_mut() = Some(options);
        let end = self.sim.elapsed() + Duration::from_secs(30);
        loop {
            self.step();
            each(self);
            if let Some(outcome) = self.operator.outcome.borrow_mut().take() {
                return outcome;
            }
            assert!(self.sim.elapsed() < end, "a recovery takes too long");
        }
    }

    /// Asks a zone to stop, as SIGTERM does.
    pub fn terminate(&mut self, zone: &'static str) {
        self.note(format!("{zone} is told to stop"));
        self.stops.borrow()[zone].cancel();
    }

    pub fn bounce(&mut self, host: &'static str) {
        self.note(format!("{host} starts"));
        self.sim.bounce(host);
    }

    pub fn note(&mut self, what: String) {
        self.history.push(format!("{:>8} ms {what}", self.sim.elapsed().as_millis()));
    }

    /// One tick of the world.
    pub fn step(&mut self) {
        self.sim.step().unwrap();
        let events = self.events.borrow()[self.noted..].to_vec();
        self.noted += events.len();
        for (_, event) in events.iter().filter(|(_, event)| event.zone().is_some()) {
            self.note(format!("{event:?}"));
        }
        let disks: Vec<_> =
            self.disks.iter().map(|(host, disk)| (*host, Arc::clone(&disk.borrow()))).collect();
        for (host, store) in disks {
            let head = *store.watch_head().borrow();
            if self.revisions.insert(host, head) != Some(head) {
                self.note(format!("{host} is at revision {head}"));
            }
        }
    }

    pub fn run_for(&mut self, time: Duration) {
        let end = self.sim.elapsed() + time;
        while self.sim.elapsed() < end {
            self.step();
        }
    }

    /// What keeps the federation from being in sync.
    pub fn differences(&self) -> Vec<String> {
        let zones: BTreeMap<_, _> = ZONES.into_iter().map(|zone| (zone, self.store(zone))).collect();
        let mut differences = oracle::differences(&self.store(GLOBAL), &zones);
        if self.trusted.is_some() {
            differences.extend(zones.values().flat_map(|store| oracle::unsigned(store)));
        }
        differences
    }

    /// Nobody changes what another owns, at any time.
    pub fn assert_owners_keep_their_own(&self) {
        for (host, owned) in &self.owned {
            let held = oracle::resources(&self.store(host));
            for (key, resource) in owned {
                let kept = held.iter().find(|r| r.key == *key);
                let kept = kept.unwrap_or_else(|| panic!("{host} lost {key}, which it owns"));
                assert!(
                    kept.spec == resource.spec && kept.origin == resource.origin,
                    "{host}: {key} was changed"
                );
            }
            // And nothing that was deleted by its owner comes back.
            let own = held.iter().filter(|r| r.origin == Self::origin(host) && is_user_written(r.kind()));
            for resource in own {
                assert!(owned.contains_key(&resource.key), "{host}: {} came back", resource.key);
            }
        }
    }

    /// Runs until everything is in sync and stays so.
    pub fn converge(&mut self, patience: Duration) {
        let end = self.sim.elapsed() + patience;
        while !self.differences().is_empty() {
            assert!(
                self.sim.elapsed() < end,
                "not in sync after {patience:?}:\n{}",
                self.differences().join("\n")
            );
            self.run_for(Duration::from_millis(200));
        }
        self.note("in sync".to_owned());
        self.run_for(Duration::from_secs(2));
        let differences = self.differences();
        assert!(differences.is_empty(), "fell out of sync again:\n{}", differences.join("\n"));
        self.assert_owners_keep_their_own();
    }

    pub fn dials(&self) -> usize {
        self.dials.dials.load(Ordering::Relaxed)
    }
}

/// The way of a zone: to global, or to one of the relays before it.
fn way(relays: &'static [&'static str], dials: &SimDial, plane: &Plane) -> Arc<dyn Dial> {
    if relays.is_empty() {
        return Arc::new(dials.clone());
    }
    let to = |relay| Arc::new(dials.instead_to(relay)) as Arc<dyn Dial>;
    Arc::new(Ways::new(relays.chunks(1).map(to).collect(), &plane.env))
}

/// Keeps what the bus tells.
async fn listen(mut bus: Subscriber, events: Rc<RefCell<Vec<(Duration, Event)>>>) {
    loop {
        let event = bus.next().await.expect("a bus that is heard in time");
        events.borrow_mut().push((turmoil::sim_elapsed().unwrap(), event));
    }
}

/// Looks at the zones as often as an impatient operator.
async fn observe(
    kds: Kds,
    index: IndexReader,
    health: Rc<RefCell<BTreeMap<&'static str, (ZoneHealth, Duration)>>>,
) {
    loop {
        for zone in ZONES {
            let now = kds.zone_status(zone, &index.current()).unwrap().status;
            let mut health = health.borrow_mut();
            if health.get(zone).is_none_or(|(before, _)| *before != now) {
                health.insert(zone, (now, turmoil::sim_elapsed().unwrap()));
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn quick() -> GlobalKdsSettings {
    GlobalKdsSettings {
        poll_interval: Duration::from_secs(1),
        unknown_after: Duration::from_secs(2),
        offline_after: Duration::from_secs(4),
        stall_after: Duration::from_secs(4),
        keepalive: Duration::from_secs(2),
        ..Plane::settings()
    }
}

fn recovery(plane: &Plane, kds: &Kds) -> Recovery {
    let store = Arc::clone(&plane.store) as Arc<dyn Store>;
    Recovery::new(Arc::new(kds.clone()), store, plane.index.clone(), plane.env.clone(), Vec::new())
}

/// Does what an operator wants.
async fn operate(recovery: Recovery, operator: Rc<Operator>) {
    loop {
        let wanted = operator.wanted.borrow_mut().take();
        if let Some(options) = wanted {
            let outcome = recovery.run(options, false).await;
            *operator.outcome.borrow_mut() = Some(outcome.map_err(|error| error.to_string()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Kinds that only people write in these tests; the control planes write zones and insights themselves.
fn is_user_written(kind: &Kind) -> bool {
    !matches!(kind.name, "Zone" | "ZoneInsight")
}
