//! The form in which a resource leaves, per direction. Pure; applying it twice changes nothing more.

use bytes::Bytes;
use prost::Message;
use prost_reflect::Value;
use thiserror::Error;

use super::{
    attribution,
    features::{Features, HASH_SUFFIX},
};
use crate::{
    model::{
        Format, Kind, Origin, Resource, ResourceKey, SpecError,
        kinds::{secret, zone_ingress_insight},
        labels, names, transcode,
    },
    proto::kuma::mesh::v1alpha1::{DiscoverySubscription, ZoneIngressInsight},
    token::{self, TokenError},
};

/// Labels that say whose a resource of a zone is, and on whose behalf it speaks.
const WHOSE: [&str; 3] = [labels::ORIGIN, labels::ZONE, labels::POLICY_ROLE];

/// Why a resource has no form to leave in. It is withheld then.
#[derive(Debug, Error)]
pub enum MapError {
    /// The stored spec does not decode.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A signing key is not a private key, so its public half cannot be sent in its place.
    #[error(transparent)]
    SigningKey(#[from] TokenError),
}

/// What the form of a resource on its way down depends on besides the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownForm {
    /// Whether the receiver expects hashed names.
    pub hashes_names: bool,
    /// Labels with these prefixes stay here.
    pub skip_prefixes: Vec<String>,
}

impl DownForm {
    /// The form for a receiver with these features.
    pub fn of(features: &Features, skip_prefixes: &[String]) -> Self {
        Self { hashes_names: features.has(HASH_SUFFIX), skip_prefixes: skip_prefixes.to_vec() }
    }
}

/// The form in which global sends `resource` to a zone.
///
/// # Errors
/// [`MapError`] when it must be withheld.
pub fn down(resource: &Resource, form: &DownForm) -> Result<Resource, MapError> {
    if resource.kind() == &secret::GLOBAL_SECRET && token::is_zone_key(resource.name()) {
        // Zones check tokens; only global may sign them, so the private key never leaves.
        return down_public(resource, form);
    }
    let mut mapped = resource.clone();
    mapped.labels.insert(labels::ORIGIN, labels::ORIGIN_GLOBAL);
    mapped.labels.remove(labels::SIGNATURE_OF_HALF);
    drop_prefixes(&mut mapped, &form.skip_prefixes);
    mapped.status = blank_status(resource.kind());
    if resource.kind() == &zone_ingress_insight::KIND {
        mapped.spec = presence(&resource.spec)?.into();
    }
    if form.hashes_names && !resource.kind().keeps_name {
        let name = names::hashed_name(&mapped);
        rename(&mut mapped, name);
    }
    Ok(mapped)
}

/// The form in which global sends the signing key `secret` to a zone that checks tokens and may not make them.
///
/// # Errors
/// [`MapError`] when it must be withheld.
pub fn down_public(secret: &Resource, form: &DownForm) -> Result<Resource, MapError> {
    let (name, pem) = token::public_half(secret)?;
    let mut half = secret.clone();
    half.spec = token::secret_spec(pem).into();
    // A relay has both signatures, and makes the half by itself.
    let signature = half.labels.remove(labels::SIGNATURE_OF_HALF);
    labels::set(&mut half, labels::SIGNATURE, signature.as_deref());
    rename(&mut half, name);
    down(&half, form)
}

/// The form in which `zone` sends `resource` to global. Whatever its author wrote into it, it says that it
/// belongs to `zone`: global refuses what claims another.
///
/// # Errors
/// [`MapError`] when the stored spec does not decode.
pub fn up(resource: &Resource, zone: &str, skip_prefixes: &[String]) -> Result<Resource, MapError> {
    let mut mapped = resource.clone();
    attribution::pin(resource.kind(), &mut mapped.labels, &mut mapped.spec, zone)?;
    mapped.labels.remove(labels::DELETION_GRACE_PERIOD_STARTED_AT);
    // Where it came from is the zone's own business.
    mapped.labels.remove(labels::PROVIDED_BY);
    mapped.labels.remove(labels::SIGNATURE);
    drop_prefixes(&mut mapped, skip_prefixes);
    if let Format::Proto { message } = resource.kind().format
        && resource.kind().is_insight
    {
        mapped.spec = without_generations(message, &mapped.spec)?.into();
    }
    // The zone is part of the name also where its label is not sent.
    let namespace = mapped.label(labels::NAMESPACE);
    let name = names::hashed(mapped.mesh(), mapped.display_name(), Some(zone), namespace);
    rename(&mut mapped, name);
    Ok(mapped)
}

/// What other zones are told of an insight: since when the ingress is there, or is not. What is counted in it changes with
/// each response, and every zone would hear of it from every other.
fn presence(insight: &[u8]) -> Result<Vec<u8>, SpecError> {
    let subscriptions = ZoneIngressInsight::decode(insight)?.subscriptions;
    let is_open = |subscription: &&DiscoverySubscription| subscription.disconnect_time.is_none();
    let last = subscriptions.iter().rfind(is_open).or(subscriptions.last());
    let told = last.map(|last| DiscoverySubscription {
        id: last.id.clone(),
        connect_time: last.connect_time,
        disconnect_time: last.disconnect_time,
        ..DiscoverySubscription::default()
    });
    Ok(ZoneIngressInsight { subscriptions: told.into_iter().collect(), metadata: None }.encode_to_vec())
}

/// The status of a resource nobody has reported on yet; `None` for kinds without a status.
pub fn blank_status(kind: &Kind) -> Option<Bytes> {
    kind.has_status().then(|| Bytes::from_static(kind.empty_status.as_bytes()))
}

fn drop_prefixes(resource: &mut Resource, prefixes: &[String]) {
    if !prefixes.is_empty() {
        let of_zone = matches!(resource.origin, Origin::Zone(_));
        let stays = |key: &str| {
            // The former is no label where it is sent. Without the others it would pass for one of global.
            key == labels::SIGNATURE
                || (of_zone && WHOSE.contains(&key))
                || !prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()))
        };
        resource.labels.retain(|key, _| stays(key));
    }
}

/// Renames, and remembers the old name for people unless an older one is remembered already.
fn rename(resource: &mut Resource, name: String) {
    if *name == *resource.key.name {
        return;
    }
    if resource.label(labels::DISPLAY_NAME).is_none() {
        let name = resource.key.name.clone();
        resource.labels.insert(labels::DISPLAY_NAME, &name);
    }
    resource.key = ResourceKey::new(resource.kind(), resource.mesh(), &name);
}

/// `generation` counts the idle time of a subscription; sent up, it would make every proxy change forever.
fn without_generations(message: &str, insight: &[u8]) -> Result<Vec<u8>, SpecError> {
    let mut insight = transcode::reflect(message, insight)?;
    attribution::each(&mut insight, &["subscriptions"], &mut |subscriptions| {
        let each = subscriptions.as_list_mut().into_iter().flatten().filter_map(Value::as_message_mut);
        each.for_each(|subscription| subscription.clear_field_by_name("generation"));
    });
    Ok(transcode::stable(&insight))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;

    use super::*;
    use crate::{
        model::kinds,
        policy::mesh_timeout,
        proto::{google::protobuf::Timestamp, kuma::mesh::v1alpha1::DataplaneInsight},
    };

    fn resource(kind: &'static Kind, name: &str) -> Resource {
        Resource::new(ResourceKey::new(kind, "default", name), DateTime::UNIX_EPOCH)
    }

    fn form() -> DownForm {
        DownForm::of(&Features::ours(), &["internal.".to_owned()])
    }

    #[test]
    fn names_on_the_way_down() {
        let check = |r: Resource, form: &DownForm, name: &str, display: Option<&str>| {
            let mapped = down(&r, form).unwrap();
            assert_eq!((mapped.name(), mapped.label(labels::DISPLAY_NAME)), (name, display));
            assert_eq!(mapped.label(labels::ORIGIN), Some("global"));
        };
        let timeout = || resource(&mesh_timeout::KIND, "default-timeout-global");
        let hashed = "default-timeout-global-54dbd4c66zwbcf9c";
        check(timeout(), &form(), hashed, Some("default-timeout-global"));
        check(resource(&kinds::mesh::KIND, "default"), &form(), "default", None);
        let old = DownForm::of(&Features::default(), &[]);
        check(timeout(), &old, "default-timeout-global", None);
    }

    #[test]
    fn a_forwarded_resource_keeps_its_name_and_zone() {
        let own = resource(&kinds::mesh_service::KIND, "redis-zone-2");
        let on_global = up(&own, "zone-2", &[]).unwrap();
        assert_eq!(on_global.name(), "redis-zone-2-ff29vc4685c6f594");
        let forwarded = down(&on_global, &form()).unwrap();
        assert_eq!(forwarded.key, on_global.key);
        assert_eq!(forwarded.label(labels::ZONE), Some("zone-2"));
        assert_eq!(forwarded.label(labels::ORIGIN), Some("global"));
        assert_eq!(forwarded.status.unwrap(), blank_status(own.kind()).unwrap());
    }

    #[test]
    fn labels_that_stay_here() {
        let r = resource(&mesh_timeout::KIND, "t")
            .with_label("internal.x", "1")
            .with_label("team", "a")
            .with_label(labels::DELETION_GRACE_PERIOD_STARTED_AT, "now");
        assert!(down(&r, &form()).unwrap().label("internal.x").is_none());
        let sent = up(&r, "zone-1", &["internal.".to_owned()]).unwrap();
        assert_eq!(sent.label("team"), Some("a"));
        assert!(sent.label("internal.x").is_none());
        assert!(sent.label(labels::DELETION_GRACE_PERIOD_STARTED_AT).is_none());
    }

    #[test]
    fn what_is_of_a_zone_never_passes_for_one_of_global() {
        let form = DownForm::of(&Features::ours(), &["kuma.io/".to_owned()]);
        let mut produced = resource(&mesh_timeout::KIND, "t")
            .with_label(labels::ZONE, "zone-2")
            .with_label(labels::POLICY_ROLE, "producer")
            .with_label(labels::EFFECT, "x");
        produced.origin = Origin::Zone("zone-2".into());
        let sent = down(&produced, &form).unwrap();
        assert_eq!(sent.label(labels::ZONE), Some("zone-2"));
        assert_eq!(
            (sent.label(labels::ORIGIN), sent.label(labels::POLICY_ROLE)),
            (Some("global"), Some("producer"))
        );
        assert_eq!(sent.label(labels::EFFECT), None);
    }

    #[test]
    fn mapping_twice_is_mapping_once() {
        let r = resource(&mesh_timeout::KIND, "t").with_label("internal.x", "1");
        let once = down(&r, &form()).unwrap();
        assert_eq!(down(&once, &form()).unwrap(), once);
        let once = up(&r, "zone-1", &[]).unwrap();
        assert_eq!(up(&once, "zone-1", &[]).unwrap(), once);
    }

    #[test]
    fn generations_are_zeroed_and_nothing_else() {
        let insight = |generation| {
            let subscription =
                DiscoverySubscription { id: "s".to_owned(), generation, ..DiscoverySubscription::default() };
            DataplaneInsight { subscriptions: vec![subscription], ..DataplaneInsight::default() }
                .encode_to_vec()
        };
        let r = |generation| {
            let mut r = resource(&kinds::dataplane_insight::KIND, "d").with_spec(insight(generation));
            r.origin = Origin::Zone("zone-1".into());
            r
        };
        assert_eq!(up(&r(7), "zone-1", &[]).unwrap().spec, insight(0));
        assert_eq!(up(&r(0), "zone-1", &[]).unwrap().spec, insight(0));
    }

    #[test]
    fn of_an_ingress_other_zones_are_told_whether_it_is_there() {
        let time = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let subscription = |id: &str, gone: Option<i64>, generation| DiscoverySubscription {
            id: id.to_owned(),
            control_plane_instance_id: "i".to_owned(),
            connect_time: time(1),
            disconnect_time: gone.and_then(time),
            generation,
            ..DiscoverySubscription::default()
        };
        let told = |subscriptions: Vec<DiscoverySubscription>| {
            let spec = ZoneIngressInsight { subscriptions, metadata: None }.encode_to_vec();
            let insight = resource(&kinds::zone_ingress_insight::KIND, "in").with_spec(spec);
            let once = down(&insight, &form()).unwrap();
            assert_eq!(down(&once, &form()).unwrap(), once, "a relay does it again");
            let told = ZoneIngressInsight::decode(&once.spec[..]).unwrap().subscriptions;
            told.into_iter().map(|s| (s.id, s.disconnect_time.is_none(), s.generation)).collect::<Vec<_>>()
        };
        let said = |id: &str, is_open| vec![(id.to_owned(), is_open, 0)];
        assert_eq!(told(vec![subscription("a", Some(2), 0), subscription("b", None, 7)]), said("b", true));
        assert_eq!(told(vec![subscription("a", None, 7), subscription("b", Some(2), 0)]), said("a", true));
        assert_eq!(
            told(vec![subscription("a", Some(2), 0), subscription("b", Some(3), 0)]),
            said("b", false)
        );
        assert_eq!(told(Vec::new()), []);
    }

    #[test]
    fn signing_keys_leave_as_public_keys() {
        let private = token::new_signing_key().unwrap();
        let secret = |data: &[u8]| {
            resource(&kinds::secret::GLOBAL_SECRET, "zone-token-signing-key-1")
                .with_spec(token::secret_spec(data))
        };
        let mapped = down(&secret(private.pem().as_bytes()), &form()).unwrap();
        assert_eq!(mapped.name(), "zone-token-signing-public-key-1");
        let sent = token::data_of(&mapped).unwrap();
        assert!(sent.starts_with(b"-----BEGIN RSA PUBLIC KEY-----"));
        let public = |pem: &[u8]| crate::keys::rsa_public_der(pem).unwrap();
        assert_eq!(public(&sent), public(private.pem().as_bytes()));
        assert!(down(&secret(b"not a key"), &form()).is_err());

        let of_mesh = resource(&kinds::secret::SECRET, "dataplane-token-signing-key-default-1")
            .with_spec(token::secret_spec(private.pem()));
        assert_eq!(down(&of_mesh, &form()).unwrap().spec, of_mesh.spec);
        let half = down_public(&of_mesh, &form()).unwrap();
        assert_eq!(half.name(), "dataplane-token-signing-public-key-default-1");
        assert_eq!(token::data_of(&half).unwrap(), sent);
    }
}
