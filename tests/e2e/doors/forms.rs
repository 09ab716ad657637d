//! Forms of the pages: anybody may send one, and it takes no more room than its bytes.

use futures::future::join_all;
use reqwest::StatusCode;

use super::answers::Peak;
use crate::harness::{Global, http};

/// Forms at once.
const AT_ONCE: usize = 12;

#[tokio::test]
async fn forms_of_strangers_take_no_more_than_they_are_long() {
    let global = Global::start().await;
    let send = async |path: &str, form: String| {
        let request = http::client().post(global.url(path));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        // All that a page of its own would show for it.
        let request = request.header("sec-fetch-site", "same-origin");
        let answer = request.body(form).send().await.map_err(|error| error.to_string())?;
        Ok::<_, String>(answer.status())
    };
    let mut peak = Peak::watch(global.process.id());
    for path in ["/gui/session", "/gui/session/end", "/gui/change", "/gui/zones/zone-1/offer"] {
        for form in ["a&".repeat(2_000_000), "token=a&".repeat(500_000), "%41".repeat(1_000_000)] {
            let sent = join_all((0..AT_ONCE).map(|_| send(path, form.clone()))).await;
            for answer in sent {
                // Where it is not read to its end the connection may be over before the answer is read.
                let Ok(status) = answer else { continue };
                let busy = status == StatusCode::SERVICE_UNAVAILABLE;
                let expected = match path {
                    "/gui/session" => StatusCode::PAYLOAD_TOO_LARGE,
                    // What it says does not matter, so it is not read.
                    "/gui/session/end" => StatusCode::OK,
                    _ => StatusCode::FORBIDDEN,
                };
                assert!(busy || status == expected, "{path}: {status}");
            }
        }
    }
    let answer = send("/gui/session", "token=none".to_owned()).await;
    assert_eq!(answer, Ok(StatusCode::UNAUTHORIZED));
    peak.ends("forms").await;
}
