//! The text of all metrics, made once for everybody who asks for it at the same time.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{sync::Mutex, time::Instant};

use crate::{runtime::Offload, telemetry::Metrics};

/// Makes the text.
type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// What those who ask for the metrics share.
pub(super) struct Scrapes {
    render: Render,
    offload: Offload,
    /// The last text, with the time at which it was begun; who makes it holds this.
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl Scrapes {
    /// Of these; nothing where nobody measures.
    pub(super) fn of(metrics: Option<Metrics>) -> Self {
        Self::rendered(Arc::new(move || metrics.as_ref().map(Metrics::render).unwrap_or_default()))
    }

    fn rendered(render: Render) -> Self {
        Self { render, offload: Offload::default(), last: Mutex::new(None) }
    }

    /// The text, with everything that was counted before this was called.
    pub(super) async fn text(&self) -> Bytes {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((_, text)) = last.as_ref().filter(|(begun, _)| *begun > asked) {
            return text.clone();
        }
        let (begun, render) = (Instant::now(), Arc::clone(&self.render));
        let text = self.offload.long(move || Bytes::from(render().into_bytes().into_boxed_slice())).await;
        *last = Some((begun, text.clone()));
        text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{future::join_all, poll};

    use super::*;

    #[tokio::test]
    async fn who_asks_at_the_same_time_shares_a_text_and_nobody_gets_an_older_one() {
        let made = Arc::new(AtomicUsize::new(0));
        let scrapes = Scrapes::rendered({
            let made = Arc::clone(&made);
            Arc::new(move || made.fetch_add(1, Ordering::Relaxed).to_string())
        });
        let mut first = Box::pin(scrapes.text());
        assert!(poll!(&mut first).is_pending());
        let mut others = Box::pin(join_all((0..100).map(|_| scrapes.text())));
        assert!(poll!(&mut others).is_pending(), "the first was begun before they asked");
        assert_eq!(first.await, "0");
        let others = others.await;
        assert!(others.iter().all(|text| text == "1" && text.as_ptr() == others[0].as_ptr()));
        assert_eq!(scrapes.text().await, "2");
    }
}
