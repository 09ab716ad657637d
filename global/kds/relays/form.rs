//! What leaves for relays: everything that any zone may get, whose it is, and no private key that a zone does
//! not get either. Which zone gets what, the relay decides by the same rules as global.

use std::sync::Arc;

use common::{
    issuing,
    kds::{
        features::Features,
        filter::Audience,
        mapper::{self, DownForm, MapError},
        outgoing::OutgoingForm,
        signature::KeyOfResources,
    },
    model::{Resource, kinds, labels},
};

/// Labels the rules read. They stay on a resource whatever is not to be sent: without them a zone might get
/// what is kept from it.
const READ_BY_RULES: [&str; 8] = [
    labels::ORIGIN,
    labels::ZONE,
    labels::ISSUING,
    labels::ISSUER,
    labels::NAMESPACE,
    labels::KDS_SYNC,
    labels::POLICY_ROLE,
    labels::EXPORTS,
];

/// The form of everything that goes down to relays.
pub(crate) struct ForRelays {
    form: DownForm,
    skip_prefixes: Vec<String>,
    largest: usize,
    /// What the zones below get is signed with this.
    signing_key: Option<Arc<KeyOfResources>>,
}

impl ForRelays {
    pub(crate) fn new(skip_prefixes: &[String], largest: usize) -> Self {
        // Names are hashed where it is known for whom.
        let form = DownForm { hashes_names: false, skip_prefixes: Vec::new() };
        Self { form, skip_prefixes: skip_prefixes.to_vec(), largest, signing_key: None }
    }

    /// The same with signatures of `key`, if there is one.
    pub(super) fn signing(self, key: Option<Arc<KeyOfResources>>) -> Self {
        Self { signing_key: key, ..self }
    }

    /// Puts on `mapped` the signature of each form the relay makes of it for its zones.
    fn sign(&self, mapped: &mut Resource, key: &KeyOfResources) -> Result<(), MapError> {
        let form = DownForm::of(&Features::ours(), &self.skip_prefixes);
        let signed = |audience: &Audience| -> Result<(String, String), MapError> {
            let (label, form) = match audience.gets_public_half() {
                true => (labels::SIGNATURE_OF_HALF, mapper::down_public(mapped, &form)?),
                false => (labels::SIGNATURE, mapper::down(mapped, &form)?),
            };
            Ok((label.to_owned(), key.signature_of(&form)))
        };
        let signatures = Audience::of(mapped).iter().map(signed).collect::<Result<Vec<_>, _>>()?;
        mapped.labels.extend(signatures);
        Ok(())
    }
}

impl OutgoingForm for ForRelays {
    fn audiences(&self, resource: &Resource) -> Vec<Audience> {
        let kind = resource.kind();
        // Whom a relay lets in, whose resources are withdrawn, and who gets no keys of a mesh.
        let is_about_zones = kind == &kinds::zone::KIND
            || (kind == &kinds::secret::GLOBAL_SECRET && issuing::requesting_zone(resource.name()).is_some());
        let leaves = is_about_zones || !Audience::of(resource).is_empty();
        leaves.then(Audience::default).into_iter().collect()
    }

    fn map(&self, resource: &Resource, _: &Audience) -> Result<Resource, MapError> {
        let audiences = Audience::of(resource);
        let is_half = !audiences.is_empty() && audiences.iter().all(Audience::gets_public_half);
        let mut mapped = match is_half {
            // No zone gets the key, so no relay does. Below the relay the half is a secret like others: by the
            // label the rules would look for the key.
            true => {
                let mut half = mapper::down_public(resource, &self.form)?;
                half.labels.remove(labels::ISSUING);
                half
            }
            false => mapper::down(resource, &self.form)?,
        };
        let stays = |label: &str| {
            self.skip_prefixes.iter().any(|prefix| label.starts_with(prefix.as_str()))
                && !READ_BY_RULES.contains(&label)
        };
        mapped.labels.retain(|label, _| !stays(label));
        mapped.labels.remove(labels::SIGNATURE);
        if let Some(key) = &self.signing_key {
            self.sign(&mut mapped, key)?;
        }
        Ok(mapped)
    }

    fn largest(&self) -> usize {
        self.largest
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use common::{
        model::{Kind, Origin, ResourceKey},
        policy::mesh_timeout,
        token,
    };

    use super::*;

    fn resource(kind: &'static Kind, name: &str, origin: &str) -> Resource {
        let key = ResourceKey::new(kind, if kind.is_mesh_scoped() { "default" } else { "" }, name);
        Resource { origin: Origin::from_column(origin), ..Resource::new(key, DateTime::UNIX_EPOCH) }
    }

    fn form() -> ForRelays {
        ForRelays::new(&["strait.io/".to_owned(), "internal.".to_owned()], usize::MAX)
    }

    #[test]
    fn a_relay_gets_what_any_zone_gets_and_what_zones_there_are() {
        let check = |resource: Resource, expected: bool| {
            assert_eq!(!form().audiences(&resource).is_empty(), expected, "{}", resource.key);
        };
        check(resource(&mesh_timeout::KIND, "t", ""), true);
        check(resource(&kinds::zone::KIND, "zone-1", ""), true);
        check(resource(&kinds::zone_ingress::KIND, "in", "zone-1"), true);
        check(resource(&kinds::dataplane::KIND, "d", "zone-1"), false);
        check(resource(&kinds::zone_insight::KIND, "zone-1", ""), false);
        check(resource(&kinds::secret::GLOBAL_SECRET, "user-token-signing-key-1", ""), false);
        check(resource(&kinds::secret::GLOBAL_SECRET, &issuing::request_secret("zone-1"), ""), true);
    }

    #[test]
    fn labels_the_rules_read_are_never_left_out() {
        let policy = resource(&mesh_timeout::KIND, "t", "")
            .with_label("internal.x", "1")
            .with_label(labels::ISSUING, labels::ISSUING_ZONE)
            .with_label(labels::EXPORTS, labels::EXPORTS_WITHDRAWN);
        let mapped = form().map(&policy, &Audience::default()).unwrap();
        assert_eq!(mapped.label(labels::EXPORTS), Some(labels::EXPORTS_WITHDRAWN));
        assert_eq!(mapped.label("internal.x"), None);
        assert_eq!(mapped.label(labels::ISSUING), Some(labels::ISSUING_ZONE));
        assert_eq!(mapped.key, policy.key, "names are hashed below the relay");
    }

    #[test]
    fn a_key_that_no_zone_gets_no_relay_gets() {
        let private = token::new_signing_key().unwrap();
        let key = |name: &str| {
            resource(&kinds::secret::SECRET, name, "")
                .with_label(labels::ISSUING, labels::ISSUING_ZONE_ONLY)
                .with_spec(token::secret_spec(private.pem()))
        };
        assert!(form().audiences(&key("default.ca-builtin-key-ca-1")).is_empty());
        let signing = key("dataplane-token-signing-key-default-1");
        assert_eq!(form().audiences(&signing).len(), 1);
        let mapped = form().map(&signing, &Audience::default()).unwrap();
        assert_eq!(mapped.name(), "dataplane-token-signing-public-key-default-1");
        assert!(!String::from_utf8_lossy(&mapped.spec).contains("PRIVATE"));
        assert_eq!(Audience::of(&mapped).len(), 1, "zones below the relay get it");
    }

    #[test]
    fn keys_that_sign_zone_tokens_stay_on_global() {
        let private = token::new_signing_key().unwrap();
        let key = resource(&kinds::secret::GLOBAL_SECRET, "zone-token-signing-key-1", "")
            .with_spec(token::secret_spec(private.pem()));
        let mapped = form().map(&key, &Audience::default()).unwrap();
        assert_eq!(mapped.name(), "zone-token-signing-public-key-1");
        assert!(!String::from_utf8_lossy(&mapped.spec).contains("PRIVATE"));
    }
}
