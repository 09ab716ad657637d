//! Whether the index shows what is stored.

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    diagnostics::{Pending, Readiness},
    store::{Revision, index::IndexReader},
};

/// Longer than it takes to notice that a connection is silent, and to read on another one.
const BEHIND: Duration = Duration::from_secs(30);
/// How often it is looked.
const LOOK: Duration = Duration::from_secs(5);

/// Not ready while there is more in the store than the index shows, and it could not be read for long. That the head is
/// ahead says nothing alone: it is a hint, and a store that went back in time is behind it.
pub(super) async fn tell(
    head: watch::Receiver<Revision>,
    index: IndexReader,
    last_read: watch::Receiver<Instant>,
    readiness: Readiness,
) -> Infallible {
    let mut told: Option<Pending> = None;
    loop {
        let (stored, shown) = (*head.borrow(), index.current().revision);
        let unread = last_read.borrow().elapsed();
        if stored <= shown || unread < BEHIND {
            told = None;
        } else if told.is_none() {
            let seconds = unread.as_secs();
            let why = format!(
                "the store is at revision {stored}, what is shown at {shown}, and it could not be read for {seconds} s"
            );
            tracing::warn!(stored, shown, seconds, "the index is behind the store, which cannot be read");
            told = Some(readiness.failing("index", Arc::from(why)));
        }
        sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use uuid::Uuid;

    use super::*;
    use crate::{
        runtime::Env,
        store::{StoreIdentity, index::Index},
    };

    #[tokio::test(start_paused = true)]
    async fn an_index_that_cannot_follow_is_not_ready() {
        let readiness = Readiness::new(Env::system("test").clock);
        let (head, last_read) = (watch::Sender::new(1), watch::Sender::new(Instant::now()));
        let index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
        let index = watch::Sender::new(Arc::new(index));
        let reader = IndexReader::new(index.subscribe());
        let telling = tell(head.subscribe(), reader, last_read.subscribe(), readiness.clone());
        let looking = async {
            let ready = || readiness.missing().is_empty();
            sleep(BEHIND - LOOK).await;
            assert!(ready(), "the head is only a hint");
            sleep(3 * LOOK).await;
            assert!(readiness.missing()["index"].as_ref().unwrap().contains("revision 1"));
            last_read.send_replace(Instant::now());
            sleep(2 * LOOK).await;
            assert!(ready(), "it was read to its end");
            sleep(2 * BEHIND).await;
            assert!(!ready());
            index.send_modify(|index| Arc::make_mut(index).revision = 1);
            sleep(2 * LOOK).await;
            assert!(ready(), "there is nothing more");
        };
        tokio::select! { never = telling => match never {}, () = looking => {} }
    }
}
