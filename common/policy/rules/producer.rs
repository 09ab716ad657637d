//! What a policy may say to the proxies of other zones than its own: how services of its zone are called, and nothing else.
//!
//! Its author labels such a policy as a producer's. The label, and members of the spec that no decoder reads, are the word of a
//! zone that may have been taken over. So whoever passes a policy on and whoever applies it judges what the policy says once it
//! is parsed, and what it says is held to destinations of the zone it came from.

use serde_json::{Map, Value, json};

use super::{Policy, PolicyItem, SelectableProxy, Subset};
use crate::{
    model::{ItemForm, Kind, Origin, Resource, SpecError, labels},
    policy::{PolicyRole, TargetKind, TargetRef, mesh_access_log},
};

/// Operators of Envoy that show what is on the machine of a proxy.
const TELLTALE: [&str; 2] = ["ENVIRONMENT(", "FILE_CONTENT("];
/// How placeholders begin that are filled in before Envoy sees a text.
const PLACEHOLDER: &str = "%KUMA_";
/// The files anybody may write to beside a proxy: what it shows on its terminal.
const SHOWN: [&str; 2] = ["/dev/stdout", "/dev/stderr"];

/// The zone for whose services `resource` speaks here, when it came through global from another one.
pub(super) fn guest_of(resource: &Resource) -> Option<&str> {
    let zone = resource.label(labels::ZONE).filter(|zone| !zone.is_empty())?;
    let came = resource.label(labels::ORIGIN) == Some(labels::ORIGIN_GLOBAL);
    (came && PolicyRole::of(resource) == PolicyRole::Producer).then_some(zone)
}

impl Policy {
    /// Whether it says how services of its own namespace are called by all clients, and nothing else: that concerns clients
    /// everywhere.
    pub fn speaks_for_services(&self) -> bool {
        self.speaks
    }

    /// Whether it came through global from another zone.
    pub fn is_guest(&self) -> bool {
        self.guest
    }

    /// The group of destinations by tags that an item of `to` is for, if it is for one. A tag says of no service whose it is,
    /// so what another zone says is for none.
    pub fn group(&self, item: &PolicyItem) -> Option<Subset> {
        if self.guest { None } else { Subset::of(&item.target) }
    }

    /// The same, unless it is what no zone may say to another.
    ///
    /// # Errors
    /// [`SpecError::Overreach`].
    pub(super) fn within_its_zone(self) -> Result<Self, SpecError> {
        match guest_of(&self.resource).filter(|_| !self.speaks) {
            Some(zone) => Err(SpecError::Overreach { zone: zone.to_owned() }),
            None => Ok(self),
        }
    }

    /// Whether `proxy` is in another zone than this, which may not say that to it.
    pub(super) fn overreaches(&self, proxy: &SelectableProxy) -> bool {
        // Seen from global.
        let elsewhere = |zone: &str| !proxy.kri.zone.is_empty() && proxy.kri.zone != zone;
        let is_elsewhere = self.guest
            || (PolicyRole::of(&self.resource) == PolicyRole::Producer
                && matches!(&self.resource.origin, Origin::Zone(zone) if elsewhere(zone)));
        is_elsewhere && !self.speaks
    }

    /// Notes what it may say, and to whom.
    pub(super) fn judged(mut self) -> Self {
        self.speaks = is_about_own_services(&self);
        let Some(zone) = guest_of(&self.resource).map(str::to_owned) else { return self };
        self.guest = true;
        let namespace = self.resource.label(labels::NAMESPACE).unwrap_or_default().to_owned();
        if self.resource.kind().item_form != ItemForm::Default {
            for item in &mut self.to {
                confine(&mut item.conf, &zone, &namespace);
            }
        }
        self
    }
}

fn is_about_own_services(policy: &Policy) -> bool {
    let kind = policy.resource.kind();
    let namespace = policy.resource.label(labels::NAMESPACE).filter(|name| !name.is_empty());
    let Some(namespace) = namespace.filter(|name| *name != labels::SYSTEM_NAMESPACE) else { return false };
    PolicyRole::of(&policy.resource) == PolicyRole::Producer
        && kind.policy.is_some_and(|traits| traits.to)
        && is_for_all(&policy.top)
        && policy.from.is_empty()
        && policy.rules.is_empty()
        && policy.default.is_none()
        && !policy.to.is_empty()
        && policy.to.iter().all(|item| is_own(&item.target, namespace) && is_harmless(kind, &item.conf))
}

/// Whether it is for clients without regard to which they are, or for those of some zones. Who tells clients apart makes
/// as many sorts of them as he likes, and each sort costs their zone what all together did.
fn is_for_all(top: &TargetRef) -> bool {
    let by_zone = || top.tags().all(|(tag, _)| tag == labels::ZONE);
    let is_whole = match top.kind {
        TargetKind::Mesh => top.tags().next().is_none(),
        TargetKind::MeshSubset => by_zone(),
        TargetKind::Dataplane => {
            top.name().is_empty() && top.namespace().is_none() && top.section().is_empty()
        }
        _ => false,
    };
    is_whole && top.labels().is_none()
}

/// Whether an item means something of this namespace, by name.
fn is_own(target: &TargetRef, namespace: &str) -> bool {
    [TargetKind::MeshService, TargetKind::MeshHttpRoute].contains(&target.kind)
        && !target.name().is_empty()
        && target.labels().is_none()
        && target.tags().next().is_none()
        && target.namespace().is_none_or(|meant| meant == namespace)
}

/// Whether what is said of a service does nothing to the machines of its clients.
fn is_harmless(kind: &Kind, conf: &Value) -> bool {
    let logs_elsewhere = || {
        let backends = conf.get("backends").and_then(Value::as_array).into_iter().flatten();
        let mut paths = backends.filter_map(|backend| backend.pointer("/file/path"));
        paths.any(|path| !path.as_str().is_some_and(|path| SHOWN.contains(&path)))
    };
    (kind != &mesh_access_log::KIND || !logs_elsewhere()) && !tells_of_machine(conf)
}

fn tells_of_machine(conf: &Value) -> bool {
    match conf {
        Value::String(text) => {
            let written = without_placeholders(text);
            TELLTALE.iter().any(|operator| written.contains(operator))
        }
        Value::Array(values) => values.iter().any(tells_of_machine),
        Value::Object(members) => members.values().any(tells_of_machine),
        _ => false,
    }
}

/// A text in which nothing is filled in: what is empty could join what stands beside it.
fn without_placeholders(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(PLACEHOLDER) {
        written.push_str(before);
        rest = after.split_once('%').map_or("", |(_, behind)| behind);
    }
    written + rest
}

/// Has every backend in the rules of a route mean a service of `zone`: what is sent there bears the name of the client.
fn confine(conf: &mut Value, zone: &str, namespace: &str) {
    match conf {
        Value::Array(values) => values.iter_mut().for_each(|value| confine(value, zone, namespace)),
        Value::Object(members) => {
            for (name, value) in members {
                match (name.as_str(), value) {
                    ("backendRefs", Value::Array(references)) => references
                        .iter_mut()
                        .filter_map(Value::as_object_mut)
                        .for_each(|reference| mean_service_of(reference, zone, namespace)),
                    ("backendRef", Value::Object(reference)) => mean_service_of(reference, zone, namespace),
                    (_, value) => confine(value, zone, namespace),
                }
            }
        }
        _ => {}
    }
}

/// By labels: a name would mean what has it here.
fn mean_service_of(reference: &mut Map<String, Value>, zone: &str, namespace: &str) {
    reference.remove("tags");
    let own = reference.remove("namespace");
    let mut wanted = match reference.remove("labels") {
        Some(Value::Object(labels)) => labels,
        _ => Map::new(),
    };
    if let Some(name) = reference.remove("name") {
        let own = own.filter(|own| own.as_str().is_some_and(|own| !own.is_empty()));
        wanted.insert(labels::DISPLAY_NAME.to_owned(), name);
        wanted.insert(labels::NAMESPACE.to_owned(), own.unwrap_or_else(|| json!(namespace)));
    }
    wanted.insert(labels::ZONE.to_owned(), json!(zone));
    reference.insert("labels".to_owned(), Value::Object(wanted));
}

#[cfg(test)]
mod tests;
