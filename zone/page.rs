//! What a zone tells its page: when its link to global or its proxies are looked at again, and how far it is behind.

use std::sync::Arc;

use common::{
    gui::{Lag, PageSource},
    rest::ProxyProgressSource,
    store::index::Index,
};
use tokio::sync::watch;

use crate::{ads::convergence::Convergence, kds::Link};

/// The other side of the link, in the page.
const GLOBAL: &str = "global";

/// The link, where the zone follows a global, and the proxies.
pub(crate) struct LinkSeen {
    pub(crate) link: Option<Link>,
    pub(crate) proxies: Arc<Convergence>,
}

impl PageSource for LinkSeen {
    fn signals(&self) -> Vec<watch::Receiver<()>> {
        let link = self.link.iter().map(Link::changed);
        link.chain([self.proxies.progressed()]).collect()
    }

    fn lags(&self, _index: &Index) -> Vec<Lag> {
        let lag = |link: &Link| {
            let status = link.status();
            Lag { peer: GLOBAL.to_owned(), down: status.down.lag, up: status.up.lag }
        };
        self.link.iter().map(lag).collect()
    }
}
