//! Turns for what is waited for from somebody else, who may take his time: an Envoy, or the database. Those who only want a
//! long answer made have turns of their own (`Client::turn`), and nobody waits for somebody else while he has one.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use tokio::time::timeout;

use crate::runtime::http::{Client, Crowded, FairTurn, FairTurns};

/// Questions to Envoys at once. What each of them says may be tens of megabytes, and lies here until it was looked
/// through.
pub(super) const ASKED_AT_ONCE: usize = 8;
/// Pages at once that are made of it.
pub(super) const SHOWN_AT_ONCE: usize = 2;
/// Requests at once about what was, and such that hold many documents until they are written.
pub(super) const PAST_AT_ONCE: usize = 2;
/// How long one may wait to ask.
const TURN: Duration = Duration::from_secs(10);

/// Turns to ask, in turn between the addresses that do.
#[derive(Debug)]
pub(super) struct AskingTurns(Arc<FairTurns>);

impl AskingTurns {
    /// So many at once.
    pub(super) fn new(at_once: usize) -> Self {
        Self(Arc::new(FairTurns::new(at_once)))
    }

    /// Waits for one. Its client makes way meanwhile where places are short.
    ///
    /// # Errors
    /// When too many wait, or it takes too long.
    pub(super) async fn take(&self, client: &Client) -> Result<FairTurn, Crowded> {
        let _parked = client.park();
        let at = client.network().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        timeout(TURN, self.0.take(at)).await.unwrap_or(Err(Crowded))
    }
}
