//! Why a session ended, and what that says about its zone.

use std::time::Duration;

use chrono::{DateTime, Utc};
use common::{
    kds::{apply::ApplyError, serve::Ended},
    store::StoreError,
};
use thiserror::Error;
use tokio::time::Instant;
use tonic::Status;

use super::auth::ZoneAuthError;

/// Why a session ended.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// The zone closed a stream in order.
    #[error("the zone said goodbye")]
    Goodbye,
    /// This process stops.
    #[error("global is shutting down")]
    Stopping,
    /// The replica that followed global makes room for another one of the zone.
    #[error("another replica of the zone takes over")]
    HandedOver,
    /// The connection is gone.
    #[error("{0}")]
    Broken(String),
    /// This side gave a stream up.
    #[error("{0}")]
    Failed(String),
    /// What the zone sent cannot be stored now. More than that is none of its business.
    #[error("the store of global cannot be written")]
    Unwritable,
    /// The zone opened a stream the session had already.
    #[error("a newer session of the zone took over")]
    Replaced,
    /// The zone is on another instance now.
    #[error("the zone connected to another instance of global")]
    Moved,
    /// Zones are shown another history from now on.
    #[error("global goes on in another history")]
    Renewed,
    /// The zone stopped answering.
    #[error("the zone was silent for {0:?}")]
    Silent(Duration),
    /// The zone is not known any more.
    #[error("the zone was deleted on global, with everything it had sent")]
    Deleted,
    /// The zone would not be let in today.
    #[error("{0}")]
    Refused(#[from] ZoneAuthError),
}

impl EndCause {
    /// Why the session ends with a stream of it; `None` is a stream that was cut at shutdown.
    pub(crate) fn of_stream(ended: Option<&Ended>) -> Self {
        match ended {
            // What stops for another cause, stops when that was said.
            None | Some(Ended::Stopped | Ended::Apply(ApplyError::Stopping)) => Self::Stopping,
            Some(Ended::ByPeer) => Self::Goodbye,
            Some(Ended::Apply(
                ApplyError::Store(StoreError::Unwritable(_) | StoreError::Backend { .. })
                | ApplyError::Unseen(_),
            )) => Self::Unwritable,
            Some(Ended::Apply(ApplyError::LostEnd)) => Self::Renewed,
            Some(ended @ Ended::Broken(_)) => Self::Broken(ended.to_string()),
            Some(ended) => Self::Failed(ended.to_string()),
        }
    }

    /// Whether the streams were ended from this side, against the zone's will.
    pub(crate) fn is_ours(&self) -> bool {
        match self {
            Self::Goodbye | Self::Stopping | Self::HandedOver | Self::Broken(_) => false,
            Self::Failed(_)
            | Self::Unwritable
            | Self::Replaced
            | Self::Moved
            | Self::Renewed
            | Self::Silent(_)
            | Self::Deleted
            | Self::Refused(_) => true,
        }
    }

    /// Whether the zone is gone with it. Otherwise it may be back at once, and is given the time.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Goodbye | Self::Silent(_) | Self::Deleted | Self::Refused(_) => true,
            Self::Stopping
            | Self::HandedOver
            | Self::Broken(_)
            | Self::Failed(_)
            | Self::Unwritable
            | Self::Replaced
            | Self::Moved
            | Self::Renewed => false,
        }
    }

    /// Whether the zone did nothing but lose the one it talked to, or changes who talks: it is back in a moment.
    pub(crate) fn leaves_zone_there(&self) -> bool {
        matches!(self, Self::Stopping | Self::HandedOver | Self::Unwritable)
    }

    /// Whether an operator may have to do something.
    pub(crate) fn is_alarming(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Silent(_) | Self::Refused(_))
    }
}

impl From<EndCause> for Status {
    fn from(cause: EndCause) -> Self {
        match cause {
            EndCause::Refused(error) => error.into(),
            EndCause::Stopping | EndCause::Unwritable => Self::unavailable(cause.to_string()),
            // What went wrong there may be none of the zone's business.
            EndCause::Broken(_) | EndCause::Failed(_) => {
                Self::cancelled("another stream of the session ended")
            }
            cause => Self::cancelled(cause.to_string()),
        }
    }
}

/// How and when a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// By the clock that counts durations.
    pub(crate) at: Instant,
    /// Since when the zone is known to be gone, by the clock on the wall.
    pub(crate) since: DateTime<Utc>,
    /// Why.
    pub(crate) cause: EndCause,
}
