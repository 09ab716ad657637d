//! The client of a request, as its handler sees it.

use std::{
    convert::Infallible,
    net::IpAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{extract::FromRequestParts, http::request::Parts};

use super::{
    completion::{Completion, Unattended},
    connections::Seat,
    guest::Parked,
    turns::{Crowded, FairTurn, SharedTurn, network},
};

/// The client of a connection, an extension of every request: a handler that has checked who the client is
/// says so, and its connection may live as long as it likes.
#[derive(Clone, Default)]
pub struct Client {
    seat: Weak<Seat>,
    /// The turn in which everything for one answer is made.
    shared: Option<SharedTurn>,
}

impl Client {
    /// Who has this seat, as long as it has it.
    pub(super) fn at(seat: &Arc<Seat>) -> Self {
        Self { seat: Arc::downgrade(seat), shared: None }
    }

    /// The client has shown that it is `name`; by `credential`, where others may show that as well.
    pub fn vouch(&self, name: &str, credential: Option<&str>) {
        if let Some(seat) = self.seat.upgrade() {
            seat.vouch(name, credential);
        }
    }

    /// Whether the client has shown who it is.
    pub fn is_known(&self) -> bool {
        self.seat.upgrade().is_none_or(|seat| seat.is_known())
    }

    /// Where the client is, as it is counted: at its address, or with IPv6 in its network. `None` where no server counts.
    pub fn network(&self) -> Option<IpAddr> {
        self.seat.upgrade().map(|seat| network(seat.guest.peer().ip()))
    }

    /// Begins one of the long exchanges of this client. One that has not shown who it is may have `most`
    /// at once: they cost more than the connection they share.
    pub fn knock(&self, most: usize) -> Option<Knock> {
        let Some(seat) = self.seat.upgrade().filter(|seat| !seat.is_known()) else {
            return Some(Knock(None));
        };
        let counted = &seat.knocks;
        let more = |held: usize| (held < most).then_some(held + 1);
        counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Knock(Some(Arc::clone(counted))))
    }

    /// From now on this exchange waits for what others do, such as for news, until what is returned is dropped. Where
    /// places are short, its connection makes way for clients something is done for.
    pub fn park(&self) -> Parked {
        self.seat.upgrade().map_or_else(Parked::default, |seat| seat.guest.park())
    }

    /// Waits for leave to make a large answer, which [goes along](FairTurn::made) with it until it is counted.
    /// There is always leave where no server counts.
    ///
    /// # Errors
    /// When too many are asked for, or the client is not there any more.
    pub async fn turn(&self) -> Result<FairTurn, Crowded> {
        match &self.shared {
            None => self.own_turn().await,
            Some(shared) => shared.get_or_take(self.own_turn()).await,
        }
    }

    /// From now on all that is made for this request is made in one turn: that of the first large part.
    pub fn share(&mut self, turn: SharedTurn) {
        self.shared = Some(turn);
    }

    async fn own_turn(&self) -> Result<FairTurn, Crowded> {
        if self.seat.ptr_eq(&Weak::new()) {
            return Ok(FairTurn::default());
        }
        let (connections, guest) = {
            // The seat itself would keep its place as long as this waits.
            let seat = self.seat.upgrade().ok_or(Crowded)?;
            (Arc::clone(seat.connections()), Arc::clone(&seat.guest))
        };
        connections.turn(&guest).await
    }

    /// Waits for leave to do what this client asks for to its end, also when he hangs up meanwhile. Where no server
    /// counts there is always leave, but only as long as somebody waits.
    ///
    /// # Errors
    /// When too much that was asked for from his address goes on like that.
    pub async fn completion(&self) -> Result<Completion, Unattended> {
        if self.seat.ptr_eq(&Weak::new()) {
            return Ok(Completion::default());
        }
        let (connections, at) = {
            // The seat itself would keep its place as long as this waits.
            let seat = self.seat.upgrade().ok_or(Unattended)?;
            (Arc::clone(seat.connections()), seat.guest.peer().ip())
        };
        connections.work().admit(at).await
    }
}

/// The client of a request; of one that came through no server, nobody in particular.
impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// One of the few long exchanges of a client that was unknown when it began; it counts until it is dropped.
pub struct Knock(Option<Arc<AtomicUsize>>);

impl Drop for Knock {
    fn drop(&mut self) {
        if let Some(counted) = &self.0 {
            counted.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
