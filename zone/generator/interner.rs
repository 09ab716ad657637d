//! One encoded copy per distinct resource in the whole process.

use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use super::resource_set::Encoded;

/// Different contents under one name that are looked at; beyond that, encoding again is cheaper.
const VARIANTS: usize = 64;

/// Remembers encoded resources in use by what they were encoded from. Nothing that comes out depends on
/// it but the time it takes and the memory it keeps.
#[derive(Debug, Default)]
pub struct Interner {
    known: Mutex<HashMap<(&'static str, String), Vec<Known>>>,
}

#[derive(Debug)]
struct Known {
    source: Box<dyn Any + Send + Sync>,
    encoded: Weak<Encoded>,
}

impl Interner {
    /// The encoded form of `source`: a copy already in use when there is one, else what `encode` makes.
    pub(super) fn encode<S: PartialEq + Send + Sync + 'static>(
        &self,
        type_url: &'static str,
        name: &str,
        source: S,
        encode: impl FnOnce(&S) -> Encoded,
    ) -> Arc<Encoded> {
        let key = (type_url, name.to_owned());
        if let Some(known) = self.lookup(&key, &source) {
            return known;
        }
        // Not under the lock: two proxies may then encode the same at once, which does no harm.
        let encoded = Arc::new(encode(&source));
        let known = Known { source: Box::new(source), encoded: Arc::downgrade(&encoded) };
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let variants = all.entry(key).or_default();
        variants.retain(|known| known.encoded.strong_count() > 0);
        if variants.len() < VARIANTS {
            variants.push(known);
        }
        encoded
    }

    fn lookup<S: PartialEq + 'static>(
        &self,
        key: &(&'static str, String),
        source: &S,
    ) -> Option<Arc<Encoded>> {
        let all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut variants = all.get(key)?.iter().rev();
        variants.find_map(|known| {
            let same = known.source.downcast_ref::<S>().is_some_and(|other| other == source);
            same.then(|| known.encoded.upgrade()).flatten()
        })
    }

    /// Forgets what nobody holds any more. Call it now and then, after pushes.
    pub fn sweep(&self) {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, variants| {
            variants.retain(|known| known.encoded.strong_count() > 0);
            !variants.is_empty()
        });
    }
}
