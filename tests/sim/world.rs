//! A global with a mesh that scripted zones connect to.

use std::sync::Arc;

use common::{
    model::{Kind, Origin, Resource, kinds, transcode},
    policy::mesh_timeout,
};
use global::kds::{AnyZone, GlobalKdsSettings, Kds};
use zone::kds::Dial;

use crate::{
    plane::{Plane, store},
    sockets::{TIMEOUT, serve},
};

pub const DATAPLANE: &str =
    r#"{"networking":{"address":"10.0.0.1","inbound":[{"port":80,"tags":{"kuma.io/service":"web"}}]}}"#;

pub struct World {
    pub global: Plane,
    pub kds: Kds,
    pub dial: Arc<dyn Dial>,
}

impl World {
    pub async fn new() -> Self {
        Self::with(Plane::settings()).await
    }

    /// One that treats zones so.
    pub async fn with(settings: GlobalKdsSettings) -> Self {
        let mut global = Plane::start(store(1), "global", 1).await;
        let kds = global.kds_with(settings, Arc::new(AnyZone));
        let dial = serve(&mut global, &kds).await;
        global.put(global.resource(&kinds::mesh::KIND, "", "default", Origin::Global)).await;
        Self { global, kds, dial }
    }

    pub fn policy(&self, name: &str) -> Resource {
        let policy = self.global.resource(&mesh_timeout::KIND, "default", name, Origin::Global);
        policy.with_spec(TIMEOUT)
    }

    pub fn of_zone(&self, kind: &'static Kind, name: &str, spec: &str) -> Resource {
        let spec = transcode::from_json(kind, &serde_json::from_str(spec).unwrap()).unwrap();
        self.global.resource(kind, "default", name, Origin::Global).with_spec(spec)
    }

    /// What global tells operators about a zone.
    pub fn notes(&self, zone: &str) -> Vec<String> {
        use common::rest::ZoneStatusSource;
        self.kds.zone_status(zone, &self.global.index.current()).unwrap().notes
    }

    /// Waits for a note about a zone that holds all of `words`, and gives it.
    pub async fn note(&self, zone: &str, words: &[&str]) -> String {
        let found = async {
            loop {
                let notes = self.notes(zone);
                match notes.into_iter().find(|note| words.iter().all(|word| note.contains(word))) {
                    Some(note) => return note,
                    None => tokio::task::yield_now().await,
                }
            }
        };
        let found = tokio::time::timeout(std::time::Duration::from_secs(10), found).await;
        found.unwrap_or_else(|_| panic!("no note with {words:?} in {:?}", self.notes(zone)))
    }
}
