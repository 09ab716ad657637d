//! A few Envoys are asked at a time, and each of them one thing: what they say lies here until it was looked through, and
//! one that says nothing holds up nobody but who asks it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use common::model::ResourceKey;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Envoys asked at a time.
pub(super) const AT_ONCE: usize = 4;

/// Places for questions.
pub(super) struct AskingPlaces {
    free: Arc<Semaphore>,
    asked: Mutex<BTreeMap<ResourceKey, Weak<AsyncMutex<()>>>>,
}

/// Leave to ask one Envoy one thing.
pub(super) struct AskingPlace {
    _envoy: OwnedMutexGuard<()>,
    _place: OwnedSemaphorePermit,
}

impl Default for AskingPlaces {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(AT_ONCE)), asked: Mutex::default() }
    }
}

impl AskingPlaces {
    /// Waits until this Envoy is asked nothing else, and then until there is a place.
    pub(super) async fn take(&self, proxy: &ResourceKey) -> AskingPlace {
        let envoy = self.envoy(proxy).lock_owned().await;
        let place = Arc::clone(&self.free).acquire_owned().await.expect("the places are never closed");
        AskingPlace { _envoy: envoy, _place: place }
    }

    fn envoy(&self, proxy: &ResourceKey) -> Arc<AsyncMutex<()>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(envoy) = asked.get(proxy).and_then(Weak::upgrade) {
            return envoy;
        }
        // There are no more of them than questions that wait.
        asked.retain(|_, envoy| envoy.strong_count() > 0);
        let envoy = Arc::default();
        asked.insert(proxy.clone(), Arc::downgrade(&envoy));
        envoy
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use common::model::kinds;
    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn an_envoy_that_says_nothing_takes_one_place() {
        let places = AskingPlaces::default();
        let proxy = |n: usize| ResourceKey::new(&kinds::dataplane::KIND, "default", &format!("web-{n}"));
        let silent = places.take(&proxy(0)).await;
        for _ in 0..AT_ONCE {
            assert!(poll!(pin!(places.take(&proxy(0)))).is_pending());
        }
        let mut others = Vec::new();
        for n in 1..AT_ONCE {
            others.push(places.take(&proxy(n)).await);
        }
        let late = proxy(AT_ONCE);
        let mut late = pin!(places.take(&late));
        assert!(poll!(late.as_mut()).is_pending());
        drop(silent);
        assert!(poll!(late.as_mut()).is_ready());
        drop(others);
        drop(places.take(&proxy(0)).await);
        assert_eq!(
            places.asked.lock().map_or(0, |asked| asked.len()),
            1,
            "who is asked no more is forgotten"
        );
    }
}
