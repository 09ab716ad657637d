//! Questions from outside to a stream, which alone knows what its proxy holds.
//!
//! Nothing of the answer is kept anywhere: it is made when somebody asks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::xds::{Interest, Standing, Wanted};
use tokio::sync::oneshot;

/// Where questions to one stream wait.
#[derive(Debug, Default)]
pub struct Inquiries {
    /// `None` while nobody answers.
    waiting: Mutex<Option<Vec<OpenInquiry>>>,
}

/// What is asked, and where the answer goes.
type OpenInquiry = (InquiryScope, oneshot::Sender<StreamReport>);

/// How much a stream is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InquiryScope {
    /// What its proxy asked for.
    Interests,
    /// The same, with all that its proxy should have of it.
    Resources,
}

/// What a stream says about the types its proxy asked for.
#[derive(Debug, Default)]
pub struct StreamReport {
    /// In the order they are sent in.
    pub types: Vec<TypeReport>,
}

/// What a stream says about one type.
#[derive(Debug)]
pub struct TypeReport {
    /// Which type.
    pub type_url: &'static str,
    /// Version of the last response, where the protocol has such a thing.
    pub version: Option<String>,
    /// Which resources of it the proxy asked for.
    pub interest: Interest,
    /// What the proxy should have of it, where that was the question.
    pub resources: Vec<ResourceReport>,
}

/// What a stream says about one resource.
#[derive(Debug)]
pub struct ResourceReport {
    /// As it should be.
    pub wanted: Wanted,
    /// How far the proxy is with that.
    pub standing: Standing,
    /// Why it refuses it, in its words.
    pub refusal: Option<Arc<str>>,
}

impl Inquiries {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<OpenInquiry>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on somebody answers.
    pub fn open(&self) {
        self.lock().get_or_insert_default();
    }

    /// From now on nobody does; whoever waits is told so.
    pub fn close(&self) {
        *self.lock() = None;
    }

    /// Asks; `None` where nobody answers.
    pub fn ask(&self, scope: InquiryScope) -> Option<oneshot::Receiver<StreamReport>> {
        let (sender, receiver) = oneshot::channel();
        self.lock().as_mut()?.push((scope, sender));
        Some(receiver)
    }

    /// What is asked, and who waits for an answer.
    pub(super) fn take(&self) -> Vec<OpenInquiry> {
        self.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }
}
