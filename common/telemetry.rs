//! Logs and metrics of a process.

mod escape;
mod levels;
mod lines;
mod repeats;

use std::{io::IsTerminal, panic, sync::Arc, time::Duration};

use anyhow::Context;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

pub use self::levels::{EVERYTHING, LogLevelError, LogLevels, levels};
use self::{
    levels::changeable,
    lines::{Lines, SpanFields},
};
use crate::metering::{self, MetricKind, samples::Sampled};

/// Shape of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Filter when `RUST_LOG` is not set. An Envoy that dials an address presents it as a server name, as Kuma
/// tells it to; the warning about each of them is nothing an operator could act on.
const DEFAULT_FILTER: &str = "info,sqlx=warn,h2=warn,hyper=warn,rustls=warn,rustls::msgs::handshake=error";

/// Starts logging to standard error.
///
/// # Errors
/// When `RUST_LOG` is not a filter.
#[allow(clippy::disallowed_methods, reason = "RUST_LOG is the name every Rust program uses")]
pub fn init_logs(format: LogFormat) -> anyhow::Result<()> {
    let wanted = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let base = wanted.as_deref().unwrap_or(DEFAULT_FILTER);
    let filter = EnvFilter::try_new(base).with_context(|| format!("parse RUST_LOG={base:?}"))?;
    let registry = tracing_subscriber::registry().with(changeable(base, filter));
    let colours = format == LogFormat::Text && std::io::stderr().is_terminal();
    let layer = fmt::layer()
        .with_ansi(colours)
        .fmt_fields(SpanFields)
        .event_format(Lines::new(format))
        .with_writer(std::io::stderr);
    registry.with(layer).try_init().context("start logging")?;
    // What a panic says may come from outside too.
    panic::set_hook(Box::new(|panic| {
        let at = panic.location().map(tracing::field::display);
        tracing::error!(at, reason = panic.payload_as_str().unwrap_or("unknown"), "panicked");
    }));
    Ok(())
}

/// What `/metrics` answers with.
#[derive(Clone)]
pub struct Metrics {
    recorded: PrometheusHandle,
    sampled: Sampled,
    zone: Arc<str>,
}

impl Metrics {
    /// Installs the recorder of this process. Every metric carries the label `zone`: the name of the
    /// zone, or `Global`.
    ///
    /// # Errors
    /// When a recorder is installed already.
    pub fn install(zone: &str) -> anyhow::Result<Self> {
        let mut builder = PrometheusBuilder::new().add_global_label("zone", zone);
        for metric in metering::ALL {
            if let MetricKind::Histogram(bounds) = metric.kind {
                let named = Matcher::Full(metric.name.to_owned());
                builder = builder.set_buckets_for_metric(named, bounds).context("set histogram buckets")?;
            }
        }
        let recorded = builder.install_recorder().context("install the metrics recorder")?;
        metering::describe();
        Ok(Self { recorded, sampled: Sampled::default(), zone: zone.into() })
    }

    /// What is looked up when somebody asks.
    pub fn sampled(&self) -> &Sampled {
        &self.sampled
    }

    /// The Prometheus text form.
    pub fn render(&self) -> String {
        self.recorded.render() + &self.sampled.render(&self.zone)
    }

    /// Folds recorded samples into their histograms from time to time, so that memory stays bounded
    /// even when nobody scrapes.
    pub async fn upkeep(self, shutdown: CancellationToken) {
        let mut tick = tokio::time::interval(Duration::from_secs(5));
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = tick.tick() => self.recorded.run_upkeep(),
            }
        }
    }
}
