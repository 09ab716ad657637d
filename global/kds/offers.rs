//! Offers zones again what they refused, from whichever instance has the stream.

use async_trait::async_trait;
use common::{
    envoy_admin::Undelivered,
    offers::{NotOffered, OffersAgain, RefusedSelection},
};
use tokio::time::timeout;

use super::{
    Kds,
    replicas::EXCHANGE,
    reverse::{AskHere, MOVES},
};

#[async_trait]
impl OffersAgain for Kds {
    async fn offer_again(&self, zone: &str, meant: &RefusedSelection) -> Result<usize, NotOffered> {
        let mut progressed = self.inner.progress.subscribe();
        for _ in 0..MOVES {
            let Some(instance) = self.instance_with(zone) else { break };
            let id = self.inner.env.entropy.uuid();
            match self.inner.mailbox.offer(&instance, zone, meant, id).await {
                Ok(offered) => return Ok(offered),
                Err(Undelivered::Answered(error)) => return Err(NotOffered::Elsewhere(error.to_string())),
                // The instances are about to tell each other where it went.
                Err(Undelivered::Moved) => {
                    let _or_tried_anyway = timeout(EXCHANGE * 2, progressed.changed()).await;
                }
            }
        }
        self.offer_here(zone, meant).await
    }
}

#[async_trait]
impl OffersAgain for AskHere {
    async fn offer_again(&self, zone: &str, meant: &RefusedSelection) -> Result<usize, NotOffered> {
        self.0.offer_here(zone, meant).await
    }
}

impl Kds {
    /// Offers a zone again what it refused whose stream is at this instance.
    async fn offer_here(&self, zone: &str, meant: &RefusedSelection) -> Result<usize, NotOffered> {
        let away = |reason: String| NotOffered::Away { zone: zone.to_owned(), reason };
        let session = self.session_of(zone).map_err(away)?;
        if let Some(offered) = session.offers.ask(meant.clone()).await {
            return Ok(offered);
        }
        match session.facts().relay {
            Some(relay) => Err(NotOffered::BelowRelay { zone: zone.to_owned(), relay: relay.to_string() }),
            None => Err(away("it takes nothing at the moment: try again".to_owned())),
        }
    }
}
