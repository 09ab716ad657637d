//! What should leave and does not, in words for who can change that.

use std::{collections::BTreeMap, sync::Arc};

use super::{OutgoingResource, ReceiverSelection};
use crate::{kds::filter::Audience, model::ResourceKey};

/// Withheld resources of one type that are told by name.
const TOLD: usize = 10;
/// Resources of one type that are looked at because others have their names. A zone can make such names, and each stream
/// tells of them again whenever something changes.
const SEARCHED: usize = 100;

/// A resource that should leave and cannot.
#[derive(Debug)]
pub struct WithheldResource {
    /// Whom it is for.
    pub audience: Audience,
    /// Why it stays, for the person who can change it.
    pub reason: String,
}

/// Counts and logs that a resource is withheld.
pub(super) fn note(key: &ResourceKey, reason: &str) {
    metrics::counter!("kds_resources_withheld_total", "resource_type" => key.kind.name).increment(1);
    tracing::warn!(resource = %key, reason, "resource is withheld from sync");
}

/// A few words for each resource that is withheld, by type.
#[derive(Default)]
pub(super) struct WithheldReasons(BTreeMap<&'static str, WithheldOfType>);

#[derive(Default)]
struct WithheldOfType {
    count: usize,
    text: String,
    /// Not all were looked at.
    is_open: bool,
}

impl WithheldReasons {
    /// One more, and why.
    pub(super) fn add(&mut self, key: &ResourceKey, reason: &str) {
        let of_type = self.0.entry(key.kind.name).or_default();
        of_type.count += 1;
        if of_type.count <= TOLD {
            of_type.text.push_str(if of_type.text.is_empty() { "" } else { "\n" });
            of_type.text.push_str(&format!("{key}: {reason}"));
        }
    }

    /// Those of a kind that `to` does not get because others have their names. `items` stand together by name, the best
    /// first.
    pub(super) fn add_namesakes<'a>(
        &mut self,
        kind: &'static str,
        items: impl Iterator<Item = &'a Arc<OutgoingResource>>,
        to: &impl ReceiverSelection,
    ) {
        let mut first: Option<&Arc<OutgoingResource>> = None;
        for (n, item) in items.enumerate() {
            if n == SEARCHED {
                self.0.entry(kind).or_default().is_open = true;
                return;
            }
            if !to.includes(item) {
                continue;
            }
            match first.filter(|first| first.wanted.name == item.wanted.name) {
                Some(first) => self.add(&item.resource.key, &item.behind(first)),
                None => first = Some(item),
            }
        }
    }

    /// All of them.
    pub(super) fn told(self) -> BTreeMap<&'static str, String> {
        let of_type =
            |(type_name, WithheldOfType { count, text, is_open }): (&'static str, WithheldOfType)| {
                let told = match (count.saturating_sub(TOLD), is_open) {
                    (_, true) if text.is_empty() => return None,
                    (_, true) => format!("{text}\nand perhaps more"),
                    (0, false) => text,
                    (more, false) => format!("{text}\nand {more} more"),
                };
                Some((type_name, told))
            };
        self.0.into_iter().filter_map(of_type).collect()
    }
}
