//! What must hold between the stores of a federation once it is quiet.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    kds::{
        features::Features,
        filter::{Audience, Receiver, goes_up},
        mapper::{self, DownForm},
    },
    model::{Origin, Resource, kinds, labels, transcode},
    store::{Store, memory::MemoryStore},
};
use futures::FutureExt;

/// Content by key, as text that shows well in a difference.
type Contents = BTreeMap<String, String>;

pub fn resources(store: &MemoryStore) -> Vec<Arc<Resource>> {
    store.snapshot().now_or_never().expect("a memory store never waits").unwrap().resources
}

fn line(resource: &Resource) -> (String, String) {
    let mut labels = resource.labels.clone();
    // Who signed it is no part of what it says.
    labels.remove(labels::SIGNATURE);
    let content = format!("{labels:?} {}", resource.spec.escape_ascii());
    (resource.key.to_string(), content)
}

fn difference(whom: &str, expected: &Contents, held: &Contents) -> Vec<String> {
    let missing = expected.iter().filter(|(key, _)| !held.contains_key(*key));
    let ghosts = held.iter().filter(|(key, _)| !expected.contains_key(*key));
    let stale = expected.iter().filter_map(|(key, content)| Some((key, content, held.get(key)?)));
    missing
        .map(|(key, _)| format!("{whom} lacks {key}"))
        .chain(ghosts.map(|(key, _)| format!("{whom} still has {key}")))
        .chain(
            stale.filter(|(_, expected, held)| expected != held).map(|(key, expected, held)| {
                format!("{whom} has {key}\n  as     {held}\n  not as {expected}")
            }),
        )
        .collect()
}

/// What `zone` holds of global without a signature.
pub fn unsigned(zone: &MemoryStore) -> Vec<String> {
    let of_global = resources(zone).into_iter().filter(|resource| resource.origin == Origin::Global);
    let unsigned = of_global.filter(|resource| resource.label(labels::SIGNATURE).is_none());
    unsigned.map(|resource| resource.key.to_string()).collect()
}

/// What keeps the federation from being in sync; empty when it is.
pub fn differences(global: &MemoryStore, zones: &BTreeMap<&'static str, Arc<MemoryStore>>) -> Vec<String> {
    let on_global = resources(global);
    let mut all = Vec::new();
    for (zone, store) in zones {
        let on_zone = resources(store);
        let follows: Contents =
            on_zone.iter().filter(|r| r.origin == Origin::Global).map(|r| line(r)).collect();
        all.extend(difference(zone, &downward(&on_global, zone), &follows));
        let owned = |r: &&Arc<Resource>| r.origin == Origin::Zone((*zone).into());
        let copies: Contents = on_global.iter().filter(owned).map(|r| line(r)).collect();
        let sent = on_zone.iter().filter(|r| goes_up(r, zone));
        let sent: Contents = sent.map(|r| line(&mapper::up(r, zone, &[]).unwrap())).collect();
        all.extend(difference(&format!("global of {zone}"), &sent, &copies));
    }
    all
}

/// The filter of global for one zone.
fn downward(on_global: &[Arc<Resource>], zone: &str) -> Contents {
    let features = Features::ours();
    let receiver = Receiver { zone, features: &features, issues: true };
    let form = DownForm::of(&features, &[]);
    let is_enabled = |name: &str| {
        let zone = on_global.iter().find(|r| r.kind() == &kinds::zone::KIND && r.name() == name);
        zone.is_none_or(|zone| transcode::to_json(zone.kind(), &zone.spec).unwrap()["enabled"] != false)
    };
    let forms = on_global.iter().flat_map(|r| Audience::of(r).into_iter().map(move |audience| (r, audience)));
    let sent = forms.filter(|(_, audience)| audience.includes(receiver, is_enabled));
    let as_sent = |(r, audience): (&Arc<Resource>, Audience)| match audience.gets_public_half() {
        true => mapper::down_public(r, &form),
        false => mapper::down(r, &form),
    };
    sent.map(|form| line(&as_sent(form).unwrap())).collect()
}
