//! Making keys for requests: one at a time, beside the workers of the runtime, and at most half of the time.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use super::{KeyError, KeyForm, KeySupply, PrivateKey};

/// How many may wait for keys, the one being served among them.
const PLACES: usize = 8;

/// Makes keys for whoever has a place in its queue. Clones share the queue.
#[derive(Clone, Debug)]
pub struct KeyMaker(Arc<KeyMakerInner>);

#[derive(Debug)]
struct KeyMakerInner {
    places: Semaphore,
    turn: Arc<Semaphore>,
    /// It rests as long as it worked, so that a flood of wishes costs no more than half of a processor.
    rests_until: Mutex<Instant>,
}

impl Default for KeyMaker {
    fn default() -> Self {
        Self(Arc::new(KeyMakerInner {
            places: Semaphore::new(PLACES),
            turn: Arc::new(Semaphore::new(1)),
            rests_until: Mutex::new(Instant::now()),
        }))
    }
}

impl KeyMaker {
    /// Makes what `supply` lacks.
    ///
    /// # Errors
    /// [`KeyError::Busy`] at once when too many wait already.
    pub async fn fill(&self, supply: &mut KeySupply) -> Result<(), KeyError> {
        let _place = self.0.places.try_acquire().map_err(|_| KeyError::Busy)?;
        for form in supply.missing().to_vec() {
            supply.add(form, self.make(form).await?);
        }
        Ok(())
    }

    async fn make(&self, form: KeyForm) -> Result<PrivateKey, KeyError> {
        let turn = Arc::clone(&self.0.turn).acquire_owned().await.map_err(|_| KeyError::Busy)?;
        let rests_until = *self.0.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        sleep_until(rests_until).await;
        let inner = Arc::clone(&self.0);
        let work = move || {
            // The turn belongs to the work: whoever asked may be gone before the key is there.
            let _turn = turn;
            let began = Instant::now();
            let key = PrivateKey::generate(form);
            let rest = Instant::now() + began.elapsed();
            *inner.rests_until.lock().unwrap_or_else(PoisonError::into_inner) = rest;
            key
        };
        spawn_blocking(work).await.map_err(|_| KeyError::Make(form))?
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::future::join_all;

    use super::*;

    fn wishing(form: KeyForm) -> KeySupply {
        let mut supply = KeySupply::default();
        supply.begin();
        assert!(supply.draw(form).is_none());
        supply
    }

    #[tokio::test]
    async fn who_finds_no_place_is_told_at_once() {
        let maker = KeyMaker::default();
        let wishes = (0..PLACES + 3).map(|_| {
            let maker = maker.clone();
            async move { maker.fill(&mut wishing(KeyForm::P256)).await }
        });
        let made = join_all(wishes).await;
        let refused = made.iter().filter(|made| **made == Err(KeyError::Busy)).count();
        assert_eq!(refused, 3, "{made:?}");
        maker.fill(&mut wishing(KeyForm::P256)).await.unwrap();
    }

    #[tokio::test]
    async fn a_wish_given_up_frees_its_place_and_its_turn() {
        let maker = KeyMaker::default();
        for _ in 0..2 * PLACES {
            let mut supply = wishing(KeyForm::P256);
            let fill = maker.fill(&mut supply);
            let mut fill = std::pin::pin!(fill);
            let _begun = futures::poll!(&mut fill);
        }
        let mut supply = wishing(KeyForm::P256);
        maker.fill(&mut supply).await.unwrap();
        supply.begin();
        assert!(supply.draw(KeyForm::P256).is_some());
    }
}
