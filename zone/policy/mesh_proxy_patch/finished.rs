//! A finished message that may be changed.

use std::{collections::BTreeMap, sync::Arc};

use common::policy::mesh_proxy_patch::native::{self, Native};
use prost_reflect::{DynamicMessage, MapKey, ReflectMessage, Value};

use super::step::Step;
use crate::generator::{Encoded, envoy::metadata, type_url};

/// A cluster or a listener. It is unpacked when something is to be changed, and packed again when something was.
#[derive(Clone)]
pub(super) struct Finished {
    encoded: Arc<Encoded>,
    message: Option<DynamicMessage>,
    changed: bool,
    removed: bool,
}

impl Finished {
    /// As it was made.
    pub(super) fn new(encoded: Arc<Encoded>) -> Self {
        Self { encoded, message: None, changed: false, removed: false }
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.encoded.name
    }

    /// Its type.
    pub(super) fn type_url(&self) -> &'static str {
        self.encoded.type_url
    }

    /// Whether it is what `other` would replace.
    pub(super) fn is_at(&self, other: &Encoded) -> bool {
        (self.type_url(), self.name()) == (other.type_url, &*other.name)
    }

    /// Does one step, or nothing of it.
    ///
    /// # Errors
    /// Why it cannot be done.
    pub(super) fn change(&mut self, step: &Step) -> Result<(), String> {
        let origin = self.encoded.origin;
        if self.removed || !step.is_for(self.type_url(), &self.encoded.name, origin) {
            return Ok(());
        }
        let message = self.unpacked()?;
        if !step.asks_for_tags().is_none_or(|wanted| has_tags(message, wanted)) {
            return Ok(());
        }
        if step.removes() {
            self.removed = true;
            return Ok(());
        }
        let mut next = message.clone();
        if !step.apply(&mut next)? {
            return Ok(());
        }
        let name = native::name(&next);
        if name != self.name() {
            return Err(format!("it would be called {name:?}"));
        }
        (self.message, self.changed) = (Some(next), true);
        Ok(())
    }

    fn unpacked(&mut self) -> Result<&DynamicMessage, String> {
        if self.message.is_none() {
            let native = match self.encoded.type_url {
                type_url::CLUSTER => Native::Cluster,
                _ => Native::Listener,
            };
            let message = DynamicMessage::decode(native.descriptor(), self.encoded.value.clone());
            self.message = Some(message.map_err(|error| error.to_string())?);
        }
        Ok(self.message.as_ref().expect("it was unpacked above"))
    }

    /// What became of it; `None` when it was taken out.
    pub(super) fn encoded(self) -> Option<Arc<Encoded>> {
        let Self { encoded, message, changed, removed } = self;
        match message.filter(|_| changed) {
            _ if removed => None,
            None => Some(encoded),
            Some(message) => {
                let Encoded { name, type_url, origin, .. } = &*encoded;
                Some(Arc::new(Encoded::dynamic(name, type_url, origin, &message)))
            }
        }
    }
}

/// Whether a listener shows these tags; `*` stands for any value.
fn has_tags(listener: &DynamicMessage, wanted: &BTreeMap<String, String>) -> bool {
    let shown = tags(listener).unwrap_or_default();
    wanted.iter().all(|(key, value)| shown.get(key).is_some_and(|own| value == "*" || own == value))
}

fn tags(listener: &DynamicMessage) -> Option<BTreeMap<String, String>> {
    let member = |message: &DynamicMessage, name: &str| {
        let field = message.descriptor().get_field_by_name(name)?;
        Some(message.get_field(&field).into_owned())
    };
    let filters = member(member(listener, "metadata")?.as_message()?, "filter_metadata")?;
    let tags = filters.as_map()?.get(&MapKey::String(metadata::TAGS.to_owned()))?.as_message()?.clone();
    let fields = member(&tags, "fields")?;
    let text = |(key, value): (&MapKey, &Value)| {
        let value = member(value.as_message()?, "string_value")?;
        Some((key.as_str()?.to_owned(), value.as_str()?.to_owned()))
    };
    Some(fields.as_map()?.iter().filter_map(text).collect())
}
