//! Tokens: nothing that was not signed with the key of this control plane is ever accepted.

use std::sync::LazyLock;

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    model::Resource,
    runtime::Entropy,
    store::{Snapshot, StoreIdentity, index::Index},
    token::{
        self, DataplaneClaims, Purpose, TEN_YEARS, UserClaims, ZoneClaims, scope, secret_spec,
        validate_dataplane, validate_user, validate_zone,
    },
};
use uuid::Uuid;

use super::Target;
use crate::corpus::Corpus;

/// A token as it stands in a header.
pub static TOKENS: Target = Target { name: "tokens", costs: 1, run, seeds };

const MESH: &str = "default";

struct Issuer {
    index: Index,
    issued: Vec<String>,
}

static ISSUER: LazyLock<Issuer> = LazyLock::new(|| {
    let entropy = Entropy::seeded(1);
    let purposes = [Purpose::User, Purpose::Zone, Purpose::Dataplane { mesh: MESH }];
    let secret = |purpose: Purpose<'_>| {
        let key = token::new_signing_key().expect("a key can be made");
        Resource::new(purpose.key(1), DateTime::UNIX_EPOCH).with_spec(secret_spec(key.pem()))
    };
    let resources = purposes.map(secret).map(Into::into).into();
    let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
    let index = Index::of(store, Snapshot { revision: 1, commit: None, resources });
    let user = UserClaims { name: "ann".to_owned(), groups: vec!["ops".to_owned()] };
    let zone =
        ZoneClaims { zone: "zone-1".to_owned(), scope: vec![scope::CP.to_owned()], ..ZoneClaims::default() };
    let dataplane = DataplaneClaims { name: "web-1".to_owned(), mesh: MESH.to_owned(), ..Default::default() };
    let key = |purpose: Purpose<'_>| purpose.newest_key(&index).expect("it was just made");
    let issued = [
        token::sign(&key(Purpose::User), &user, TEN_YEARS, now(), &entropy),
        token::sign(&key(Purpose::Zone), &zone, TEN_YEARS, now(), &entropy),
        token::sign(&key(Purpose::Dataplane { mesh: MESH }), &dataplane, TEN_YEARS, now(), &entropy),
    ];
    let issued = issued.into_iter().map(|token| token.expect("a token can be signed")).collect();
    Issuer { index, issued }
});

fn now() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(20_000)
}

fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let index = &ISSUER.index;
    let accepted = [
        validate_user(index, text, now()).is_ok(),
        validate_zone(index, text, scope::CP, "zone-1", now()).is_ok(),
        validate_dataplane(index, text, MESH, "web-1", None, now()).is_ok(),
    ];
    for (accepted, issued) in accepted.into_iter().zip(&ISSUER.issued) {
        assert!(!accepted || same_content(text, issued), "accepted a token nobody issued: {text}");
    }
    for error in [validate_user(index, text, now()).err(), validate_zone(index, text, "cp", "z", now()).err()]
    {
        let shown = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(shown.len() < 4096, "an error is short, whatever it is about");
    }
    let _expiry = token::expiry(text);
}

/// What is signed is the same; the signature may be spelt in another way only if it is the same bytes.
fn same_content(text: &str, issued: &str) -> bool {
    let signed = |token: &str| token.rsplit_once('.').map(|(signed, _)| signed.to_owned());
    signed(text) == signed(issued)
}

fn seeds(_corpus: &Corpus) -> Vec<Vec<u8>> {
    ISSUER.issued.iter().map(|token| token.clone().into_bytes()).collect()
}
