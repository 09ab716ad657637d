//! Lines of the log. Whatever an event carries, from whichever crate and call site, is cut and escaped here, and
//! a place that repeats itself is cut short.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
};

use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_log::NormalizeEvent;
use tracing_subscriber::{
    field::RecordFields,
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use super::{LogFormat, escape::escaped, repeats::Repeats};

/// Longest value of a field, in bytes.
const FIELD: usize = 1024;
/// Longest message and fields of an event together, in bytes; the same for a span.
const LINE: usize = 4096;

/// Writes events as lines.
pub(super) struct Lines {
    format: LogFormat,
    repeats: Mutex<Repeats>,
}

impl Lines {
    pub(super) fn new(format: LogFormat) -> Self {
        Self { format, repeats: Mutex::default() }
    }

    /// How many lines like this were left out before it; `None` when it is to be left out too.
    fn allow(&self, event: &Event<'_>, meta: &Metadata<'_>) -> Option<u64> {
        // Who asks for details wants all of them.
        if *meta.level() > Level::INFO {
            return Some(0);
        }
        let level = meta.level().as_str();
        metrics::counter!("log_lines_total", "level" => level).increment(1);
        let mut hasher = DefaultHasher::new();
        // Crates that use `log` share one call site, so their place is told by name and line.
        (event.metadata().callsite(), meta.target(), meta.line(), level).hash(&mut hasher);
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        let allowed = repeats.allow(hasher.finish(), Instant::now());
        if allowed.is_none() {
            metrics::counter!("log_lines_left_out_total", "level" => level).increment(1);
        }
        allowed
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let normal = event.normalized_metadata();
        let meta = normal.as_ref().unwrap_or_else(|| event.metadata());
        let Some(left_out) = self.allow(event, meta) else { return Ok(()) };
        let spans: Vec<(&str, String)> = ctx
            .event_scope()
            .into_iter()
            .flat_map(|scope| scope.from_root())
            .map(|span| {
                let fields = span.extensions().get::<FormattedFields<N>>().map(|f| f.fields.clone());
                (span.name(), fields.unwrap_or_default())
            })
            .collect();
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.line(&mut out, meta, &spans, fields)?;
        if left_out > 0 {
            let message = format!("{left_out} more like this were left out");
            let fields = Fields { message, ..Fields::default() };
            self.line(&mut out, meta, &spans, fields)?;
        }
        Ok(())
    }
}

impl Lines {
    fn line(
        &self,
        out: &mut Writer<'_>,
        meta: &Metadata<'_>,
        spans: &[(&str, String)],
        fields: Fields,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        match self.format {
            LogFormat::Text => {
                let colour = out.has_ansi_escapes().then(|| colour(*meta.level()));
                let (on, off) = (colour.unwrap_or_default(), if colour.is_some() { "\x1b[0m" } else { "" });
                write!(out, "{time} {on}{:>5}{off} ", meta.level())?;
                for (name, fields) in spans {
                    match fields.as_str() {
                        "" => write!(out, "{name}: ")?,
                        fields => write!(out, "{name}{{{fields}}}: ")?,
                    }
                }
                writeln!(out, "{}: {}", meta.target(), fields.text())
            }
            LogFormat::Json => {
                let mut line = json!({
                    "timestamp": time,
                    "level": meta.level().as_str(),
                    "fields": fields.json(),
                    "target": meta.target(),
                });
                if !spans.is_empty() {
                    let spans = spans.iter().map(|(name, fields)| json!({"name": name, "fields": fields}));
                    line["spans"] = spans.collect();
                }
                writeln!(out, "{line}")
            }
        }
    }
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG => "\x1b[34m",
        Level::TRACE => "\x1b[35m",
    }
}

/// Writes the fields of a span, as the text form of an event has them.
pub(super) struct SpanFields;

impl<'a> FormatFields<'a> for SpanFields {
    fn format_fields<R: RecordFields>(&self, mut out: Writer<'a>, recorded: R) -> fmt::Result {
        let mut fields = Fields::default();
        recorded.record(&mut fields);
        out.write_str(&fields.text())
    }
}

/// The fields of one event or span, escaped and cut.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<NamedValue>,
    used: usize,
}

struct NamedValue {
    name: &'static str,
    value: Value,
    /// Whether the text form shows it between quotes.
    quoted: bool,
}

impl Fields {
    fn add(&mut self, field: &Field, value: impl fmt::Display, quoted: bool) {
        let text = escaped(value, FIELD.min(LINE.saturating_sub(self.used)));
        self.used += text.len();
        match field.name() {
            "message" => self.message = text,
            // What `log` tells of the place is part of the line already.
            name if name.starts_with("log.") => {}
            name => {
                // Or a value could pass for a field of its own.
                let quoted = quoted || text.contains('=');
                let name = name.trim_start_matches("r#");
                self.others.push(NamedValue { name, value: Value::String(text), quoted });
            }
        }
    }

    fn add_plain(&mut self, field: &Field, value: impl Into<Value>) {
        let name = field.name();
        if !name.starts_with("log.") {
            self.others.push(NamedValue { name, value: value.into(), quoted: false });
        }
    }

    fn text(self) -> String {
        let fields = self.others.into_iter().map(|NamedValue { name, value, quoted }| match value {
            Value::String(text) if quoted => format!("{name}=\"{}\"", text.replace('"', "\\\"")),
            Value::String(text) => format!("{name}={text}"),
            plain => format!("{name}={plain}"),
        });
        let message = Some(self.message).filter(|message| !message.is_empty());
        message.into_iter().chain(fields).collect::<Vec<_>>().join(" ")
    }

    fn json(self) -> Value {
        let message = Some(self.message).filter(|message| !message.is_empty());
        let message = message.map(|message| ("message".to_owned(), Value::String(message)));
        let others = self.others.into_iter().map(|named| (named.name.to_owned(), named.value));
        Value::Object(message.into_iter().chain(others).collect::<Map<_, _>>())
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"), false);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value, true);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.add(field, value, false);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add_plain(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add_plain(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add_plain(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add_plain(field, value);
    }
}

#[cfg(test)]
mod tests;
