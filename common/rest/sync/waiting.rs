//! Who waits for zones to acknowledge something. All of them look again whenever any zone says something, so they are
//! few, and the more they are the longer each rests in between. One user has a part of the places.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{access::User, rest::ApiError};

/// Requests that wait at once.
const ALL: usize = 1_024;
/// Those of callers nobody vouches for.
const STRANGERS: usize = 32;
/// Those of one user.
const EACH: usize = ALL / 4;
/// How long one rests for each that waits.
const REST: Duration = Duration::from_millis(2);

/// The requests that wait.
pub(in crate::rest) struct SyncWaits {
    all: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    users: Arc<WaitingUsers>,
}

/// How many requests of each user wait, by his name.
#[derive(Default)]
struct WaitingUsers(Mutex<HashMap<String, usize>>);

impl WaitingUsers {
    /// One more of `user`, if he has not enough.
    fn begin(self: &Arc<Self>, user: &str) -> Option<WaitOfUser> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.get(user).copied().unwrap_or(0);
        if count >= EACH {
            return None;
        }
        waiting.insert(user.to_owned(), count + 1);
        drop(waiting);
        Some(WaitOfUser { users: Arc::clone(self), user: user.to_owned() })
    }
}

/// One request of a user, until it is dropped.
struct WaitOfUser {
    users: Arc<WaitingUsers>,
    user: String,
}

impl Drop for WaitOfUser {
    fn drop(&mut self) {
        let mut waiting = self.users.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = waiting.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.user);
            }
        }
    }
}

impl Default for SyncWaits {
    fn default() -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        Self { all: places(ALL), strangers: places(STRANGERS), users: Arc::default() }
    }
}

/// One of them, until it is dropped.
pub(in crate::rest) struct SyncWait {
    all: Arc<Semaphore>,
    _place: OwnedSemaphorePermit,
    _of_stranger: Option<OwnedSemaphorePermit>,
    _of_user: Option<WaitOfUser>,
}

impl SyncWaits {
    /// A place for `user` to wait, if there is one. Of those who are not `known` nobody can be told from another.
    pub(in crate::rest) fn begin(&self, user: &User, is_known: bool) -> Result<SyncWait, ApiError> {
        let busy = |detail| ApiError::busy("Could not wait for zones", detail);
        let take = |places: &Arc<Semaphore>| {
            Arc::clone(places).try_acquire_owned().map_err(|_| {
                busy("too many requests wait for zones at the moment: ask without timeout, or show a user token")
            })
        };
        let of_stranger = if is_known { None } else { Some(take(&self.strangers)?) };
        let of_user = match user.is_anonymous() {
            true => None,
            false => Some(self.users.begin(&user.name).ok_or_else(|| {
                busy("too many requests of this user wait for zones at the moment: ask without timeout")
            })?),
        };
        let place = take(&self.all)?;
        Ok(SyncWait {
            all: Arc::clone(&self.all),
            _place: place,
            _of_stranger: of_stranger,
            _of_user: of_user,
        })
    }
}

impl SyncWait {
    /// How long it rests before it looks again.
    pub(in crate::rest) fn pause(&self) -> Duration {
        let waiting = ALL.saturating_sub(self.all.available_permits());
        REST * u32::try_from(waiting).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn user(name: usize) -> User {
        User::authenticated(name.to_string(), Vec::new())
    }

    #[test]
    fn strangers_have_few_places_and_the_more_wait_the_longer_each_rests() {
        let waits = SyncWaits::default();
        let stranger = User::anonymous();
        let strangers: Vec<SyncWait> =
            (0..STRANGERS).map(|_| waits.begin(&stranger, false).unwrap()).collect();
        assert_eq!(strangers[0].pause(), REST * 32);
        assert!(waits.begin(&stranger, false).is_err());
        let known: Vec<SyncWait> =
            (STRANGERS..ALL).map(|n| waits.begin(&user(n % 8), true).unwrap()).collect();
        assert_eq!(known[0].pause(), REST * 1_024);
        assert!(waits.begin(&user(0), true).is_err());
        drop(strangers);
        assert!(waits.begin(&stranger, false).is_ok());
        drop(known);
        assert!(waits.users.0.lock().unwrap().is_empty(), "nothing is kept of who waits no more");
    }

    #[test]
    fn one_user_takes_the_places_of_nobody_else() {
        let waits = SyncWaits::default();
        let greedy: Vec<SyncWait> = (0..EACH).map(|_| waits.begin(&user(1), true).unwrap()).collect();
        assert!(waits.begin(&user(1), true).is_err());
        assert!(waits.begin(&user(2), true).is_ok());
        drop(greedy);
        assert!(waits.begin(&user(1), true).is_ok());
    }
}
