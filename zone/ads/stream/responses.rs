//! Responses on their way into the connection. Nothing is encoded before the connection has room for it, and
//! contents are those that everybody shares.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, HeaderValue, Response, header},
};
use bytes::Bytes;
use common::xds::Encoding;
use hyper::body::Frame;
use tonic::Status;

use crate::ads::signals::{Signal, StreamSignals};

/// Bytes handed to the connection at once: what fits into a frame.
const PIECE: usize = 16 << 10;
/// While less than this waits, there is room for another response.
const WAITING: usize = 16 << 10;

/// Where responses are put.
pub(in crate::ads) struct Responses(Arc<ResponsesInner>);

/// Where the connection takes them from.
struct ResponseBody(Arc<ResponsesInner>);

#[derive(Default)]
struct ResponsesInner {
    state: Mutex<ResponseQueue>,
    /// Of the stream that puts them: there is room again, or the connection is gone.
    signals: Arc<StreamSignals>,
}

#[derive(Default)]
struct ResponseQueue {
    queue: VecDeque<Encoding>,
    /// Bytes in the queue.
    waiting: usize,
    /// What the stream ends with once the queue is empty.
    end: Option<Status>,
    /// The end was told.
    is_over: bool,
    /// Nobody takes anything any more.
    is_closed: bool,
    waker: Option<Waker>,
}

impl ResponsesInner {
    fn lock(&self) -> MutexGuard<'_, ResponseQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, put: impl FnOnce(&mut ResponseQueue)) {
        let mut state = self.lock();
        put(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Responses {
    /// A place for responses, and the answer to the call that carries them.
    pub(in crate::ads) fn new() -> (Self, Response<Body>) {
        let shared = Arc::new(ResponsesInner::default());
        let mut response = Response::new(Body::new(ResponseBody(Arc::clone(&shared))));
        let grpc = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(header::CONTENT_TYPE, grpc);
        (Self(shared), response)
    }

    /// Whether another response may be put.
    pub(super) fn has_room(&self) -> bool {
        self.0.lock().waiting < WAITING
    }

    /// Whether nobody takes anything any more.
    pub(super) fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Wakes the stream when there is room again, or nobody takes anything any more.
    pub(super) fn signals(&self) -> &Arc<StreamSignals> {
        &self.0.signals
    }

    /// Puts one response.
    pub(super) fn put(&self, response: Encoding) {
        self.0.put(|state| {
            if !state.is_closed {
                state.waiting += response.left();
                state.queue.push_back(response);
            }
        });
    }

    /// Ends the stream after what was put.
    pub(super) fn end(self, status: Status) {
        self.0.put(|state| state.end = Some(status));
    }
}

impl Drop for Responses {
    fn drop(&mut self) {
        self.0.put(|state| {
            if state.end.is_none() {
                state.end = Some(Status::internal("the stream was given up"));
            }
        });
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut state = self.0.lock();
        if let Some(first) = state.queue.front_mut() {
            let piece = first.piece(PIECE);
            if first.left() == 0 {
                state.queue.pop_front();
            }
            if state.queue.is_empty() {
                // A stream is idle nearly all of its life.
                state.queue = VecDeque::new();
            }
            let had_room = state.waiting < WAITING;
            state.waiting -= piece.len();
            let has_room = state.waiting < WAITING;
            drop(state);
            if has_room && !had_room {
                self.0.signals.raise(Signal::Room);
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if state.is_over {
            return Poll::Ready(None);
        }
        if let Some(status) = state.end.take() {
            state.is_over = true;
            let mut trailers = HeaderMap::new();
            let _no_text_of_ours_is_no_header = status.add_header(&mut trailers);
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_over
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        *state = ResponseQueue { is_closed: true, is_over: true, ..ResponseQueue::default() };
        drop(state);
        self.0.signals.raise(Signal::Room);
    }
}
