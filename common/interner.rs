//! Equal values kept once, for as long as somebody has them.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    sync::{Arc, Weak},
};

/// The values of one sort that somebody has.
#[derive(Debug)]
pub struct Interner<T: ?Sized> {
    known: HashMap<u64, Weak<T>>,
    /// Peers choose the values, so nobody else chooses where they meet.
    hasher: RandomState,
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), hasher: RandomState::new() }
    }
}

impl<T: ?Sized + Hash + Eq> Interner<T> {
    /// The value that equals this one, if somebody has it.
    pub fn get(&self, value: &T) -> Option<Arc<T>> {
        let known = self.known.get(&self.hasher.hash_one(value))?.upgrade();
        known.filter(|known| **known == *value)
    }

    /// Keeps `value` in mind for others who will have an equal one.
    pub fn insert(&mut self, value: &Arc<T>) {
        if self.known.len() == self.known.capacity() {
            self.known.retain(|_, value| value.strong_count() > 0);
        }
        // Of two that meet in one place the later one stays; the other is just not shared any more.
        self.known.insert(self.hasher.hash_one(&**value), Arc::downgrade(value));
    }

    /// The value that somebody has already, or else this one.
    pub fn shared(&mut self, value: Arc<T>) -> Arc<T> {
        self.get(&value).unwrap_or_else(|| {
            self.insert(&value);
            value
        })
    }

    /// How many values somebody has.
    pub fn in_use(&self) -> usize {
        self.known.values().filter(|value| value.strong_count() > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Interner;

    #[test]
    fn equal_values_are_one_as_long_as_somebody_has_them() {
        let mut interner = Interner::<str>::default();
        let (one, two, other) =
            (interner.shared("a".into()), interner.shared("a".into()), interner.shared("b".into()));
        assert!(Arc::ptr_eq(&one, &two));
        assert!(!Arc::ptr_eq(&one, &other));
        assert_eq!(interner.get("a").as_deref(), Some("a"));
        drop((one, two));
        assert_eq!((interner.get("a"), interner.in_use()), (None, 1));
    }

    #[test]
    fn what_nobody_has_is_forgotten() {
        let mut interner = Interner::<str>::default();
        for i in 0..10_000 {
            interner.shared(i.to_string().into());
        }
        assert!(interner.known.capacity() < 1_000, "{}", interner.known.capacity());
    }
}
