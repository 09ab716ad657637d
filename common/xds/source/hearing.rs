//! What a peer says, measured before anything of it is kept.

use super::{Malformed, Source, SourceEvent};
use crate::{
    clip::clip,
    xds::{
        Dialect, Outline, Repeat, Unknown, Want,
        dialect::Envelope,
        outline::{Listed, Unreadable},
    },
};

/// What an error shows of the type of a request, in bytes.
const LONGEST_TYPE: usize = 256;
/// Empty answers that may wait; a peer asks for each type once.
pub(super) const MAX_UNSERVED: usize = 64;

impl<D: Dialect> Source<D> {
    /// Looks through a request as it came, before anything of it is kept.
    ///
    /// # Errors
    /// [`Unreadable`] when it cannot be one.
    pub fn outline<'m>(&self, message: &'m [u8]) -> Result<Outline<'m>, Unreadable> {
        Outline::of(message, &D::REQUEST, &self.hasher)
    }

    /// Whether a request is not too large to be decoded.
    ///
    /// # Errors
    /// [`Malformed`] when it is: the stream must end.
    pub fn admit(&self, outline: &Outline<'_>) -> Result<(), Malformed> {
        self.measure(&Envelope {
            node: None,
            type_url: outline.type_url,
            is_first: outline.nonce.is_empty(),
            names: outline.names,
            held: outline.held,
            bytes: outline.bytes,
            longest: outline.longest,
            error: None,
        })
    }

    /// The type a request is about that names `type_url`.
    pub fn type_of<'t>(&self, type_url: &'t str) -> &'t str {
        self.settings.implied.filter(|_| type_url.is_empty()).unwrap_or(type_url)
    }

    /// The request as an answer that needs no decoding, if its names are those that were listed before.
    pub fn repeat(&self, outline: &Outline<'_>) -> Option<Repeat> {
        let type_url = self.type_of(outline.type_url);
        let slot = self.slots.iter().find(|slot| slot.rule.type_url == type_url)?;
        let is_known = slot.dialect.is_some() && slot.listed == Some(outline.listed);
        if is_known { outline.repeat() } else { None }
    }

    pub(super) fn request(
        &mut self,
        request: &D::Request,
        want: &dyn Want,
    ) -> Result<Option<SourceEvent>, Malformed> {
        let envelope = D::envelope(request);
        let envelope = Envelope { type_url: self.type_of(envelope.type_url), ..envelope };
        if envelope.type_url.is_empty() {
            return Err(Malformed::NoType);
        }
        let is_first = self.node.is_none();
        self.greet(envelope.node.map(|node| &*node.id))?;
        if let Some(node) = envelope.node.filter(|_| is_first) {
            self.ttl = self.settings.ttl.filter(|_| D::keeps_time(&node.client_features));
        }
        self.measure(&envelope)?;
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.rule.type_url == envelope.type_url) else {
            return self.unserved(envelope.type_url, envelope.is_first);
        };
        let (mut paged, max) = (None, self.settings.max_names);
        let event = match &mut slot.dialect {
            None => Some(slot.open(request, envelope.held, want)),
            Some(dialect) => {
                paged = dialect.take_page(&slot.rule, request, want);
                match paged {
                    Some(_) => slot.paged(),
                    None => slot.hear(self.revision, envelope.error, |dialect| dialect.hear(request)),
                }
            }
        };
        if paged.is_some_and(|listed| listed > max) {
            return Err(Malformed::TooManyNames { type_url: envelope.type_url.to_owned(), max });
        }
        let is_stale = matches!(event, Some(SourceEvent::Stale { .. }));
        // A request that was overtaken adds names and takes none away, so the next list is neither.
        let listed = D::listed(request).filter(|_| !is_stale);
        slot.listed = listed.map(|names| Listed::of(names, &self.hasher));
        if let Some(dialect) = &mut slot.dialect {
            dialect.subscription_mut().share_names(&self.settings.names);
        }
        let listed = slot.subscription().map_or(0, |s| s.interest().names().len());
        let max_bytes = self.settings.max_bytes;
        if listed > max {
            return Err(Malformed::TooManyNames { type_url: envelope.type_url.to_owned(), max });
        }
        let remembered: usize =
            self.slots.iter().filter_map(|slot| slot.dialect.as_ref()).map(D::bytes).sum();
        if remembered > max_bytes { Err(Malformed::TooManyBytes { max: max_bytes }) } else { Ok(event) }
    }

    /// Whether the peer lists no more than it may, and nothing that is longer than a name.
    fn measure(&self, envelope: &Envelope<'_>) -> Result<(), Malformed> {
        let type_url = || clip(envelope.type_url, LONGEST_TYPE).to_owned();
        let max = self.settings.max_names;
        if envelope.names > max || envelope.held > max {
            return Err(Malformed::TooManyNames { type_url: type_url(), max });
        }
        let (longest, max) = (envelope.longest.max(envelope.type_url.len()), self.settings.max_name);
        if longest > max {
            return Err(Malformed::LongName { type_url: type_url(), bytes: longest, max });
        }
        let max = self.settings.max_bytes;
        if envelope.bytes > max { Err(Malformed::TooManyBytes { max }) } else { Ok(()) }
    }

    /// Heeds what a request says about who asks: the first one has to, the others may, and it stays the same.
    fn greet(&mut self, id: Option<&str>) -> Result<(), Malformed> {
        let id = id.filter(|id| !id.is_empty());
        match (&self.node, id) {
            (None, None) => return Err(Malformed::NoNode),
            (None, Some(id)) => self.node = Some(id.into()),
            (Some(known), Some(id)) if **known != *id => return Err(Malformed::OtherNode),
            (Some(_), _) => {}
        }
        Ok(())
    }

    pub(super) fn repeated(&mut self, repeat: &Repeat) -> Result<Option<SourceEvent>, Malformed> {
        self.greet(repeat.node.as_deref())?;
        let type_url = self.type_of(&repeat.type_url);
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.rule.type_url == type_url) else {
            return Ok(None);
        };
        let error = repeat.error.as_ref();
        Ok(slot.hear(self.revision, error, |dialect| dialect.hear_again(&repeat.nonce, error)))
    }

    fn unserved(&mut self, type_url: &str, is_first: bool) -> Result<Option<SourceEvent>, Malformed> {
        let type_url = type_url.to_owned();
        if self.settings.unknown == Unknown::Refuse {
            return Err(Malformed::UnknownType { type_url });
        }
        if !is_first {
            return Ok(None);
        }
        if self.unserved.len() == MAX_UNSERVED {
            return Err(Malformed::TooManyTypes);
        }
        self.unserved.push_back(type_url.clone());
        Ok(Some(SourceEvent::Unserved { type_url }))
    }
}
