//! The insight itself, as a value.

use std::collections::BTreeMap;

use common::{
    clip::{clip, clipped},
    model::{
        Resource,
        kinds::{dataplane_insight, zone_ingress_insight},
        transcode,
    },
    proto::{
        google::protobuf::{ListValue, Struct, Timestamp, Value, value::Kind as Json},
        kuma::mesh::v1alpha1 as mesh,
    },
    redact,
};
use prost::Message;

use super::{Certificate, Delivery, timestamp};
use crate::ads::node::{Proxy, ProxyKind};

/// Subscriptions kept while all of them are open.
const KEPT_OPEN: usize = 16;
/// Member of the metadata that is not the proxy's.
const OURS: &str = "strait";
/// What is kept of the metadata of a proxy, of a text in it, and of a version, in bytes.
const LONGEST_METADATA: usize = 64 * 1024;
const LONGEST_TEXT: usize = 16 * 1024;
const LONGEST_VERSION: usize = 256;
/// How many problems are told, and how much of each, in bytes.
const MOST_PROBLEMS: usize = 32;
const LONGEST_PROBLEM: usize = 512;

/// What is new about one proxy.
pub(super) struct InsightUpdate<'a> {
    /// Its streams of this process.
    pub(super) subscriptions: Vec<mesh::DiscoverySubscription>,
    /// What the newest of them said about the proxy; see [`metadata`].
    pub(super) metadata: Option<Struct>,
    /// Its certificate: `None` when nothing is known, `Some(None)` when it has none.
    pub(super) certificate: Option<Option<&'a Certificate>>,
    /// Now.
    pub(super) now: Timestamp,
    /// How many subscriptions are kept, the newest ones.
    pub(super) kept: usize,
}

/// The encoded insight after `update`. What does not decode is replaced.
pub(super) fn merge(existing: Option<&Resource>, kind: ProxyKind, update: InsightUpdate<'_>) -> Vec<u8> {
    let stored: &[u8] = existing.map_or(&[], |e| &e.spec);
    let metadata = update.metadata;
    let merged = match kind {
        ProxyKind::Dataplane => {
            let mut insight = mesh::DataplaneInsight::decode(stored).unwrap_or_default();
            if let Some(certificate) = update.certificate {
                insight.m_tls = certificate.map(|c| m_tls(insight.m_tls.as_ref(), c));
            }
            insight.metadata = metadata.or(insight.metadata);
            merge_subscriptions(&mut insight.subscriptions, update.subscriptions, update.now, update.kept);
            insight.encode_to_vec()
        }
        ProxyKind::Ingress => {
            let mut insight = mesh::ZoneIngressInsight::decode(stored).unwrap_or_default();
            insight.metadata = metadata.or(insight.metadata);
            merge_subscriptions(&mut insight.subscriptions, update.subscriptions, update.now, update.kept);
            insight.encode_to_vec()
        }
        ProxyKind::Egress => {
            let mut insight = mesh::ZoneEgressInsight::decode(stored).unwrap_or_default();
            insight.metadata = metadata.or(insight.metadata);
            merge_subscriptions(&mut insight.subscriptions, update.subscriptions, update.now, update.kept);
            insight.encode_to_vec()
        }
    };
    in_order(kind, merged)
}

/// The bytes with the metadata in the order of its names: left to itself the library writes them in another order each
/// time, and an insight that says the same would be sent on as a new one.
fn in_order(kind: ProxyKind, insight: Vec<u8>) -> Vec<u8> {
    let message = match kind {
        ProxyKind::Dataplane => "kuma.mesh.v1alpha1.DataplaneInsight",
        ProxyKind::Ingress => "kuma.mesh.v1alpha1.ZoneIngressInsight",
        ProxyKind::Egress => "kuma.mesh.v1alpha1.ZoneEgressInsight",
    };
    transcode::reflect(message, &insight).map_or(insight, |message| transcode::stable(&message))
}

/// The node metadata of a proxy, and beside it what the proxy refuses at the moment and what was left out of what it
/// is sent: the subscriptions count rejections but have no room for a reason.
pub(super) fn metadata(proxy: &Proxy, rejections: &BTreeMap<String, String>, problems: &[String]) -> Struct {
    let mut metadata = brief(&proxy.metadata);
    redact::structure(&mut metadata);
    metadata.fields.remove(OURS);
    let mut ours = Struct::default();
    if !rejections.is_empty() {
        let rejections = rejections.iter().map(|(type_name, reason)| (type_name.clone(), text(reason)));
        let fields = Struct { fields: rejections.collect() };
        ours.fields.insert("rejections".to_owned(), Value { kind: Some(Json::StructValue(fields)) });
    }
    if !problems.is_empty() {
        ours.fields.insert("problems".to_owned(), listed(problems));
    }
    if !ours.fields.is_empty() {
        metadata.fields.insert(OURS.to_owned(), Value { kind: Some(Json::StructValue(ours)) });
    }
    metadata
}

fn text(text: &str) -> Value {
    Value { kind: Some(Json::StringValue(text.to_owned())) }
}

/// As many problems as an insight has room for, and how many there are besides.
fn listed(problems: &[String]) -> Value {
    let mut values: Vec<Value> =
        problems.iter().take(MOST_PROBLEMS).map(|problem| text(clip(problem, LONGEST_PROBLEM))).collect();
    if let Some(more) = problems.len().checked_sub(MOST_PROBLEMS).filter(|more| *more > 0) {
        values.push(text(&format!("and {more} more, which /debug/proxies of its zone lists")));
    }
    Value { kind: Some(Json::ListValue(ListValue { values })) }
}

/// What is kept of the metadata of a proxy: an insight goes to global and stays there. A text is cut, and a
/// member that is still too large for what is left is left out; the smaller ones come first.
fn brief(metadata: &Struct) -> Struct {
    let mut members: Vec<(&String, Value)> =
        metadata.fields.iter().map(|(name, value)| (name, cut(value.clone()))).collect();
    members.sort_by_cached_key(|(name, value)| (name.len() + value.encoded_len(), (*name).clone()));
    let mut left = LONGEST_METADATA;
    let fits = members.into_iter().map_while(|(name, value)| {
        left = left.checked_sub(name.len() + value.encoded_len())?;
        Some((name.clone(), value))
    });
    Struct { fields: fits.collect() }
}

/// The value with every text in it cut to a length for people.
fn cut(value: Value) -> Value {
    let kind = value.kind.map(|kind| match kind {
        Json::StringValue(text) => Json::StringValue(clipped(text, LONGEST_TEXT)),
        Json::StructValue(mut inner) => {
            inner.fields = inner.fields.into_iter().map(|(name, value)| (name, cut(value))).collect();
            Json::StructValue(inner)
        }
        Json::ListValue(mut list) => {
            list.values = list.values.into_iter().map(cut).collect();
            Json::ListValue(list)
        }
        other => other,
    });
    Value { kind }
}

/// The last part of a type URL.
pub(super) fn short(type_url: &str) -> &str {
    type_url.rsplit('.').next().unwrap_or(type_url)
}

/// The subscriptions in an insight; none in what does not decode.
pub(super) fn subscriptions(insight: &Resource) -> Vec<mesh::DiscoverySubscription> {
    let (kind, spec) = (insight.kind(), &*insight.spec);
    if kind == &dataplane_insight::KIND {
        mesh::DataplaneInsight::decode(spec).map(|spec| spec.subscriptions)
    } else if kind == &zone_ingress_insight::KIND {
        mesh::ZoneIngressInsight::decode(spec).map(|spec| spec.subscriptions)
    } else {
        mesh::ZoneEgressInsight::decode(spec).map(|spec| spec.subscriptions)
    }
    .unwrap_or_default()
}

/// The spec with every open subscription ended, `None` when there is no open one.
pub(super) fn closed(insight: &Resource, now: Timestamp) -> Option<Vec<u8>> {
    let (kind, spec) = (insight.kind(), &*insight.spec);
    if kind == &dataplane_insight::KIND {
        ended(spec, |spec: &mut mesh::DataplaneInsight| &mut spec.subscriptions, now)
    } else if kind == &zone_ingress_insight::KIND {
        ended(spec, |spec: &mut mesh::ZoneIngressInsight| &mut spec.subscriptions, now)
    } else {
        ended(spec, |spec: &mut mesh::ZoneEgressInsight| &mut spec.subscriptions, now)
    }
}

fn ended<M: Message + Default>(
    spec: &[u8],
    subscriptions: impl Fn(&mut M) -> &mut Vec<mesh::DiscoverySubscription>,
    now: Timestamp,
) -> Option<Vec<u8>> {
    let mut spec = M::decode(spec).ok()?;
    if subscriptions(&mut spec).iter().all(|subscription| subscription.disconnect_time.is_some()) {
        return None;
    }
    end_all(subscriptions(&mut spec), now);
    Some(spec.encode_to_vec())
}

fn end_all(subscriptions: &mut [mesh::DiscoverySubscription], now: Timestamp) {
    for subscription in subscriptions.iter_mut().filter(|s| s.disconnect_time.is_none()) {
        subscription.disconnect_time = Some(now);
    }
}

fn merge_subscriptions(
    stored: &mut Vec<mesh::DiscoverySubscription>,
    ours: Vec<mesh::DiscoverySubscription>,
    now: Timestamp,
    kept: usize,
) {
    // One that says more was written before anybody looked at its length.
    stored.retain(|s| ours.iter().all(|o| o.id != s.id) && s.encoded_len() <= LONGEST_METADATA);
    // A proxy that is here is no longer elsewhere.
    end_all(stored, now);
    stored.extend(ours);
    // A proxy with a stream for each type is here while one of them is open, so those go last.
    let mut surplus = stored.len().saturating_sub(kept.max(1));
    stored.retain(|subscription| {
        let goes = surplus > 0 && subscription.disconnect_time.is_some();
        surplus -= usize::from(goes);
        !goes
    });
    let surplus = stored.len().saturating_sub(kept.max(KEPT_OPEN));
    stored.drain(..surplus);
}

fn m_tls(
    known: Option<&mesh::dataplane_insight::Mtls>,
    certificate: &Certificate,
) -> mesh::dataplane_insight::Mtls {
    let (issued, expires) = certificate.life.map(|(from, to)| (timestamp(from), timestamp(to))).unzip();
    let before = known.map_or(0, |k| k.certificate_regenerations);
    let is_new = issued.is_some() && known.is_none_or(|k| k.last_certificate_regeneration != issued);
    mesh::dataplane_insight::Mtls {
        certificate_expiration_time: expires,
        last_certificate_regeneration: issued,
        certificate_regenerations: before + u32::from(is_new),
        issued_backend: certificate.backend.clone(),
        supported_backends: certificate.supported.clone(),
    }
}

/// The versions a proxy says it has.
pub(super) fn version(proxy: &Proxy) -> mesh::Version {
    let text = |part: &str, field: &str| clip(proxy.version(part, field), LONGEST_VERSION).to_owned();
    let mut envoy = text("envoy", "version");
    if envoy.is_empty() {
        clip(&proxy.user_agent, LONGEST_VERSION).clone_into(&mut envoy);
    }
    mesh::Version {
        kuma_dp: Some(mesh::KumaDpVersion {
            version: text("kumaDp", "version"),
            git_tag: text("kumaDp", "gitTag"),
            git_commit: text("kumaDp", "gitCommit"),
            build_date: text("kumaDp", "buildDate"),
            kuma_cp_compatible: true,
        }),
        envoy: Some(mesh::EnvoyVersion {
            version: envoy,
            build: text("envoy", "build"),
            kuma_dp_compatible: true,
        }),
        dependencies: Default::default(),
    }
}

/// A status in which nothing has happened.
pub(super) fn no_status() -> mesh::DiscoverySubscriptionStatus {
    let none = Some(mesh::DiscoveryServiceStats::default());
    mesh::DiscoverySubscriptionStatus {
        last_update_time: None,
        total: none,
        cds: none,
        eds: none,
        lds: none,
        rds: none,
    }
}

/// Counts one event, in total and for its type where the type has counters.
pub(super) fn count(status: &mut mesh::DiscoverySubscriptionStatus, type_url: &str, delivery: Delivery) {
    let of_type = match short(type_url) {
        "Cluster" => Some(&mut status.cds),
        "ClusterLoadAssignment" => Some(&mut status.eds),
        "Listener" => Some(&mut status.lds),
        "RouteConfiguration" => Some(&mut status.rds),
        _ => None,
    };
    for stats in [Some(&mut status.total), of_type].into_iter().flatten() {
        let stats = stats.get_or_insert_default();
        match delivery {
            Delivery::Sent => stats.responses_sent += 1,
            Delivery::Acknowledged => stats.responses_acknowledged += 1,
            Delivery::Rejected => stats.responses_rejected += 1,
        }
    }
}
