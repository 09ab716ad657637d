//! What is looked up when somebody asks for the metrics, instead of being counted all the time.
//!
//! A series of this sort is there as long as what it is about: when a zone is deleted, so is its lag.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
};

use super::{MetricKind, by_name};

/// Looks something up.
type SampleLook = Arc<dyn Fn(&mut Samples) + Send + Sync>;

/// The places that are asked.
#[derive(Clone, Default)]
pub struct Sampled(Arc<Mutex<Vec<SampleLook>>>);

impl Sampled {
    /// Asks `look` from now on, on a thread where it may take a moment.
    pub fn add(&self, look: impl Fn(&mut Samples) + Send + Sync + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(look));
    }

    /// The text of everything that is to be looked up, with the label `zone`.
    pub(crate) fn render(&self, zone: &str) -> String {
        // Not under the lock: who is asked may take locks of its own.
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut samples = Samples::default();
        for look in looks {
            look(&mut samples);
        }
        samples.render(zone)
    }
}

/// Labels of a sample.
type SampleLabels = Vec<(&'static str, Arc<str>)>;

/// Values that were looked up.
#[derive(Default)]
pub struct Samples(BTreeMap<&'static str, BTreeMap<SampleLabels, f64>>);

impl Samples {
    /// Takes a value down. What is told twice of the same labels is added up.
    pub fn add(&mut self, name: &'static str, labels: &[(&'static str, &str)], value: f64) {
        let labels = labels.iter().map(|(label, text)| (*label, Arc::from(*text))).collect();
        *self.0.entry(name).or_default().entry(labels).or_default() += value;
    }

    fn render(&self, zone: &str) -> String {
        let mut text = String::new();
        for (name, series) in &self.0 {
            let known = by_name(name);
            let kind = known.map_or(MetricKind::Gauge, |metric| metric.kind);
            let help = known.map_or("", |metric| metric.help);
            // Writing to a text does not fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
            for (labels, value) in series {
                let _ = write!(text, "{name}{{zone=\"{}\"", escaped(zone));
                for (label, said) in labels {
                    let _ = write!(text, ",{label}=\"{}\"", escaped(said));
                }
                let _ = writeln!(text, "}} {}", shown(*value));
            }
            text.push('\n');
        }
        text
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn shown(value: f64) -> String {
    match value {
        value if value == f64::INFINITY => "+Inf".to_owned(),
        value if value == f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_up_has_help_type_and_labels() {
        let sampled = Sampled::default();
        sampled.add(|samples| {
            samples.add("kds_zones", &[("status", "online")], 1.0);
            samples.add("kds_zones", &[("status", "online")], 1.0);
            samples.add("process_cpu_seconds_total", &[], 0.5);
            samples.add("kds_zone_lag", &[("zone_name", "a\"\\\n"), ("direction", "up")], f64::INFINITY);
        });
        let text = sampled.render("Global");
        for line in [
            "# TYPE kds_zones gauge",
            "kds_zones{zone=\"Global\",status=\"online\"} 2",
            "# TYPE process_cpu_seconds_total counter",
            "process_cpu_seconds_total{zone=\"Global\"} 0.5",
            "kds_zone_lag{zone=\"Global\",zone_name=\"a\\\"\\\\\\n\",direction=\"up\"} +Inf",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        assert!(text.contains("# HELP kds_zones Zones by"), "{text}");
    }
}
