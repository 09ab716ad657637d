//! Pins what a zone sends to the zone that sends it. Who sends is known from the session alone; what the
//! payload says about it is corrected, and counted.

use prost::DecodeError;

use super::{
    codec::Item,
    wire::{self, Edit},
};
use crate::model::{Kind, labels};

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

/// Makes `item` say that it belongs to `zone`; true when it claimed another zone before.
///
/// # Errors
/// When the spec does not decode.
pub fn pin(item: &mut Item, zone: &str) -> Result<bool, DecodeError> {
    let claimed = item.labels.insert(labels::ZONE.to_owned(), zone.to_owned());
    item.labels.insert(labels::ORIGIN.to_owned(), labels::ORIGIN_ZONE.to_owned());
    let mut rewritten = claimed.is_some_and(|claimed| !claimed.is_empty() && claimed != zone);
    rewritten |= pin_zone_field(item, zone)?;
    for path in tag_paths(item.key.kind) {
        if let Some(spec) = wire::rewrite(&item.spec, path, &mut |entry| pin_tag(entry, zone))? {
            item.spec = spec.into();
            rewritten = true;
        }
    }
    Ok(rewritten)
}

/// Where a kind carries tags that may name a zone.
fn tag_paths(kind: &Kind) -> &'static [&'static [u32]] {
    use field::{AVAILABLE_SERVICES, GATEWAY, GATEWAY_TAGS, INBOUND, INBOUND_TAGS, NETWORKING, SERVICE_TAGS};
    match kind.name {
        "ZoneIngress" => &[&[AVAILABLE_SERVICES, SERVICE_TAGS]],
        "Dataplane" => &[&[NETWORKING, INBOUND, INBOUND_TAGS], &[NETWORKING, GATEWAY, GATEWAY_TAGS]],
        _ => &[],
    }
}

/// `zone` of the zone proxies is always set. True when it named another zone.
fn pin_zone_field(item: &mut Item, zone: &str) -> Result<bool, DecodeError> {
    if !matches!(item.key.kind.name, "ZoneIngress" | "ZoneEgress") {
        return Ok(false);
    }
    let claimed = wire::find(&item.spec, field::ZONE)?;
    if claimed == Some(zone.as_bytes()) {
        return Ok(false);
    }
    let claimed_other = claimed.is_some_and(|claimed| !claimed.is_empty());
    let mut spec = match wire::rewrite(&item.spec, &[field::ZONE], &mut |_| Ok(Edit::Drop))? {
        Some(stripped) => stripped,
        None => item.spec.to_vec(),
    };
    wire::push_string(&mut spec, field::ZONE, zone);
    item.spec = spec.into();
    Ok(claimed_other)
}

/// An entry of a tag map. A tag that is absent stays absent.
fn pin_tag(entry: &[u8], zone: &str) -> Result<Edit, DecodeError> {
    if wire::find(entry, field::KEY)? != Some(labels::ZONE.as_bytes())
        || wire::find(entry, field::VALUE)? == Some(zone.as_bytes())
    {
        return Ok(Edit::Keep);
    }
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
    use crate::model::{ResourceKey, kinds, transcode};

    fn item(kind: &'static Kind, spec: Value) -> Item {
        Item {
            key: ResourceKey::new(kind, "default", "x"),
            labels: Default::default(),
            spec: transcode::from_json(kind, &spec).unwrap().into(),
            status: None,
        }
    }

    fn check(kind: &'static Kind, sent: Value, stored: Value, rewritten: bool) {
        let mut item = item(kind, sent);
        assert_eq!(pin(&mut item, "zone-1").unwrap(), rewritten, "{stored}");
        assert_eq!(transcode::to_json(kind, &item.spec).unwrap(), stored);
        assert_eq!(item.labels[labels::ZONE], "zone-1");
        assert_eq!(item.labels[labels::ORIGIN], "zone");
    }

    #[test]
    fn zone_proxies_belong_to_the_sender() {
        let ingress = |zone: &str, tag: &str| {
            json!({"zone": zone, "availableServices": [
                {"tags": {"kuma.io/service": "a", "kuma.io/zone": tag}, "instances": 2}]})
        };
        let kind = &kinds::zone_ingress::KIND;
        check(kind, ingress("zone-2", "zone-2"), ingress("zone-1", "zone-1"), true);
        check(kind, ingress("zone-1", "zone-1"), ingress("zone-1", "zone-1"), false);
        check(kind, json!({}), json!({"zone": "zone-1"}), false);
        check(&kinds::zone_egress::KIND, json!({"zone": "other"}), json!({"zone": "zone-1"}), true);
    }

    #[test]
    fn tags_of_dataplanes_belong_to_the_sender() {
        let dataplane = |zone: &str| {
            json!({"networking": {"address": "10.0.0.1",
                "inbound": [{"port": 1, "tags": {"kuma.io/zone": zone}}, {"port": 2, "tags": {"a": "b"}}],
                "gateway": {"tags": {"kuma.io/zone": zone}}}})
        };
        let kind = &kinds::dataplane::KIND;
        check(kind, dataplane("zone-2"), dataplane("zone-1"), true);
        check(kind, dataplane("zone-1"), dataplane("zone-1"), false);
    }

    #[test]
    fn fields_nobody_knows_survive_pinning() {
        let mut ingress = item(&kinds::zone_ingress::KIND, json!({"zone": "zone-2"}));
        let unknown = [0x98, 0x06, 0x2a];
        ingress.spec = [&ingress.spec[..], &unknown].concat().into();
        assert!(pin(&mut ingress, "zone-1").unwrap());
        assert!(ingress.spec.windows(3).any(|w| w == unknown));
        let decoded = crate::proto::kuma::mesh::v1alpha1::ZoneIngress::decode(ingress.spec).unwrap();
        assert_eq!(decoded.zone, "zone-1");
    }

    #[test]
    fn a_label_that_claims_another_zone_is_overruled() {
        let mut item = item(&kinds::mesh_service::KIND, json!({}));
        item.labels.insert(labels::ZONE.to_owned(), "zone-2".to_owned());
        assert!(pin(&mut item, "zone-1").unwrap());
        assert_eq!(item.labels[labels::ZONE], "zone-1");
    }
}
