//! Spans on their way to a collector.

use std::time::Duration;

use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, trace_service_client::TraceServiceClient},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use thiserror::Error;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

use super::{Traces, WAITING, attribute};

/// Spans of one message.
const BATCH: usize = 512;
/// How long spans gather before they are sent.
const GATHER: Duration = Duration::from_secs(1);
/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same when this process stops.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// Why spans can be sent nowhere.
#[derive(Debug, Error)]
pub enum SpanReceiverError {
    /// The address is none.
    #[error(
        "{0:?} is not the address of a collector: use http://host:4317, where it takes OTLP over gRPC without TLS"
    )]
    Address(String),
}

/// Sends spans. Drop it to send none.
pub struct SpanExport {
    spans: mpsc::Receiver<Span>,
    client: TraceServiceClient<Channel>,
    resource: Resource,
}

impl Traces {
    /// Spans of `service`, of which these are attributes, for the collector at `address`, and what sends them.
    ///
    /// # Errors
    /// [`SpanReceiverError`] when the address is none. That nobody is there is no error: it may come.
    pub fn to(
        address: &str,
        service: &str,
        attributes: &[(&str, &str)],
    ) -> Result<(Self, SpanExport), SpanReceiverError> {
        let wrong = || SpanReceiverError::Address(address.to_owned());
        let with_scheme =
            if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let endpoint = Endpoint::from_shared(with_scheme).map_err(|_| wrong())?;
        if endpoint.uri().scheme_str() != Some("http") || endpoint.uri().port().is_none() {
            return Err(wrong());
        }
        let channel = endpoint.connect_timeout(PATIENCE).timeout(PATIENCE).connect_lazy();
        let name = attribute("service.name", service.to_owned());
        let more = attributes.iter().map(|(name, value)| attribute(name, (*value).to_owned()));
        let attributes = std::iter::once(name).chain(more).collect();
        let (sender, spans) = mpsc::channel(WAITING);
        let resource = Resource { attributes, ..Resource::default() };
        Ok((Self(Some(sender)), SpanExport { spans, client: TraceServiceClient::new(channel), resource }))
    }
}

impl SpanExport {
    /// Sends until `shutdown`, and then what is left.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                taken = self.spans.recv_many(&mut batch, BATCH) => if taken == 0 {
                    return;
                },
                () = shutdown.cancelled() => break,
            }
            if batch.len() < BATCH {
                // More of the same write may come.
                tokio::select! {
                    () = sleep(GATHER) => {}
                    () = shutdown.cancelled() => break,
                }
                while batch.len() < BATCH
                    && let Ok(span) = self.spans.try_recv()
                {
                    batch.push(span);
                }
            }
            self.send(std::mem::take(&mut batch), PATIENCE).await;
        }
        while let Ok(span) = self.spans.try_recv() {
            batch.push(span);
        }
        if !batch.is_empty() {
            self.send(batch, LAST_PATIENCE).await;
        }
    }

    /// What a collector does not take is not kept for it: it would only be older.
    async fn send(&mut self, spans: Vec<Span>, patience: Duration) {
        let count = spans.len() as u64;
        let scope = ScopeSpans { spans, ..ScopeSpans::default() };
        let of_resource = ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![scope],
            ..ResourceSpans::default()
        };
        let request = ExportTraceServiceRequest { resource_spans: vec![of_resource] };
        let sent = timeout(patience, self.client.export(request)).await;
        let error = match sent {
            Ok(Ok(_)) => return,
            Ok(Err(status)) => status.to_string(),
            Err(_) => "it does not answer".to_owned(),
        };
        metrics::counter!("trace_spans_lost_total").increment(count);
        tracing::warn!(error, count, "a collector does not take spans");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_without_port_or_with_another_scheme_is_none() {
        let check = |address: &str| Traces::to(address, "test", &[]).is_ok();
        assert!(
            check("http://localhost:4317") && check("collector.example:4317") && check("http://[::1]:4317")
        );
        for wrong in ["", "https://localhost:4317", "http://localhost", "://", "collector"] {
            assert!(!check(wrong), "{wrong:?}");
        }
    }
}
