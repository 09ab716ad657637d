//! An answer that many ask for at once, made once.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;

/// A text that is shared by all answers that are on their way with it. Once the last of them is gone nobody keeps it: at
/// rest it would be as large as what it was made from.
#[derive(Debug, Default)]
pub(super) struct SharedText(Mutex<Weak<Vec<u8>>>);

struct SharedBytes(Arc<Vec<u8>>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl SharedText {
    /// The text, as `make` makes it where nobody has it; whoever comes meanwhile waits for that.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn get<E>(&self, make: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Bytes, E> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = place.upgrade() {
            return Ok(Bytes::from_owner(SharedBytes(text)));
        }
        let mut text = make()?;
        // It grew by doubling.
        text.shrink_to_fit();
        let text = Arc::new(text);
        *place = Arc::downgrade(&text);
        Ok(Bytes::from_owner(SharedBytes(text)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn it_is_made_once_for_those_who_have_it_at_once_and_kept_for_nobody() {
        let (text, mut made) = (SharedText::default(), 0);
        let mut get = |text: &SharedText| {
            let make = || {
                made += 1;
                Ok::<_, Infallible>(vec![made])
            };
            text.get(make).unwrap()
        };
        let (first, second) = (get(&text), get(&text));
        assert_eq!((&first[..], &second[..]), (&[1][..], &[1][..]));
        drop(first);
        assert_eq!(get(&text)[..], [1]);
        drop(second);
        assert_eq!(get(&text)[..], [2]);
    }
}
