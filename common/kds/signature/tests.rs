#![allow(clippy::unwrap_used)]

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der},
    signature::{Ed25519KeyPair, KeyPair},
};
use chrono::DateTime;
use proptest::prelude::*;

use super::*;
use crate::{
    kds::{
        codec,
        features::Features,
        mapper::{self, DownForm},
    },
    model::{ResourceKey, kinds},
    policy::mesh_timeout,
    proto::google::protobuf::Any,
    xds::Wanted,
};

const SPEC: &[u8] = br#"{"to":[{"targetRef":{"kind":"Mesh"},"default":{"idleTimeout":"20s"}}]}"#;

/// A key as openssl writes it: the private one, and the public half.
fn pair() -> (String, String) {
    let pair = Ed25519KeyPair::generate().unwrap();
    let private: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    let text = |tag: &str, der: &[u8]| pem::encode(&pem::Pem::new(tag, der));
    (text("PRIVATE KEY", private.as_ref()), text("PUBLIC KEY", public.as_ref()))
}

fn keys() -> (KeyOfResources, TrustedKeys) {
    let (private, public) = pair();
    let key = KeyOfResources::from_pem(&private).unwrap();
    assert_eq!(TrustedKeys::from_pem(&key.public_pem()), TrustedKeys::from_pem(&public));
    (key, TrustedKeys::from_pem(&public).unwrap())
}

fn timeout(name: &str) -> Resource {
    let key = ResourceKey::new(&mesh_timeout::KIND, "default", name);
    Resource::new(key, DateTime::UNIX_EPOCH).with_spec(SPEC)
}

/// As global sends it.
fn sent(resource: &Resource, key: &KeyOfResources) -> Wanted {
    let mut form = mapper::down(resource, &DownForm::of(&Features::ours(), &[])).unwrap();
    form.labels.insert(labels::SIGNATURE, key.signature_of(&form));
    codec::encode(&form)
}

fn any(wanted: &Wanted) -> Any {
    Any { type_url: wanted.type_url.to_owned(), value: wanted.value.to_vec() }
}

fn item(resource: &Resource, key: &KeyOfResources) -> Item {
    codec::decode(resource.kind(), &any(&sent(resource, key))).unwrap()
}

#[test]
fn what_global_signed_is_taken_and_what_anybody_changed_is_not() {
    let (key, trusted) = keys();
    let good = item(&timeout("t").with_label("team", "a"), &key);
    assert_eq!(trusted.verify(&good), Ok(()));
    let changed = |change: &dyn Fn(&mut Item)| {
        let mut item = good.clone();
        change(&mut item);
        trusted.verify(&item)
    };
    let wrong = Err(SignatureRefusal::Wrong(key.id().to_owned()));
    let other = |mesh: &str, name: &str| ResourceKey::new(&mesh_timeout::KIND, mesh, name);
    assert_eq!(changed(&|item| item.spec = [SPEC, b" "].concat().into()), wrong);
    assert_eq!(changed(&|item| item.status = Some("{}".into())), wrong);
    assert_eq!(changed(&|item| drop(item.labels.insert("team", "b"))), wrong);
    assert_eq!(changed(&|item| drop(item.labels.remove("team"))), wrong);
    // Its own words, in the place of another.
    assert_eq!(changed(&|item| item.key = other("default", "u")), wrong);
    assert_eq!(changed(&|item| item.key = other("payments", &item.key.name)), wrong);
    assert_eq!(
        changed(&|item| {
            item.key = ResourceKey::new(&crate::policy::mesh_retry::KIND, "default", &item.key.name);
        }),
        wrong
    );
    let signed = |text: &str| changed(&|item| drop(item.labels.insert(labels::SIGNATURE, text)));
    assert_eq!(changed(&|item| drop(item.labels.remove(labels::SIGNATURE))), Err(SignatureRefusal::Missing));
    assert_eq!(signed("x"), Err(SignatureRefusal::Unreadable));
    assert_eq!(signed(&format!("{}.???", key.id())), Err(SignatureRefusal::Unreadable));
    assert_eq!(signed(&format!("{}.AAAA", key.id())), wrong);
    let stranger = item(&timeout("t"), &keys().0);
    assert!(matches!(trusted.verify(&stranger), Err(SignatureRefusal::UnknownKey(_))));
}

#[test]
fn the_same_form_has_the_same_signature_and_a_version_of_its_own() {
    let (key, _) = keys();
    let (once, again) = (sent(&timeout("t"), &key), sent(&timeout("t"), &key));
    assert_eq!(once.version, again.version);
    let other = sent(&timeout("t"), &keys().0);
    assert_ne!(once.version, other.version, "a zone is sent what another key signed");
}

#[test]
fn a_signature_comes_in_its_own_field_and_no_label_passes_for_one() {
    let (key, trusted) = keys();
    let wanted = sent(&timeout("t"), &key);
    let label = format!("\n\x13{}", labels::SIGNATURE);
    let bytes = String::from_utf8_lossy(&wanted.value).into_owned();
    assert!(!bytes.contains(&label) && bytes.contains(key.id()), "{bytes}");
    let read = codec::decode(&mesh_timeout::KIND, &any(&wanted)).unwrap();
    // What is kept is what is shown as held, or the zone would be sent it again.
    let mut kept = Resource::new(read.key.clone(), DateTime::UNIX_EPOCH).with_spec(read.spec.clone());
    kept.labels = read.labels.clone();
    assert_eq!(codec::encode(&kept).version, wanted.version);
    assert_eq!(trusted.verify(&read), Ok(()));
}

#[test]
fn a_relay_passes_on_the_signature_of_each_form() {
    let (key, trusted) = keys();
    let private = crate::token::new_signing_key().unwrap();
    let place = ResourceKey::new(&kinds::secret::SECRET, "default", "dataplane-token-signing-key-default-1");
    let mut secret = Resource::new(place, DateTime::UNIX_EPOCH)
        .with_label(labels::ISSUING, labels::ISSUING_ZONE)
        .with_spec(crate::token::secret_spec(private.pem()));
    let form = DownForm::of(&Features::ours(), &[]);
    let (whole, half) = (mapper::down(&secret, &form).unwrap(), mapper::down_public(&secret, &form).unwrap());
    secret.labels.insert(labels::SIGNATURE, key.signature_of(&whole));
    secret.labels.insert(labels::SIGNATURE_OF_HALF, key.signature_of(&half));
    for form in [mapper::down(&secret, &form).unwrap(), mapper::down_public(&secret, &form).unwrap()] {
        let read = codec::decode(&kinds::secret::SECRET, &any(&codec::encode(&form))).unwrap();
        assert_eq!(trusted.verify(&read), Ok(()), "{}", read.key);
        assert!(!read.labels.contains_key(labels::SIGNATURE_OF_HALF));
    }
}

#[test]
fn files_that_hold_no_key_say_what_they_lack() {
    let (private, public) = pair();
    let p256 = crate::keys::PrivateKey::generate(crate::keys::KeyForm::P256).unwrap();
    for text in ["", "nonsense", public.as_str(), p256.pem()] {
        assert!(KeyOfResources::from_pem(text).is_err(), "{text}");
    }
    for text in ["", "nonsense", private.as_str(), p256.pem()] {
        assert!(TrustedKeys::from_pem(text).is_err(), "{text}");
    }
    let both = TrustedKeys::from_pem(&format!("{public}{}", pair().1)).unwrap();
    assert_eq!(both.ids().count(), 2);
}

proptest! {
    #[test]
    fn no_two_resources_have_one_statement(
        a in ("[a-c]{0,3}", "[a-c]{0,3}", proptest::collection::btree_map("[a-c]{0,2}", "[a-c]{0,2}", 0..3), "[a-c]{0,3}"),
        b in ("[a-c]{0,3}", "[a-c]{0,3}", proptest::collection::btree_map("[a-c]{0,2}", "[a-c]{0,2}", 0..3), "[a-c]{0,3}"),
    ) {
        let text = |(mesh, name, labels, spec): &(String, String, std::collections::BTreeMap<String, String>, String)| {
            statement(("MeshTimeout", mesh, name), &labels.clone().into(), spec.as_bytes(), None)
        };
        prop_assert_eq!(a == b, text(&a) == text(&b));
    }
}
