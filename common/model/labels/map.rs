//! The labels of one resource, packed.

use std::{borrow::Cow, collections::BTreeMap, fmt, ops::Index, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Labels by name, in the order of their names.
///
/// A control plane keeps a hundred thousand of these and rarely changes one. So all names and values lie in one
/// allocation that copies share, at a third of what a tree of strings takes; to change one is to pack all anew.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels {
    /// For each label the lengths of name and value, four bytes each, then both; `None` where there are none.
    packed: Option<Arc<[u8]>>,
}

impl Labels {
    /// No labels.
    pub const fn new() -> Self {
        Self { packed: None }
    }

    /// The value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Whether there is a label of this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.packed.is_none()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Names and values, by name.
    pub fn iter(&self) -> Iter<'_> {
        Iter { rest: self.packed.as_deref().unwrap_or_default() }
    }

    /// The names, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    /// The values, in the order of their names.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(_, value)| value)
    }

    /// Sets a label; gives the value it had.
    pub fn insert(&mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Option<String> {
        let (name, value) = (name.as_ref(), value.as_ref());
        let had = self.get(name).map(str::to_owned);
        if had.as_deref() != Some(value) {
            let others = self.iter().filter(|(known, _)| *known != name);
            let mut all: Vec<_> = others.chain([(name, value)]).collect();
            all.sort_unstable();
            *self = Self::pack(&all);
        }
        had
    }

    /// Sets a label that is not there.
    pub fn or_insert(&mut self, name: &str, value: impl AsRef<str>) {
        if !self.contains_key(name) {
            self.insert(name, value);
        }
    }

    /// Takes a label away; gives the value it had.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let had = self.get(name)?.to_owned();
        self.retain(|known, _| known != name);
        Some(had)
    }

    /// Takes away those that `keep` does not want.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &str) -> bool) {
        let kept: Vec<_> = self.iter().filter(|(name, value)| keep(name, value)).collect();
        *self = Self::pack(&kept);
    }

    /// The same as strings.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Of labels in order, each name once.
    fn pack(labels: &[(&str, &str)]) -> Self {
        if labels.is_empty() {
            return Self::new();
        }
        let size = labels.iter().map(|(name, value)| 2 * LENGTH + name.len() + value.len()).sum();
        let mut packed = Vec::with_capacity(size);
        for (name, value) in labels {
            for text in [name, value] {
                let length =
                    u32::try_from(text.len()).expect("a text from outside is bounded far below 4 GiB");
                packed.extend_from_slice(&length.to_le_bytes());
            }
            packed.extend_from_slice(name.as_bytes());
            packed.extend_from_slice(value.as_bytes());
        }
        Self { packed: Some(packed.into()) }
    }
}

/// Bytes of a length.
const LENGTH: usize = size_of::<u32>();

/// The labels of a resource, in order.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iter<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn length(&mut self) -> usize {
        let bytes = self.take(LENGTH).try_into().expect("it was taken as long as that");
        u32::from_le_bytes(bytes) as usize
    }

    fn text(&mut self, length: usize) -> &'a str {
        str::from_utf8(self.take(length)).expect("only texts are packed, whole")
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (name, value) = (self.length(), self.length());
        Some((self.text(name), self.text(value)))
    }
}

impl<'a> IntoIterator for &'a Labels {
    type Item = (&'a str, &'a str);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    /// Of two with one name the later counts.
    fn from_iter<T: IntoIterator<Item = (K, V)>>(labels: T) -> Self {
        let labels: Vec<(K, V)> = labels.into_iter().collect();
        let by_name: BTreeMap<&str, &str> =
            labels.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
        Self::pack(&by_name.into_iter().collect::<Vec<_>>())
    }
}

impl<K: AsRef<str>, V: AsRef<str>> Extend<(K, V)> for Labels {
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, labels: T) {
        let more: Vec<(K, V)> = labels.into_iter().collect();
        let more = more.iter().map(|(name, value)| (name.as_ref(), value.as_ref()));
        *self = self.iter().chain(more).collect();
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Labels {
    fn from(labels: [(&str, &str); N]) -> Self {
        labels.into_iter().collect()
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(labels: BTreeMap<String, String>) -> Self {
        labels.into_iter().collect()
    }
}

impl PartialEq<BTreeMap<String, String>> for Labels {
    fn eq(&self, other: &BTreeMap<String, String>) -> bool {
        self.iter().eq(other.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }
}

impl Index<&str> for Labels {
    type Output = str;

    fn index(&self, name: &str) -> &str {
        self.get(name).unwrap_or_else(|| panic!("there is no label {name}"))
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not every format can lend its texts.
        let labels: BTreeMap<Cow<'de, str>, Cow<'de, str>> = BTreeMap::deserialize(deserializer)?;
        Ok(labels.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(String, String),
        Remove(String),
        Extend(Vec<(String, String)>),
        Retain(String),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Few names, so that they meet; anything may be in a value.
        let name = || prop_oneof![Just(String::new()), "[a-c]{1,2}", ".{0,3}"];
        let value = || ".{0,4}";
        let step = prop_oneof![
            (name(), value()).prop_map(|(name, value)| Step::Insert(name, value)),
            name().prop_map(Step::Remove),
            vec((name(), value()), 0..4).prop_map(Step::Extend),
            name().prop_map(Step::Retain),
        ];
        vec(step, 0..20)
    }

    proptest! {
        /// They are a map of strings in everything but size.
        #[test]
        fn they_are_what_a_map_of_strings_is(steps in steps()) {
            let (mut packed, mut plain) = (Labels::new(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Insert(name, value) => {
                        prop_assert_eq!(packed.insert(&name, &value), plain.insert(name, value));
                    }
                    Step::Remove(name) => prop_assert_eq!(packed.remove(&name), plain.remove(&name)),
                    Step::Extend(more) => {
                        packed.extend(more.iter().map(|(name, value)| (name, value)));
                        plain.extend(more);
                    }
                    Step::Retain(least) => {
                        packed.retain(|name, _| *name >= *least);
                        plain.retain(|name, _| *name >= least);
                    }
                }
                prop_assert_eq!(&packed, &plain);
                prop_assert_eq!(packed.to_map(), plain.clone());
                prop_assert_eq!((packed.len(), packed.is_empty()), (plain.len(), plain.is_empty()));
                prop_assert_eq!(&Labels::from(plain.clone()), &packed, "equal labels are packed alike");
                for (name, value) in &plain {
                    prop_assert_eq!(packed.get(name), Some(value.as_str()));
                }
                let text = serde_json::to_string(&packed).unwrap();
                prop_assert_eq!(&text, &serde_json::to_string(&plain).unwrap());
                prop_assert_eq!(serde_json::from_str::<Labels>(&text).unwrap(), packed.clone());
            }
        }
    }
}
