//! What proxies show to others is signed here, away from where configurations are compiled.

use std::sync::{Arc, LazyLock};

use chrono::{DateTime, Utc};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tokio::task::JoinHandle;

use super::AdminAuthority;
use crate::{
    ads::{metrics, node::ProxyId},
    compile::{Signed, SigningRequest},
    generator::AdminIdentity,
    mesh::WorkloadKey,
};

/// Signed together; the others wait, and those who have it need not.
const BATCH: usize = 64;

/// Its own threads, fewer than there are cores: what is compiled does not wait for what is signed.
static POOL: LazyLock<rayon::ThreadPool> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(cores.div_ceil(2));
    pool.thread_name(|n| format!("signing-{n}")).build().expect("threads can be started")
});

/// Signs on threads of its own, a batch at a time.
pub(super) struct Signing {
    admin: Option<AdminAuthority>,
    waiting: Vec<(ProxyId, SigningRequest, DateTime<Utc>)>,
    running: Option<JoinHandle<Vec<SigningAnswer>>>,
}

/// What came of a request.
pub(super) struct SigningAnswer {
    pub(super) id: ProxyId,
    pub(super) request: SigningRequest,
    pub(super) signed: Signed,
}

impl Signing {
    /// Signs for admin endpoints with `admin`, when there is one.
    pub(super) fn new(admin: Option<AdminAuthority>) -> Self {
        Self { admin, waiting: Vec::new(), running: None }
    }

    /// Takes in requests, of which there is one for each proxy at most.
    pub(super) fn ask(&mut self, requests: Vec<(ProxyId, SigningRequest)>, now: DateTime<Utc>) {
        self.waiting.extend(requests.into_iter().map(|(id, request)| (id, request, now)));
        self.start();
    }

    /// Whether nobody waits for an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty()
    }

    fn start(&mut self) {
        if self.running.is_some() || self.waiting.is_empty() {
            return;
        }
        let batch: Vec<_> = self.waiting.drain(..self.waiting.len().min(BATCH)).collect();
        let admin = self.admin.clone();
        self.running = Some(tokio::task::spawn_blocking(move || {
            let sign = |(id, request, now)| {
                let signed = sign(&request, admin.as_ref(), now);
                SigningAnswer { id, request, signed }
            };
            POOL.install(|| batch.into_par_iter().map(sign).collect())
        }));
    }

    /// Waits for the next answers; for ever when nothing was asked for.
    pub(super) async fn done(&mut self) -> Vec<SigningAnswer> {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let answers = running.await.expect("signing does not panic");
        self.running = None;
        self.start();
        for answer in &answers {
            if let Some(workload) = &answer.signed.workload {
                metrics::signed(&answer.id.mesh, workload.is_ok());
            }
        }
        answers
    }
}

pub(super) fn sign(request: &SigningRequest, admin: Option<&AdminAuthority>, now: DateTime<Utc>) -> Signed {
    let workload = request.workload.clone().map(|(authority, identity)| {
        let signed = WorkloadKey::generate().and_then(|key| authority.issue(identity, &key, now));
        signed.map(Arc::new).map_err(|e| format!("sign the certificate of {}: {e}", request.name))
    });
    let identity = |(address, admin): (_, &AdminAuthority)| match admin.identity(address, now) {
        Ok(identity) => Ok(Arc::<AdminIdentity>::new(identity)),
        Err(error) => {
            tracing::warn!(%address, %error, "no certificate for the admin endpoint of an Envoy");
            Err(error.to_string())
        }
    };
    Signed { workload, admin: request.admin.zip(admin).map(identity) }
}
