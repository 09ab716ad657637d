//! Replays the federation cases: what each control plane holds before, and after they have synced.
//!
//! A case is a folder with `<control plane>.input.yaml` and `<control plane>.golden.yaml` for `global` and
//! each zone. Recorded cases lie with the others; the ones beside this file were written for labels the
//! recorded ones do not use.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use common::{
    document::{self, Document},
    model::{Kind, Origin, Resource, labels},
    runtime::http::Limits,
    store::{Batch, Store, Write},
    testing::goldens::{Outcome, read, yaml_documents},
    tls::Trust,
};
use serde_json::{Map, Value};
use tokio::net::TcpListener;
use zone::kds::{Dial, Trusted, ZoneKdsSettings};

use crate::plane::{Plane, store};

const GLOBAL: &str = "global";
/// The time all recorded documents carry.
const NO_TIME: &str = "0001-01-01T00:00:00Z";
/// How long a federation may take to look as recorded.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the cases in `dir`, then those beside this file.
pub(crate) fn kds_sync(dir: &Path) -> Vec<Outcome> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/kds-sync");
    [dir, &own].into_iter().flat_map(cases).collect()
}

fn cases(dir: &Path) -> Vec<Outcome> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut folders: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    let name =
        |folder: &Path| folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    folders.iter().map(|folder| (name(folder), run(folder))).collect()
}

fn run(folder: &Path) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(sync(folder))
}

async fn sync(folder: &Path) -> Result<(), String> {
    let mut global = start(folder, GLOBAL, 1).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|e| e.to_string())?;
    let address = format!("grpc://{}", listener.local_addr().map_err(|e| e.to_string())?);
    let (kds, stop) = (global.kds(), global.stop.clone());
    global.tasks.spawn(async move {
        kds.serve(listener, None, Limits::default(), stop).await.expect("global serves")
    });
    let dial: Arc<dyn Dial> = Arc::new(Trusted::new(&address, &Trust::System).map_err(|e| e.to_string())?);
    let mut planes = BTreeMap::from([(GLOBAL.to_owned(), global)]);
    for (number, zone) in zones(folder).into_iter().enumerate() {
        let mut plane = start(folder, &zone, number as u64 + 2).await?;
        plane.follow(ZoneKdsSettings::new(&zone), Arc::clone(&dial));
        planes.insert(zone, plane);
    }
    for (name, plane) in &planes {
        let golden = read(&folder.join(format!("{name}.golden.yaml")))?;
        let golden: BTreeMap<String, Value> = yaml_documents(&golden)?.into_iter().map(by_identity).collect();
        until(name, plane, &golden).await?;
        valid(&plane.index.current()).map_err(|error| format!("{name} {error}"))?;
    }
    Ok(())
}

/// Whether whoever looks at what came takes it.
fn valid(index: &common::store::index::Index) -> Result<(), String> {
    for resource in index.iter() {
        let violations =
            resource.kind().validate(&resource.spec).map_err(|e| format!("{}: {e}", resource.key))?;
        if !violations.is_empty() {
            return Err(format!("holds what nobody would take: {}: {violations}", resource.key));
        }
    }
    Ok(())
}

fn zones(folder: &Path) -> Vec<String> {
    let inputs = common::testing::goldens::cases(folder, ".input.yaml");
    inputs.into_iter().filter(|name| name != GLOBAL).collect()
}

/// A control plane that holds its input.
async fn start(folder: &Path, name: &str, number: u64) -> Result<Plane, String> {
    let plane = Plane::start(store(number.into()), name, number).await;
    let input = read(&folder.join(format!("{name}.input.yaml")))?;
    let resources: Result<Vec<Resource>, String> =
        yaml_documents(&input)?.iter().map(|document| load(document, name, &plane)).collect();
    plane
        .store
        .transact(Batch::of(resources?.into_iter().map(Write::put)))
        .await
        .map_err(|e| e.to_string())?;
    Ok(plane)
}

/// A document as a control plane would have stored it: normalised, and owned by whom its labels say.
fn load(document: &Value, plane_name: &str, plane: &Plane) -> Result<Resource, String> {
    let mut document = Document::parse(document).map_err(|e| e.to_string())?;
    let kind = document.kind;
    document.spec = kind.normalize(&document.spec).map_err(|e| e.to_string())?;
    document.status = document.status.map(|status| whole_status(kind, status));
    let mut resource = document.into_resource(plane.env.now());
    let zone = resource.label(labels::ZONE).map(str::to_owned);
    resource.origin = match (resource.label(labels::ORIGIN), plane_name) {
        (Some(labels::ORIGIN_GLOBAL), _) => Origin::Global,
        (Some(labels::ORIGIN_ZONE), _) => Origin::Zone(zone.as_deref().unwrap_or(plane_name).into()),
        (_, GLOBAL) => Origin::Global,
        (_, zone) => Origin::Zone(zone.into()),
    };
    Ok(resource)
}

/// The status with the members that are always there.
fn whole_status(kind: &Kind, status: Value) -> Value {
    let mut whole: Map<String, Value> = serde_json::from_str(kind.empty_status).unwrap_or_default();
    if let Value::Object(members) = status {
        whole.extend(members);
    }
    Value::Object(whole)
}

/// Waits until the control plane shows exactly what was recorded.
async fn until(name: &str, plane: &Plane, golden: &BTreeMap<String, Value>) -> Result<(), String> {
    let mut index = plane.index.clone();
    let same = async {
        while shown(&index.latest())? != *golden {
            if !index.changed().await {
                return Err("the feed ended".to_owned());
            }
        }
        Ok(())
    };
    match tokio::time::timeout(PATIENCE, same).await {
        Ok(same) => same,
        Err(_) => Err(format!("{name} {}", difference(golden, &shown(&plane.index.current())?))),
    }
}

fn shown(index: &common::store::index::Index) -> Result<BTreeMap<String, Value>, String> {
    let rendered = index.iter().map(|resource| document::render(resource).map_err(|e| e.to_string()));
    rendered.map(|document| document.map(by_identity)).collect()
}

/// A document without what differs from run to run: times, and the streams an insight lists.
fn by_identity(mut document: Value) -> (String, Value) {
    let text = |document: &Value, member: &str| {
        document.get(member).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let identity =
        format!("{} {}/{}", text(&document, "type"), text(&document, "mesh"), text(&document, "name"));
    let is_insight = text(&document, "type") == "ZoneInsight";
    if let Some(members) = document.as_object_mut() {
        for time in ["creationTime", "modificationTime"] {
            members.insert(time.to_owned(), NO_TIME.into());
        }
        if is_insight {
            for streams in ["subscriptions", "kdsStreams", "envoyAdminStreams"] {
                members.remove(streams);
            }
            if let Some(time) = members.get_mut("healthCheck").and_then(|check| check.get_mut("time")) {
                *time = NO_TIME.into();
            }
        }
    }
    (identity, document)
}

fn difference(golden: &BTreeMap<String, Value>, held: &BTreeMap<String, Value>) -> String {
    let mut lines = Vec::new();
    for (identity, expected) in golden {
        match held.get(identity) {
            None => lines.push(format!("lacks {identity}")),
            Some(held) if held != expected => {
                lines.push(format!("has {identity}\n  as     {held}\n  not as {expected}"));
            }
            Some(_) => {}
        }
    }
    lines.extend(held.keys().filter(|key| !golden.contains_key(*key)).map(|key| format!("also has {key}")));
    lines.join("\n")
}
