//! Questions about Envoys on their way to the stream on which a zone is asked.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use common::{envoy_admin::AskError, kds::reverse::Call};
use tokio::sync::{mpsc, oneshot};

/// Questions a zone may owe the answer to, per stream.
pub(super) const OWED: usize = 64;

/// How long a zone may take. Zones give up before.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A question, and who waits for the answer.
pub(crate) struct Question {
    /// Whose Envoy it is about.
    pub(super) zone: Arc<str>,
    pub(super) call: Call,
    pub(super) reply: oneshot::Sender<Result<Bytes, AskError>>,
}

/// Where questions for one stream of a zone go in.
pub(crate) type QuestionSender = mpsc::Sender<Question>;

/// Which sender it was, without keeping it open.
pub(crate) type FormerSender = mpsc::WeakSender<Question>;

/// Where questions go in, and where the stream takes them.
pub(super) fn channel() -> (QuestionSender, mpsc::Receiver<Question>) {
    mpsc::channel(OWED)
}
