//! Making keys for requests: one at a time, beside the workers of the runtime, at most half of the time, and in turn
//! between those who ask.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use super::{KeyError, KeyForm, KeySupply, PrivateKey};
use crate::runtime::http::{FairTurn, FairTurns};

/// How many may wait for keys, the one being served among them.
const PLACES: usize = 8;

/// Makes keys for whoever has a place in its queue. Clones share the queue.
#[derive(Clone, Debug)]
pub struct KeyMaker(Arc<KeyMakerInner>);

#[derive(Debug)]
struct KeyMakerInner {
    /// By who asks.
    turns: Arc<FairTurns<Arc<str>>>,
    /// It rests as long as it worked, so that a flood of wishes costs no more than half of a processor.
    rests_until: Mutex<Instant>,
}

impl Default for KeyMaker {
    fn default() -> Self {
        Self(Arc::new(KeyMakerInner {
            turns: Arc::new(FairTurns::queued(1, PLACES - 1)),
            rests_until: Mutex::new(Instant::now()),
        }))
    }
}

impl KeyMaker {
    /// Makes what `supply` lacks, in turn between those who ask.
    ///
    /// # Errors
    /// [`KeyError::Busy`] at once when too many wait already, and later when this one has to make way for somebody of
    /// whom fewer do.
    pub async fn fill(&self, supply: &mut KeySupply, who: &str) -> Result<(), KeyError> {
        let turn = self.0.turns.take_as(who.into()).await.map_err(|_| KeyError::Busy)?;
        for form in supply.missing().to_vec() {
            supply.add(form, self.make(form, turn.clone()).await?);
        }
        Ok(())
    }

    async fn make(&self, form: KeyForm, turn: FairTurn<Arc<str>>) -> Result<PrivateKey, KeyError> {
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
    use futures::future::{join, join_all};

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
            async move { maker.fill(&mut wishing(KeyForm::P256), "a").await }
        });
        let made = join_all(wishes).await;
        let refused = made.iter().filter(|made| **made == Err(KeyError::Busy)).count();
        assert_eq!(refused, 3, "{made:?}");
        maker.fill(&mut wishing(KeyForm::P256), "a").await.unwrap();
    }

    #[tokio::test]
    async fn who_asks_for_many_waits_behind_himself() {
        let maker = KeyMaker::default();
        let mut flood: Vec<_> = (0..PLACES)
            .map(|n| {
                let maker = maker.clone();
                // The first takes long, so the others do wait.
                let form = if n == 0 { KeyForm::Rsa2048 } else { KeyForm::P256 };
                Box::pin(async move { maker.fill(&mut wishing(form), "flood").await })
            })
            .collect();
        for wish in &mut flood {
            assert!(futures::poll!(wish.as_mut()).is_pending());
        }
        let order = Mutex::new(Vec::new());
        let ended = |who: &'static str| order.lock().unwrap().push(who);
        let other = async {
            maker.fill(&mut wishing(KeyForm::P256), "other").await.unwrap();
            ended("other");
        };
        let flood = flood.into_iter().map(|wish| async move {
            let made = wish.await;
            ended("flood");
            made
        });
        let ((), made) = join(other, join_all(flood)).await;
        let made_way = made.iter().filter(|made| **made == Err(KeyError::Busy)).count();
        assert_eq!(made_way, 1, "{made:?}");
        // The one that made way, the one that had its turn, and the one whose turn it was.
        let before = order.lock().unwrap().iter().position(|who| *who == "other").unwrap();
        assert!(before <= 3, "{order:?}");
    }

    #[tokio::test]
    async fn a_wish_given_up_frees_its_place_and_its_turn() {
        let maker = KeyMaker::default();
        for _ in 0..2 * PLACES {
            let mut supply = wishing(KeyForm::P256);
            let fill = maker.fill(&mut supply, "a");
            let mut fill = std::pin::pin!(fill);
            let _begun = futures::poll!(&mut fill);
        }
        let mut supply = wishing(KeyForm::P256);
        maker.fill(&mut supply, "a").await.unwrap();
        supply.begin();
        assert!(supply.draw(KeyForm::P256).is_some());
    }
}
