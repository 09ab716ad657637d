//! Time and randomness, passed in. Only this file reads the wall clock and the operating system's
//! randomness, so that a simulated process can be given others.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use rand::{Rng, SeedableRng, rngs::StdRng};
use uuid::Uuid;

/// The wall clock, for what is stored or shown. Durations and timeouts use `tokio::time`.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> DateTime<Utc>;
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }
}

/// A seeded source of identifiers and jitter, shared by the tasks of one process.
#[derive(Clone)]
pub struct Entropy(Arc<Mutex<StdRng>>);

impl Entropy {
    /// Seeded by the operating system.
    pub fn from_os() -> Self {
        Self(Arc::new(Mutex::new(StdRng::from_os_rng())))
    }

    /// Repeatable.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// Runs `draw` on the generator.
    pub fn with<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A pause of about this length, between three and five quarters of it: those that failed together do not try
    /// again together.
    pub fn about(&self, pause: Duration) -> Duration {
        pause.mul_f64(self.with(|rng| rng.random_range(0.75..=1.25)))
    }

    /// A random UUID (version 4).
    pub fn uuid(&self) -> Uuid {
        let bytes: [u8; 16] = self.with(Rng::random);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}

/// What a process gets from outside besides its configuration.
#[derive(Clone)]
pub struct Env {
    /// Wall clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Entropy,
    /// Name of this process among its peers, new at every start: `<host>-<4 characters>`.
    pub instance_id: Arc<str>,
}

impl Env {
    /// The real environment of a process on `host`.
    pub fn system(host: &str) -> Self {
        let entropy = Entropy::from_os();
        let suffix = entropy.uuid().simple().to_string();
        let instance_id = format!("{host}-{}", &suffix[..4]).into();
        Self { clock: Arc::new(SystemClock), entropy, instance_id }
    }

    /// Now, by the wall clock.
    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }
}
