//! Whose metrics are to be collected: what a Prometheus asks a zone.
//!
//! ```text
//!  index ──► Monitoring ──► Assignments ──► ToldAssignments, by client ──► POST /v3/discovery:monitoringassignments
//!             (task)         (sans-IO)                     └──► GET /monitoring/targets
//! ```
//!
//! The former is MADS, which `kuma_sd_configs` asks; the latter is what `http_sd_configs` asks. Both name the dataplanes of
//! this zone that answer who asks for metrics. Assignments follow the index change by change, once somebody has asked.

mod assignments;
mod routes;
mod server;
mod shared;
mod target;
mod waiting;

use std::sync::Arc;

use common::store::index::IndexReader;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use self::{
    assignments::{Assignments, ToldAssignments},
    waiting::AssignmentWaits,
};
pub(crate) use self::{routes::routes, server::serve};

/// What is told to those who collect metrics.
pub(crate) struct Monitoring {
    index: IndexReader,
    /// Somebody asked for the first time.
    asked: Notify,
    /// `None` until somebody has asked.
    told: watch::Sender<Option<ToldAssignments>>,
    waits: Arc<AssignmentWaits>,
}

impl Monitoring {
    /// Follows this index.
    pub(crate) fn new(index: IndexReader) -> Arc<Self> {
        let (told, asked) = (watch::Sender::new(None), Notify::new());
        Arc::new(Self { index, asked, told, waits: Arc::default() })
    }

    /// Follows the index until `shutdown`. What nobody asks for is not followed.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut index = self.index.clone();
        let following = async {
            self.asked.notified().await;
            let mut assignments = Assignments::new(&index.latest());
            self.told.send_replace(Some(assignments.told()));
            while index.changed().await {
                if assignments.follow(&index.latest()) {
                    self.told.send_replace(Some(assignments.told()));
                }
            }
        };
        tokio::select! {
            () = following => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// What is told now, and what tells of changes.
    async fn told(&self) -> Option<(ToldAssignments, watch::Receiver<Option<ToldAssignments>>)> {
        self.asked.notify_one();
        let mut receiver = self.told.subscribe();
        let told = receiver.wait_for(Option::is_some).await.ok()?.clone()?;
        Some((told, receiver))
    }
}
