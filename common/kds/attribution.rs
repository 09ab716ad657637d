//! Whose an item is. Who sends it is known from the session alone; what the payload says about it is
//! corrected, and the receiver learns what it said.

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;
use prost::DecodeError;

use super::wire::{self, Edit};
use crate::model::{Kind, labels, names::MAX_NAME};

/// What global does with an item that claims another zone than its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Attribute it to the sender. Zones of Kuma send what their users wrote and rely on it.
    Rewrite,
    /// Refuse it, and keep what is stored. The sender says that it names itself everywhere, so another
    /// name is a mistake nobody should paper over.
    Refuse,
}

/// Where an item claims another zone than its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The field that names it.
    pub field: &'static str,
    /// The zone it names.
    pub zone: String,
}

impl Claim {
    fn new(field: &'static str, zone: &[u8]) -> Self {
        let zone = String::from_utf8_lossy(&zone[..zone.len().min(MAX_NAME)]).into_owned();
        Self { field, zone }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} names zone {:?}", self.field, self.zone)
    }
}

/// Field numbers of the messages that name a zone.
mod field {
    pub(super) const ZONE: u32 = 1; // ZoneIngress, ZoneEgress
    pub(super) const AVAILABLE_SERVICES: u32 = 3; // ZoneIngress
    pub(super) const SERVICE_TAGS: u32 = 1; // ZoneIngress.AvailableService
    pub(super) const NETWORKING: u32 = 1; // Dataplane
    pub(super) const INBOUND: u32 = 1; // Dataplane.Networking
    pub(super) const INBOUND_TAGS: u32 = 2; // Dataplane.Networking.Inbound
    pub(super) const GATEWAY: u32 = 3; // Dataplane.Networking
    pub(super) const GATEWAY_TAGS: u32 = 1; // Dataplane.Networking.Gateway
    pub(super) const KEY: u32 = 1; // an entry of any map
    pub(super) const VALUE: u32 = 2; // an entry of any map
}

/// Makes labels and spec of a resource of `kind` say that it belongs to `zone`; tells what claimed another
/// zone before, the first of all.
///
/// # Errors
/// When the spec does not decode.
pub fn pin(
    kind: &Kind,
    labels: &mut BTreeMap<String, String>,
    spec: &mut Bytes,
    zone: &str,
) -> Result<Option<Claim>, DecodeError> {
    let labelled = labels.insert(labels::ZONE.to_owned(), zone.to_owned());
    labels.insert(labels::ORIGIN.to_owned(), labels::ORIGIN_ZONE.to_owned());
    let labelled = labelled.filter(|labelled| !labelled.is_empty() && labelled != zone);
    let mut claim = labelled.map(|labelled| Claim::new("labels[\"kuma.io/zone\"]", labelled.as_bytes()));
    if matches!(kind.name, "ZoneIngress" | "ZoneEgress") {
        claim = claim.or(pin_zone_field(spec, zone)?);
    }
    for (field, path) in tag_paths(kind) {
        let mut named = None;
        let pinned = wire::rewrite(spec, path, &mut |entry| pin_tag(entry, zone, field, &mut named))?;
        if let Some(pinned) = pinned {
            *spec = pinned.into();
        }
        claim = claim.or(named);
    }
    Ok(claim)
}

/// Where a kind carries tags that may name a zone.
fn tag_paths(kind: &Kind) -> &'static [(&'static str, &'static [u32])] {
    use field::{AVAILABLE_SERVICES, GATEWAY, GATEWAY_TAGS, INBOUND, INBOUND_TAGS, NETWORKING, SERVICE_TAGS};
    match kind.name {
        "ZoneIngress" => {
            &[("availableServices[].tags[\"kuma.io/zone\"]", &[AVAILABLE_SERVICES, SERVICE_TAGS])]
        }
        "Dataplane" => &[
            ("networking.inbound[].tags[\"kuma.io/zone\"]", &[NETWORKING, INBOUND, INBOUND_TAGS]),
            ("networking.gateway.tags[\"kuma.io/zone\"]", &[NETWORKING, GATEWAY, GATEWAY_TAGS]),
        ],
        _ => &[],
    }
}

/// `zone` of the zone proxies is always set.
fn pin_zone_field(spec: &mut Bytes, zone: &str) -> Result<Option<Claim>, DecodeError> {
    let named = wire::find(spec, field::ZONE)?;
    if named == Some(zone.as_bytes()) {
        return Ok(None);
    }
    let claim = named.filter(|named| !named.is_empty()).map(|named| Claim::new("zone", named));
    let mut pinned = match wire::rewrite(spec, &[field::ZONE], &mut |_| Ok(Edit::Drop))? {
        Some(stripped) => stripped,
        None => spec.to_vec(),
    };
    wire::push_string(&mut pinned, field::ZONE, zone);
    *spec = pinned.into();
    Ok(claim)
}

/// An entry of a tag map. A tag that is absent stays absent.
fn pin_tag(
    entry: &[u8],
    zone: &str,
    field: &'static str,
    claim: &mut Option<Claim>,
) -> Result<Edit, DecodeError> {
    let value = wire::find(entry, field::VALUE)?.unwrap_or_default();
    if wire::find(entry, field::KEY)? != Some(labels::ZONE.as_bytes()) || value == zone.as_bytes() {
        return Ok(Edit::Keep);
    }
    claim.get_or_insert_with(|| Claim::new(field, value));
    let mut pinned = Vec::new();
    wire::push_string(&mut pinned, field::KEY, labels::ZONE);
    wire::push_string(&mut pinned, field::VALUE, zone);
    Ok(Edit::Replace(pinned))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use prost::Message;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{kinds, transcode};

    fn pinned(kind: &'static Kind, sent: &Value) -> (Option<Claim>, BTreeMap<String, String>, Bytes) {
        let mut spec = transcode::from_json(kind, sent).unwrap().into();
        let mut labels = BTreeMap::new();
        let claim = pin(kind, &mut labels, &mut spec, "zone-1").unwrap();
        (claim, labels, spec)
    }

    fn check(kind: &'static Kind, sent: Value, stored: Value, claim: Option<&str>) {
        let (found, labels, spec) = pinned(kind, &sent);
        assert_eq!(found.map(|c| c.to_string()).as_deref(), claim, "{sent}");
        assert_eq!(transcode::to_json(kind, &spec).unwrap(), stored);
        assert_eq!((&*labels[labels::ZONE], &*labels[labels::ORIGIN]), ("zone-1", "zone"));
        let again = pin(kind, &mut labels.clone(), &mut spec.clone(), "zone-1").unwrap();
        assert_eq!(again, None, "what is pinned claims nobody else");
    }

    #[test]
    fn zone_proxies_belong_to_the_sender() {
        let ingress = |zone: &str, tag: &str| {
            json!({"zone": zone, "availableServices": [
                {"tags": {"kuma.io/service": "a", "kuma.io/zone": tag}, "instances": 2}]})
        };
        let kind = &kinds::zone_ingress::KIND;
        let own = || ingress("zone-1", "zone-1");
        check(kind, ingress("zone-2", "zone-2"), own(), Some("zone names zone \"zone-2\""));
        let tag = "availableServices[].tags[\"kuma.io/zone\"] names zone \"zone-3\"";
        check(kind, ingress("zone-1", "zone-3"), own(), Some(tag));
        check(kind, own(), own(), None);
        check(kind, json!({}), json!({"zone": "zone-1"}), None);
        let egress = &kinds::zone_egress::KIND;
        check(egress, json!({"zone": "x"}), json!({"zone": "zone-1"}), Some("zone names zone \"x\""));
    }

    #[test]
    fn tags_of_dataplanes_belong_to_the_sender() {
        let dataplane = |zone: &str| {
            json!({"networking": {"address": "10.0.0.1",
                "inbound": [{"port": 1, "tags": {"kuma.io/zone": zone}}, {"port": 2, "tags": {"a": "b"}}],
                "gateway": {"tags": {"kuma.io/zone": zone}}}})
        };
        let kind = &kinds::dataplane::KIND;
        let claim = "networking.inbound[].tags[\"kuma.io/zone\"] names zone \"zone-2\"";
        check(kind, dataplane("zone-2"), dataplane("zone-1"), Some(claim));
        check(kind, dataplane("zone-1"), dataplane("zone-1"), None);
    }

    #[test]
    fn fields_nobody_knows_survive_pinning() {
        let kind = &kinds::zone_ingress::KIND;
        let unknown = [0x98, 0x06, 0x2a];
        let named = transcode::from_json(kind, &json!({"zone": "zone-2"})).unwrap();
        let mut spec = Bytes::from([&named[..], &unknown].concat());
        assert!(pin(kind, &mut BTreeMap::new(), &mut spec, "zone-1").unwrap().is_some());
        assert!(spec.windows(3).any(|w| w == unknown));
        let decoded = crate::proto::kuma::mesh::v1alpha1::ZoneIngress::decode(spec).unwrap();
        assert_eq!(decoded.zone, "zone-1");
    }

    #[test]
    fn a_label_that_claims_another_zone_is_overruled() {
        let mut labels = BTreeMap::from([(labels::ZONE.to_owned(), "zone-2".to_owned())]);
        let claim = pin(&kinds::mesh_service::KIND, &mut labels, &mut Bytes::new(), "zone-1").unwrap();
        assert_eq!(claim.unwrap().to_string(), "labels[\"kuma.io/zone\"] names zone \"zone-2\"");
        assert_eq!(labels[labels::ZONE], "zone-1");
    }
}
