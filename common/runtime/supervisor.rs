//! Owns every long-running task of a process.
//!
//! A task that ends or panics stops the process: half a control plane is worse than none. Per-connection
//! tasks live in a tracker of their server and may end at any time.

use std::{future::Future, time::Duration};

use anyhow::{Context, anyhow};
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

/// The set of named tasks.
#[derive(Default)]
pub struct Supervisor {
    tasks: JoinSet<(&'static str, anyhow::Result<()>)>,
    shutdown: CancellationToken,
}

impl Supervisor {
    /// No task yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fires when the process is to stop; every task ends itself then.
    pub fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Starts a task. It must run until the shutdown signal; ending earlier stops the process.
    pub fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.tasks.spawn(async move { (name, task.await) });
    }

    /// Runs until `stop` resolves or a task ends, then cancels the rest and waits `grace` for them.
    ///
    /// # Errors
    /// When a task ended, failed or panicked before `stop`.
    pub async fn run(mut self, stop: impl Future<Output = ()>, grace: Duration) -> anyhow::Result<()> {
        let outcome = tokio::select! {
            () = stop => Ok(()),
            Some(ended) = self.tasks.join_next() => match ended {
                Ok((name, Ok(()))) => Err(anyhow!("task {name} ended unexpectedly")),
                Ok((name, Err(error))) => Err(error).with_context(|| format!("task {name}")),
                Err(error) => Err(anyhow::Error::new(error).context("a task panicked")),
            },
        };
        self.shutdown.cancel();
        let drained = timeout(grace, async { while self.tasks.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            tracing::warn!(left = self.tasks.len(), "grace period over, aborting what is left");
            self.tasks.shutdown().await;
        }
        outcome
    }
}

/// Resolves at the first SIGINT or SIGTERM; a second one ends the process at once.
///
/// # Errors
/// When the signal handlers cannot be installed.
pub fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    Ok(async move {
        tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
        tracing::info!("stopping; signal again to stop at once");
        tokio::spawn(async move {
            tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
            std::process::exit(130);
        });
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_stops_the_process() {
        let mut supervisor = Supervisor::new();
        supervisor.spawn("short", async { Ok(()) });
        let error = supervisor.run(pending(), Duration::from_secs(1)).await.unwrap_err();
        assert!(error.to_string().contains("short"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_panicking_task_stops_the_process() {
        let mut supervisor = Supervisor::new();
        supervisor.spawn("broken", async { panic!("on purpose") });
        assert!(supervisor.run(pending(), Duration::from_secs(1)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_task_is_aborted_after_the_grace_period() {
        let mut supervisor = Supervisor::new();
        supervisor.spawn("stuck", pending());
        supervisor.run(async {}, Duration::from_secs(5)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_see_the_signal_and_drain() {
        let mut supervisor = Supervisor::new();
        let shutdown = supervisor.shutdown();
        supervisor.spawn("polite", async move {
            shutdown.cancelled().await;
            Ok(())
        });
        supervisor.run(async {}, Duration::from_secs(5)).await.unwrap();
    }
}
