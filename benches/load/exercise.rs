//! Changes to a mesh whose proxies are played, and how long they take to arrive.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::{
    AdminApi, AdminError, Fleet, Observation, ResourceType, Scenario, Watched,
    process::{processor, resident},
    scenario::ServiceNumber,
};

/// A change has arrived when nothing came for so long after it.
const QUIET: Duration = Duration::from_millis(400);
/// Endpoints that change at once within a storm.
const AT_ONCE: usize = 10;

/// A fleet at rest and those who can disturb it.
pub struct Exercise<'a> {
    /// What the mesh is made of.
    pub scenario: &'a Scenario,
    /// Where dataplanes are written.
    pub zone: &'a AdminApi,
    /// Where policies are written.
    pub policies: &'a AdminApi,
    /// Who listens.
    pub fleet: &'a Fleet,
    /// Process of the control plane, when it runs here.
    pub pid: Option<u32>,
    /// Longest wait for anything.
    pub patience: Duration,
}

/// What came of a storm.
#[derive(Clone, Debug)]
pub struct Storm {
    /// For each second, how long after its changes the last of them was acknowledged.
    pub seconds: Vec<Duration>,
    /// How long after the last change nothing was left to acknowledge.
    pub settled: Observation,
    /// Resident memory before, at its highest while it lasted, and after.
    pub memory: [u64; 3],
}

impl Exercise<'_> {
    /// A played endpoint gets another address.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn endpoint(&self, number: usize, version: usize) -> Result<Observation, AdminError> {
        let service = self.scenario.served_by(number);
        let since = self.fleet.observer().begin(Some(assignment(service)));
        self.zone.put(&self.scenario.endpoint_document(number, version)).await?;
        Ok(self.fleet.observer().settled(&since, self.scenario.callers(service), QUIET, self.patience).await)
    }

    /// A route of one service changes.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn route(&self, service: ServiceNumber, version: usize) -> Result<Observation, AdminError> {
        let since = self.fleet.observer().begin(None);
        self.policies.put(&self.scenario.route("load-route", service, version)).await?;
        Ok(self.fleet.observer().settled(&since, self.scenario.callers(service), QUIET, self.patience).await)
    }

    /// A policy changes that concerns every proxy and every service.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn mesh_wide(&self, version: usize) -> Result<Observation, AdminError> {
        let since = self.fleet.observer().begin(None);
        self.policies.put(&self.scenario.timeout("load-everywhere", None, version)).await?;
        Ok(self.fleet.observer().settled(&since, self.scenario.proxies, QUIET, self.patience).await)
    }

    /// The same, and an endpoint changes `after` it. What is watched of the observation is the endpoint, timed
    /// from its own change.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn endpoint_behind_mesh_wide(
        &self,
        number: usize,
        version: usize,
        after: Duration,
    ) -> Result<Observation, AdminError> {
        let service = self.scenario.served_by(number);
        let observer = self.fleet.observer();
        let begun = Instant::now();
        let since = observer.begin(Some(assignment(service)));
        self.policies.put(&self.scenario.timeout("load-everywhere", None, version)).await?;
        sleep_until(Instant::now() + after).await;
        let between = begun.elapsed();
        self.zone.put(&self.scenario.endpoint_document(number, version)).await?;
        let mut seen = observer.settled(&since, self.scenario.callers(service), QUIET, self.patience).await;
        seen.watched.1 = seen.watched.1.saturating_sub(between);
        Ok(seen)
    }

    /// Every second `per_second` endpoints change, for so many seconds.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn storm(&self, per_second: usize, seconds: usize) -> Result<Storm, AdminError> {
        let memory = || self.pid.and_then(resident).unwrap_or_default();
        let (before, mut highest) = (memory(), 0);
        let mut took = Vec::new();
        let begun = Instant::now();
        let mut since = self.fleet.observer().begin(None);
        for second in 0..seconds {
            sleep_until(begun + Duration::from_secs(second as u64)).await;
            since = self.fleet.observer().begin(None);
            let endpoints =
                (0..per_second).map(|i| (second * per_second + i) % self.scenario.endpoints.max(1));
            let documents: Vec<_> =
                endpoints.map(|n| self.scenario.endpoint_document(n, second + 2)).collect();
            for some in documents.chunks(AT_ONCE) {
                self.zone.put_all(some.iter().cloned()).await?;
            }
            // What is left of the second is for the acknowledgements; what is late is seen at the end.
            let left = Duration::from_secs(second as u64 + 1).saturating_sub(begun.elapsed());
            let seen = self.fleet.observer().settled(&since, 1, QUIET, left).await;
            took.push(seen.last_ack);
            highest = highest.max(memory());
        }
        let settled = self.fleet.observer().settled(&since, 0, QUIET * 3, self.patience).await;
        Ok(Storm { seconds: took, settled, memory: [before, highest.max(memory()), memory()] })
    }

    /// Processor time the control plane has used so far.
    pub fn processor(&self) -> Duration {
        self.pid.and_then(processor).unwrap_or_default()
    }
}

/// The assignment of a service, whatever a control plane adds to the name.
fn assignment(service: ServiceNumber) -> Watched {
    Watched { kind: ResourceType::Endpoint, prefix: Scenario::service(service) }
}
