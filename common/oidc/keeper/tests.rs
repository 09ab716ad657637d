#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::oidc::signer::{Signer, claims, key_set, provider, settings};

fn known(signers: &[&Signer]) -> KnownProvider {
    KnownProvider { metadata: ProviderMetadata::default(), keys: key_set(signers) }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_unknown_keys_asks_the_provider_now_and_then() {
    let (view, wanted) = (watch::Sender::<ProviderView>::default(), Notify::new());
    let looks = AtomicUsize::new(0);
    let signer = Signer::new("1");
    let fetch = || async {
        looks.fetch_add(1, Ordering::Relaxed);
        Ok(known(&[&signer]))
    };
    let entropy = Entropy::seeded(1);
    let storm = async {
        for _ in 0..6000 {
            wanted.notify_one();
            sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = keep(&view, &wanted, &entropy, fetch) => {}
        () = storm => {}
    }
    let looks = looks.load(Ordering::Relaxed);
    assert!((2..=7).contains(&looks), "{looks} looks within a minute");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_away_is_asked_again_and_what_was_known_stays() {
    let (view, wanted) = (watch::Sender::<ProviderView>::default(), Notify::new());
    let (looks, is_there) = (AtomicUsize::new(0), AtomicBool::new(false));
    let signer = Signer::new("1");
    let fetch = || async {
        looks.fetch_add(1, Ordering::Relaxed);
        match is_there.load(Ordering::Relaxed) {
            true => Ok(known(&[&signer])),
            false => Err(OidcError::Web("nobody is there".to_owned())),
        }
    };
    let entropy = Entropy::seeded(1);
    let story = async {
        sleep(Duration::from_secs(600)).await;
        let count = looks.load(Ordering::Relaxed);
        assert!((10..=25).contains(&count), "{count} looks within ten minutes");
        assert_eq!(view.borrow().trouble.as_deref(), Some("the provider did not answer: nobody is there"));
        is_there.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(90)).await;
        assert!(view.borrow().known.is_some() && view.borrow().trouble.is_none());
        is_there.store(false, Ordering::Relaxed);
        sleep(REGULAR * 2).await;
        assert!(view.borrow().known.is_some() && view.borrow().trouble.is_some());
    };
    tokio::select! {
        () = keep(&view, &wanted, &entropy, fetch) => {}
        () = story => {}
    }
}

#[test]
fn until_it_is_known_its_tokens_are_refused_in_words() {
    let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
    let signer = Signer::new("1");
    let token = signer.sign(&claims(now.timestamp(), "ann", &[]));
    let unknown = OpenIdProvider::new(&settings()).unwrap();
    assert!(unknown.claims(&token));
    let error = unknown.user(&token, now).unwrap_err();
    assert!(
        matches!(error, OidcError::Unknown { .. }) && error.to_string().contains("login.example"),
        "{error}"
    );
    assert!(provider(&[&signer]).user(&token, now).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_login_waits_for_a_new_key_and_is_bound_to_its_nonce() {
    let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
    let (old, new) = (Signer::new("1"), Signer::new("2"));
    let provider = provider(&[&old]);
    let mut said = claims(now.timestamp(), "ann", &[]);
    said["nonce"] = "n".into();
    let token = new.sign(&said);
    assert!(matches!(provider.user(&token, now), Err(OidcError::Key(_))));
    let login = async { provider.logged_in(&token, "n", now).await };
    let learning = async {
        sleep(Duration::from_secs(1)).await;
        let known = provider.known().unwrap();
        provider.learn(known.metadata.clone(), key_set(&[&old, &new]));
    };
    let (login, ()) = tokio::join!(login, learning);
    assert_eq!(login.unwrap().0.name, "ann");
    let other = provider.logged_in(&token, "m", now).await;
    assert_eq!(other, Err(OidcError::Nonce));
    said["aud"] = "cli".into();
    let of_cli = provider.logged_in(&new.sign(&said), "n", now).await;
    assert!(
        matches!(of_cli, Err(OidcError::Audience(_))),
        "a token of the command line is no login on the page"
    );
}
