#![allow(clippy::unwrap_used)]

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing_subscriber::{fmt, layer::SubscriberExt};

use super::*;

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that `log` writes in this format.
fn lines(format: LogFormat, log: impl FnOnce()) -> Vec<String> {
    let sink = Sink::default();
    let writer = sink.clone();
    let layer = fmt::layer()
        .with_ansi(false)
        .fmt_fields(SpanFields)
        .event_format(Lines::new(format))
        .with_writer(move || writer.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
    let bytes = sink.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
}

const EVIL: &str = "x\n2026-01-01T00:00:00Z ERROR forged: line\x1b[2K\u{202e} level=error";

fn every_way_in() {
    tracing::info!("formatted {EVIL}");
    tracing::info!(EVIL, "captured");
    tracing::info!(text = EVIL, debug = ?EVIL, display = %EVIL, "fields");
    let error = io::Error::other(EVIL);
    tracing::info!(error = &error as &(dyn std::error::Error + 'static), "an error");
    tracing::info!(target: "elsewhere", some = Some(EVIL), number = 7, "others");
    let span = tracing::info_span!("span", peer = %EVIL);
    span.in_scope(|| tracing::info!("in a span"));
}

#[test]
fn no_event_forges_a_line() {
    for format in [LogFormat::Text, LogFormat::Json] {
        let lines = lines(format, every_way_in);
        assert_eq!(lines.len(), 6, "{lines:#?}");
        for line in lines {
            assert!(!line.chars().any(char::is_control) && !line.contains('\u{202e}'), "{line}");
            // What a field says stays between its quotes; messages are our own words.
            let field = !line.contains("formatted") && format == LogFormat::Text;
            assert!(!field || line.contains("level=error\"") || line.contains("level=error\\\""), "{line}");
        }
    }
}

#[test]
fn a_line_is_read_as_before() {
    let log = || tracing::warn!(zone = "zone-1", count = 3, peer = %"10.0.0.1:1", "a zone is gone");
    let text = lines(LogFormat::Text, log).remove(0);
    let end = "WARN common::telemetry::lines::tests: a zone is gone zone=\"zone-1\" count=3 peer=10.0.0.1:1";
    assert!(text.ends_with(end), "{text}");
    let json: Value = serde_json::from_str(&lines(LogFormat::Json, log)[0]).unwrap();
    assert_eq!(json["level"], "WARN");
    assert_eq!(json["target"], "common::telemetry::lines::tests");
    let fields = json!({"message": "a zone is gone", "zone": "zone-1", "count": 3, "peer": "10.0.0.1:1"});
    assert_eq!(json["fields"], fields);
}

#[test]
fn lines_have_a_limit() {
    let long = "long ".repeat(1 << 20);
    for format in [LogFormat::Text, LogFormat::Json] {
        let lines = lines(format, || {
            tracing::info!(a = long, b = %long, c = ?long, d = long, e = long, f = long, "{long}");
            tracing::info_span!("span", long).in_scope(|| tracing::info!("in a span"));
        });
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.len() < LINE + 512), "{}", lines[0].len());
    }
}

#[test]
fn a_place_that_repeats_itself_is_cut_short_unless_details_are_asked_for() {
    let repeated = lines(LogFormat::Text, || (0..500).for_each(|n| tracing::warn!(n, "again")));
    assert!((20..30).contains(&repeated.len()), "{}", repeated.len());
    let details = lines(LogFormat::Text, || (0..500).for_each(|n| tracing::debug!(n, "again")));
    assert_eq!(details.len(), 500);
}
