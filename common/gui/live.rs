//! Tells open pages that something changed, so that they look again. What it is now, they ask for as before, so nothing
//! goes over a stream that its reader may not see.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::{
    future::select_all,
    stream::{self},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep_until},
};

use super::{Gui, visit::Visit};
use crate::{
    access::User,
    events::{Event, Lost, Subscriber},
};

/// Streams at once.
const ALL: usize = 256;
/// Those of readers nobody vouches for.
const STRANGERS: usize = 32;
/// So long a stream lives; its browser opens the next by itself. Nobody who is unknown may have a connection for longer.
const LIFE: Duration = Duration::from_secs(90);
/// Between two words on one stream.
const PAUSE: Duration = Duration::from_secs(1);
/// Anything may have changed.
const ANYTHING: &str = "*";
/// How zones do, or on a zone global and the proxies.
const ZONES: &str = "zones";

/// Places for streams.
pub(super) struct LiveStreams {
    all: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Default for LiveStreams {
    fn default() -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        Self { all: places(ALL), strangers: places(STRANGERS) }
    }
}

/// One of them, until it is dropped.
struct LivePlace {
    _place: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

impl LiveStreams {
    fn take(&self, is_known: bool) -> Option<LivePlace> {
        let take = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        let of_stranger = if is_known { None } else { Some(take(&self.strangers)?) };
        Some(LivePlace { _place: (take(&self.all)?, of_stranger) })
    }
}

/// Everything that tells of changes which are no resources.
pub(super) struct PageSignals(Vec<watch::Receiver<()>>);

impl PageSignals {
    pub(super) fn of(gui: &Gui) -> Self {
        Self(gui.source.signals())
    }

    /// Resolves when one of them changed; for ever when there are none.
    pub(super) async fn changed(&mut self) {
        loop {
            if self.0.is_empty() {
                return std::future::pending().await;
            }
            let waiting = self.0.iter_mut().map(|signal| Box::pin(signal.changed()));
            let (outcome, which, _) = select_all(waiting).await;
            match outcome {
                Ok(()) => return,
                // Nobody is left to change it.
                Err(_) => drop(self.0.swap_remove(which)),
            }
        }
    }

    fn forget(&mut self) {
        for signal in &mut self.0 {
            signal.mark_unchanged();
        }
    }
}

/// `GET /gui/live`.
pub(super) async fn live(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    let user = visit.asker.user;
    let Some(place) = gui.streams.take(gui.desk.trusts(&user)) else {
        let why = "too many pages are followed at the moment; load it again to see what is new";
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    };
    let now = Instant::now();
    let stream = LiveStream {
        events: gui.bus.subscribe("page"),
        signals: PageSignals::of(&gui),
        end: now + LIFE,
        rests_until: now,
        has_greeted: false,
        gui,
        user,
        _place: place,
    };
    let body = Body::from_stream(stream::unfold(stream, LiveStream::next));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Whoever stands between would otherwise wait for more.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct LiveStream {
    gui: Arc<Gui>,
    user: User,
    events: Subscriber,
    signals: PageSignals,
    end: Instant,
    rests_until: Instant,
    has_greeted: bool,
    _place: LivePlace,
}

impl LiveStream {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if !std::mem::replace(&mut self.has_greeted, true) {
            return Some((Ok(Bytes::from_static(b"retry: 1000\nevent: hello\ndata: hello\n\n")), self));
        }
        let shutdown = self.gui.shutdown.clone();
        let mut about = BTreeSet::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = sleep_until(self.end) => return None,
                event = self.events.next() => self.hear(event, &mut about),
                () = self.signals.changed() => drop(about.insert(ZONES)),
            }
            if about.is_empty() {
                continue;
            }
            // What happens at once is told at once, and what follows together.
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = sleep_until(self.rests_until) => {}
            }
            while let Some(event) = self.events.waiting() {
                self.hear(event, &mut about);
            }
            self.signals.forget();
            self.rests_until = Instant::now() + PAUSE;
            let words: Vec<&str> = about.into_iter().collect();
            let line = format!("data: {}\n\n", words.join(" "));
            return Some((Ok(line.into()), self));
        }
    }

    /// Adds what an event is about, as far as this reader may know.
    fn hear(&self, event: Result<Event, Lost>, about: &mut BTreeSet<&'static str>) {
        match event {
            Err(Lost(_)) | Ok(Event::IndexReplaced { .. }) => drop(about.insert(ANYTHING)),
            Ok(Event::ResourcesChanged(changes)) => {
                let readable = self.gui.desk.readable(&self.user);
                let seen = changes.iter().filter(|change| readable.shows_key(&change.key));
                about.extend(seen.map(|change| change.key.kind.name));
            }
            Ok(_) => drop(about.insert(ZONES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_have_few_places() {
        let streams = LiveStreams::default();
        let strangers: Vec<LivePlace> = (0..STRANGERS).filter_map(|_| streams.take(false)).collect();
        assert!(strangers.len() == STRANGERS && streams.take(false).is_none());
        let known: Vec<LivePlace> = (STRANGERS..ALL).filter_map(|_| streams.take(true)).collect();
        assert!(known.len() == ALL - STRANGERS && streams.take(true).is_none());
        drop(strangers);
        assert!(streams.take(false).is_some());
    }
}
