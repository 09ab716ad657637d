//! What is logged, changed while the process runs.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use thiserror::Error;
use tracing_subscriber::{EnvFilter, Registry, filter::LevelFilter, reload};

/// Components that may be given a level of their own.
const MOST: usize = 64;
/// Bytes of the name of one.
const LONGEST: usize = 128;
/// Stands for all components that nothing else is said about.
pub const EVERYTHING: &str = "*";

/// Why a level is not set.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LogLevelError {
    /// Its name is none of a component.
    #[error("{0:?} is no component: the path of a module such as zone::ads, or * for all")]
    Component(String),
    /// There is no such level.
    #[error("{0:?} is no level: use trace, debug, info, warn, error or off")]
    Level(String),
    /// Too many have one.
    #[error("{MOST} components have a level of their own already: reset some first")]
    TooMany,
}

/// The levels of this process.
#[derive(Debug)]
pub struct LogLevels {
    handle: reload::Handle<EnvFilter, Registry>,
    /// As the process was started.
    base: String,
    chosen: Mutex<BTreeMap<String, LevelFilter>>,
}

static LEVELS: OnceLock<LogLevels> = OnceLock::new();

/// Those of this process, once it logs.
pub fn levels() -> Option<&'static LogLevels> {
    LEVELS.get()
}

/// Lets a filter be changed from now on, by what [`levels`] gives.
pub(super) fn changeable(base: &str, filter: EnvFilter) -> reload::Layer<EnvFilter, Registry> {
    let (layer, handle) = reload::Layer::new(filter);
    // The first one is that of the process; a test may make several.
    let _known = LEVELS.set(LogLevels { handle, base: base.to_owned(), chosen: Mutex::default() });
    layer
}

impl LogLevels {
    /// The level of each component about which something is said.
    pub fn all(&self) -> BTreeMap<String, String> {
        let mut all: BTreeMap<String, String> = self
            .base
            .split(',')
            .map(|directive| directive.trim().rsplit_once('=').unwrap_or((EVERYTHING, directive.trim())))
            .filter(|(component, _)| is_component(component))
            .map(|(component, level)| (component.to_owned(), level.to_lowercase()))
            .collect();
        all.extend(self.chosen().iter().map(|(component, level)| (component.clone(), level.to_string())));
        all
    }

    /// Gives a component a level.
    ///
    /// # Errors
    /// [`LogLevelError`] for what is none, and for one too many.
    pub fn set(&self, component: &str, level: &str) -> Result<(), LogLevelError> {
        if !is_component(component) {
            return Err(LogLevelError::Component(crate::clip::clip(component, LONGEST).to_owned()));
        }
        let parsed = level.to_ascii_lowercase().parse::<LevelFilter>();
        // Nothing, or a number of which nobody knows which way it goes, would be one as well.
        let parsed =
            parsed.ok().filter(|_| !level.is_empty() && level.chars().all(|c| c.is_ascii_alphabetic()));
        let parsed =
            parsed.ok_or_else(|| LogLevelError::Level(crate::clip::clip(level, LONGEST).to_owned()))?;
        let mut chosen = self.chosen();
        if chosen.len() >= MOST && !chosen.contains_key(component) {
            return Err(LogLevelError::TooMany);
        }
        chosen.insert(component.to_owned(), parsed);
        self.renew(&chosen);
        Ok(())
    }

    /// Takes back what was set for `component`, or for all; gives what that was.
    pub fn reset(&self, component: Option<&str>) -> BTreeMap<String, String> {
        let mut chosen = self.chosen();
        let removed: BTreeMap<String, LevelFilter> = match component {
            Some(component) => chosen.remove_entry(component).into_iter().collect(),
            None => std::mem::take(&mut *chosen),
        };
        self.renew(&chosen);
        removed.into_iter().map(|(component, level)| (component, level.to_string())).collect()
    }

    fn renew(&self, chosen: &BTreeMap<String, LevelFilter>) {
        let said = chosen.iter().map(|(component, level)| match component.as_str() {
            EVERYTHING => level.to_string(),
            component => format!("{component}={level}"),
        });
        let directives = Vec::from_iter([self.base.clone()].into_iter().chain(said)).join(",");
        // It is made of what was a filter and of names and levels that were looked at. Of a subscriber that is gone
        // nothing is logged.
        if let Ok(filter) = EnvFilter::try_new(&directives) {
            let _gone = self.handle.reload(filter);
        }
    }

    fn chosen(&self) -> MutexGuard<'_, BTreeMap<String, LevelFilter>> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_component(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    name == EVERYTHING || (!name.is_empty() && name.len() <= LONGEST && name.chars().all(allowed))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use tracing_subscriber::{Layer, layer::SubscriberExt};

    use super::*;

    /// Counts what gets through.
    #[derive(Clone, Default)]
    struct Count(Arc<Mutex<usize>>);

    impl<S: tracing::Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            *self.0.lock().unwrap() += 1;
        }
    }

    #[test]
    fn a_level_counts_until_it_is_taken_back() {
        let base = "info,sqlx=warn";
        let (layer, handle) = reload::Layer::new(EnvFilter::new(base));
        let levels = LogLevels { handle, base: base.to_owned(), chosen: Mutex::default() };
        let count = Count::default();
        let subscriber = tracing_subscriber::registry().with(layer).with(count.clone());
        let passes = || {
            *count.0.lock().unwrap() = 0;
            tracing::info!(target: "sqlx", "noise");
            tracing::debug!(target: "zone", "detail");
            *count.0.lock().unwrap()
        };
        tracing::subscriber::with_default(subscriber, || {
            assert_eq!(passes(), 0);
            levels.set("sqlx", "INFO").unwrap();
            levels.set("*", "debug").unwrap();
            assert_eq!(passes(), 2);
            let shown = [("*", "debug"), ("sqlx", "info")].map(|(c, l)| (c.to_owned(), l.to_owned()));
            assert_eq!(levels.all(), BTreeMap::from(shown.clone()));
            assert_eq!(levels.reset(Some("*")).len(), 1);
            assert_eq!(passes(), 1);
            assert_eq!(levels.reset(None), BTreeMap::from([shown[1].clone()]));
            assert_eq!(passes(), 0);
        });
    }

    #[test]
    fn what_is_no_component_and_no_level_is_refused() {
        let (_layer, handle) = reload::Layer::<EnvFilter, Registry>::new(EnvFilter::new("info"));
        let levels = LogLevels { handle, base: "info".to_owned(), chosen: Mutex::default() };
        for component in ["", "a=b", "a,trace", "[span]", &"a".repeat(LONGEST + 1)] {
            assert!(matches!(levels.set(component, "info"), Err(LogLevelError::Component(_))), "{component}");
        }
        for level in ["", "5", "loud", "info,debug"] {
            assert!(matches!(levels.set("zone", level), Err(LogLevelError::Level(_))), "{level}");
        }
        for n in 0..MOST {
            levels.set(&format!("c{n}"), "info").unwrap();
        }
        assert_eq!(levels.set("one_more", "info"), Err(LogLevelError::TooMany));
        assert_eq!(levels.set("c0", "off"), Ok(()));
    }
}
