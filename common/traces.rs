//! Traces of writes: from the request through each zone to the answers of its Envoys, told to a collector by OTLP.
//!
//! ```text
//!  PUT on global ──► revision ──► zone takes it ──► its Envoys answer
//!     root span                     span              span
//! ```
//!
//! The identifiers of a trace and of its spans are digests of the history and the revision in it. So whoever has a part in it
//! knows them, nothing has to travel along, and what a process tells late or twice comes to be in the same place.

mod export;

use chrono::{DateTime, Utc};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value},
    trace::v1::{Span, Status, span::SpanKind, status::StatusCode},
};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::store::{Revision, StoreIdentity};

pub use export::{SpanExport, SpanReceiverError};

/// Spans that may wait to be sent. What is more is left out and counted.
const WAITING: usize = 4096;
/// Bytes of an identifier of a trace and of a span.
const TRACE_ID: usize = 16;
const SPAN_ID: usize = 8;

/// The trace of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteTrace([u8; TRACE_ID]);

impl WriteTrace {
    /// Of the write that made `revision` in this history.
    pub fn of(history: StoreIdentity, revision: Revision) -> Self {
        let mut digest = Sha256::new();
        digest.update(history.store_id.as_bytes());
        digest.update(history.epoch.to_be_bytes());
        digest.update(revision.to_be_bytes());
        let mut id = [0; TRACE_ID];
        id.copy_from_slice(&digest.finalize()[..TRACE_ID]);
        Self(id)
    }

    /// Identifies a part of it. One whose bytes are all zero would be none, which no digest is.
    fn span(&self, part: &TracePart<'_>) -> Vec<u8> {
        let mut digest = Sha256::new();
        digest.update(self.0);
        let (kind, zone) = match part {
            TracePart::Request => (b'r', ""),
            TracePart::Taken { zone } => (b't', *zone),
            TracePart::Answered { zone } => (b'a', *zone),
        };
        digest.update([kind]);
        digest.update(zone);
        digest.finalize()[..SPAN_ID].to_vec()
    }
}

/// A part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePart<'a> {
    /// The request that wrote it.
    Request,
    /// A zone takes it.
    Taken {
        /// Which one.
        zone: &'a str,
    },
    /// The proxies of a zone answer for it.
    Answered {
        /// Which one.
        zone: &'a str,
    },
}

/// What happened, and how long it took.
#[derive(Clone, Debug)]
pub struct SpanRecord<'a> {
    /// The write it is about.
    pub trace: WriteTrace,
    /// Which part of it.
    pub part: TracePart<'a>,
    /// What follows from what.
    pub parent: Option<TracePart<'a>>,
    /// What it is called.
    pub name: String,
    /// When it began.
    pub start: DateTime<Utc>,
    /// When it ended.
    pub end: DateTime<Utc>,
    /// More about it, by the names of semantic conventions where there are any.
    pub attributes: Vec<(&'static str, String)>,
    /// What went wrong.
    pub error: Option<String>,
}

impl SpanRecord<'_> {
    fn encode(self) -> Span {
        let nanos = |time: DateTime<Utc>| {
            u64::try_from(time.timestamp_nanos_opt().unwrap_or_default()).unwrap_or_default()
        };
        let kind = match self.part {
            TracePart::Request => SpanKind::Server,
            TracePart::Taken { .. } => SpanKind::Consumer,
            TracePart::Answered { .. } => SpanKind::Internal,
        };
        let status = self.error.map(|message| Status { message, code: StatusCode::Error.into() });
        Span {
            trace_id: self.trace.0.to_vec(),
            span_id: self.trace.span(&self.part),
            parent_span_id: self.parent.map(|parent| self.trace.span(&parent)).unwrap_or_default(),
            name: self.name,
            kind: kind.into(),
            start_time_unix_nano: nanos(self.start),
            end_time_unix_nano: nanos(self.end.max(self.start)),
            attributes: self.attributes.into_iter().map(|(name, value)| attribute(name, value)).collect(),
            status,
            ..Span::default()
        }
    }
}

fn attribute(name: &str, value: String) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value)) };
    KeyValue { key: name.to_owned(), value: Some(value), ..KeyValue::default() }
}

/// Where spans are told. Cheap to clone; without a collector nothing is told.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<mpsc::Sender<Span>>);

impl Traces {
    /// Whether anybody hears of it.
    pub fn is_heard(&self) -> bool {
        self.0.is_some()
    }

    /// Tells of one span, without waiting.
    pub fn record(&self, span: SpanRecord<'_>) {
        let Some(sender) = &self.0 else { return };
        if sender.try_send(span.encode()).is_err() {
            metrics::counter!("trace_spans_lost_total").increment(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn who_knows_the_revision_knows_the_trace_and_its_spans() {
        let history = StoreIdentity { store_id: Uuid::from_u128(1), epoch: 2 };
        let trace = WriteTrace::of(history, 7);
        assert_eq!(trace, WriteTrace::of(history, 7));
        assert_ne!(trace, WriteTrace::of(history, 8));
        assert_ne!(trace, WriteTrace::of(StoreIdentity { epoch: 3, ..history }, 7));
        let parts = [
            TracePart::Request,
            TracePart::Taken { zone: "a" },
            TracePart::Answered { zone: "a" },
            TracePart::Taken { zone: "b" },
        ];
        let ids: std::collections::BTreeSet<Vec<u8>> = parts.iter().map(|part| trace.span(part)).collect();
        assert_eq!(ids.len(), parts.len());
        assert!(ids.iter().all(|id| id.len() == SPAN_ID));
    }
}
