//! Every metric: what it says, in what, with its labels and the closed set each label takes its values from.
//!
//! A series lives as long as the process, so what a label may say is decided here and never by a peer. A
//! test compares the [table](ALL) with the places that record, and another one makes noise and reads `/metrics`.
//! What can be looked up is not counted all the time: it is [sampled](samples) when somebody asks.

mod process;
pub mod requests;
pub mod samples;
mod table;

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use http::Method;

use crate::registry;

pub(crate) use self::process::ProcessUse;
pub use self::{samples::Samples, table::ALL};

/// Stands for every value that is in no set.
pub const OTHER: &str = "other";

/// Zones that get a label of their own in one process. Each is a resource an operator can see; a deployment
/// with more of them sees the rest as one.
const MOST_ZONES: usize = 4096;
/// The same of meshes.
const MOST_MESHES: usize = 1024;

/// Where the values of a label come from.
#[derive(Clone, Copy, Debug)]
pub enum LabelValues {
    /// These.
    These(&'static [&'static str]),
    /// Names in the source, which only a change of the source can add to.
    Constants,
    /// Methods HTTP knows; see [`method`].
    Methods,
    /// Routes as they are written down, not the paths that were asked for.
    Routes,
    /// Status codes handlers answer with.
    Statuses,
    /// Kinds of the registry; see [`kind`].
    Kinds,
    /// Resource types of xDS.
    TypeUrls,
    /// Zones that were let in, up to a number; see [`zone`].
    Zones,
    /// Meshes that are resources, up to a number; see [`mesh`].
    Meshes,
    /// Said once by a process, about itself.
    Process,
}

/// What a metric counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// Things.
    Count,
    /// 1 for yes, 0 for no.
    Flag,
    /// Seconds.
    Seconds,
    /// Milliseconds, where Kuma has them.
    Milliseconds,
    /// Seconds since 1970.
    Timestamp,
    /// Bytes.
    Bytes,
    /// Revisions of the store.
    Revision,
}

impl MetricUnit {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "number",
            Self::Flag => "0 or 1",
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Timestamp => "seconds since 1970",
            Self::Bytes => "bytes",
            Self::Revision => "revision",
        }
    }
}

/// How the values of a metric follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// Only grows, and begins anew with the process.
    Counter,
    /// What is so now.
    Gauge,
    /// Counts values by size; these are the upper bounds.
    Histogram(&'static [f64]),
}

impl MetricKind {
    /// As Prometheus calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// Labels, each with where its values come from.
type MetricLabels = &'static [(&'static str, LabelValues)];

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How its values follow each other.
    pub kind: MetricKind,
    /// What it counts in.
    pub unit: MetricUnit,
    /// What it says, in one line.
    pub help: &'static str,
    /// Its labels.
    pub labels: MetricLabels,
    /// Whether Kuma has it under this name.
    pub is_kumas: bool,
}

impl Metric {
    const fn new(
        name: &'static str,
        kind: MetricKind,
        unit: MetricUnit,
        labels: MetricLabels,
        help: &'static str,
    ) -> Self {
        Self { name, kind, unit, help, labels, is_kumas: false }
    }

    /// Under the name it has with Kuma.
    const fn kumas(self) -> Self {
        Self { is_kumas: true, ..self }
    }
}

/// The metric of this name.
pub fn by_name(name: &str) -> Option<&'static Metric> {
    ALL.binary_search_by(|metric| metric.name.cmp(name)).ok().map(|at| &ALL[at])
}

/// Tells the recorder what each metric says.
pub(crate) fn describe() {
    for metric in ALL {
        match metric.kind {
            MetricKind::Counter => metrics::describe_counter!(metric.name, metric.help),
            MetricKind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            MetricKind::Histogram(_) => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
}

/// A time in milliseconds.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A method of HTTP as a label.
pub fn method(method: &Method) -> &'static str {
    let known = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::PATCH,
        Method::OPTIONS,
        Method::CONNECT,
        Method::TRACE,
    ];
    const NAMES: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"];
    known.iter().position(|known| known == method).map_or(OTHER, |at| NAMES[at])
}

/// A resource type as a label.
pub fn kind(name: &str) -> &'static str {
    registry::by_name(name).map_or(OTHER, |kind| kind.name)
}

/// The name of a zone as a label.
pub fn zone(name: &str) -> Arc<str> {
    static SEEN: NamesSeen = Mutex::new(BTreeSet::new());
    of_few(&SEEN, name, MOST_ZONES)
}

/// The name of a mesh as a label. It has to be one of a resource.
pub fn mesh(name: &str) -> Arc<str> {
    static SEEN: NamesSeen = Mutex::new(BTreeSet::new());
    of_few(&SEEN, name, MOST_MESHES)
}

/// Names that are labels by now.
type NamesSeen = Mutex<BTreeSet<Arc<str>>>;

fn of_few(seen: &NamesSeen, name: &str, most: usize) -> Arc<str> {
    static REST: LazyLock<Arc<str>> = LazyLock::new(|| OTHER.into());
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    within(&mut seen, name, most).unwrap_or_else(|| Arc::clone(&REST))
}

/// `name`, unless it would be one too many.
fn within(seen: &mut BTreeSet<Arc<str>>, name: &str, most: usize) -> Option<Arc<str>> {
    if let Some(known) = seen.get(name) {
        return Some(Arc::clone(known));
    }
    (seen.len() < most).then(|| {
        let name: Arc<str> = name.into();
        seen.insert(Arc::clone(&name));
        name
    })
}

#[cfg(test)]
mod tests;
