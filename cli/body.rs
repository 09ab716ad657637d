//! Bodies of answers, up to what this side has room for: whoever answers need not be a control plane.

use reqwest::Response;
use thiserror::Error;

/// Longest answer in bytes: what a control plane makes at once is shorter.
pub(crate) const LONGEST: usize = 128 << 20;
/// All pages of a list together.
pub(crate) const LONGEST_LIST: usize = 512 << 20;

/// Why there is no body.
#[derive(Debug, Error)]
pub(crate) enum NoBody {
    /// It does not end where it should have.
    #[error("the answer is longer than {} MiB, which no control plane sends", .0 >> 20)]
    TooLong(usize),
    /// The connection broke.
    #[error(transparent)]
    Broken(#[from] reqwest::Error),
}

/// The text of an answer of at most `longest` bytes.
pub(crate) async fn text(mut answer: Response, longest: usize) -> Result<String, NoBody> {
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await? {
        if body.len().saturating_add(part.len()) > longest {
            return Err(NoBody::TooLong(longest));
        }
        body.extend_from_slice(&part);
    }
    Ok(String::from_utf8(body).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    fn answer(parts: usize) -> Response {
        let part = |_| Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 1000])));
        let body = StreamBody::new(futures::stream::iter((0..parts).map(part)));
        http::Response::new(reqwest::Body::wrap(body)).into()
    }

    #[tokio::test]
    async fn an_answer_without_end_is_given_up() {
        assert_eq!(text(answer(3), 3000).await.unwrap().len(), 3000);
        assert!(matches!(text(answer(usize::MAX), 3000).await, Err(NoBody::TooLong(3000))));
    }
}
