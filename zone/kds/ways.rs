//! Several ways to global, of which a zone takes one at a time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use common::{
    kds::dial::{Dial, DialError},
    runtime::Env,
};
use rand::seq::SliceRandom;
use tonic::transport::{Channel, Endpoint};

/// Replicas of global, or relays before it, that all show the same. Each attempt to connect takes the next, so a
/// zone whose connection ended is back where there is somebody. The order is drawn, or all zones would come to the
/// first.
pub struct Ways {
    ways: Vec<Arc<dyn Dial>>,
    next: AtomicUsize,
}

impl Ways {
    /// These, in an order of their own.
    pub fn new(mut ways: Vec<Arc<dyn Dial>>, env: &Env) -> Self {
        env.entropy.with(|rng| ways.shuffle(rng));
        Self { ways, next: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl Dial for Ways {
    async fn dial(&self, endpoint: Endpoint) -> Result<Channel, DialError> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let way = turn.checked_rem(self.ways.len()).and_then(|at| self.ways.get(at));
        match way {
            Some(way) => way.dial(endpoint).await,
            None => Err(DialError::Address(String::new())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A way that leads nowhere and notes who took it.
    struct Noted(usize, Arc<Mutex<Vec<usize>>>);

    #[async_trait]
    impl Dial for Noted {
        async fn dial(&self, _: Endpoint) -> Result<Channel, DialError> {
            self.1.lock().expect("no test panics while it holds this").push(self.0);
            Err(DialError::Address("nowhere".to_owned()))
        }
    }

    #[tokio::test]
    async fn each_attempt_takes_another_way_and_zones_begin_with_different_ones() {
        let mut first = std::collections::BTreeSet::new();
        for _ in 0..64 {
            let taken = Arc::default();
            let noted = |n| Arc::new(Noted(n, Arc::clone(&taken))) as Arc<dyn Dial>;
            let ways = Ways::new((0..3).map(noted).collect(), &Env::system("test"));
            for _ in 0..6 {
                assert!(ways.dial(Endpoint::from_static("http://global")).await.is_err());
            }
            let taken = taken.lock().expect("no test panics while it holds this").clone();
            let (round, again) = taken.split_at(3);
            assert_eq!(round, again);
            assert_eq!(round.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
            first.insert(round[0]);
        }
        assert!(first.len() > 1, "all begin with the same");
    }
}
