//! How long a form may be.

use super::*;

#[tokio::test]
async fn a_form_without_documents_is_short() {
    let api = global().await;
    let ann = signed_in(&api, &[]).await;
    let long = format!("do=preview&documents={}", "%23".repeat(100_000));
    let fits = format!("do=preview&documents={}", "%23".repeat(1_000));
    let admin = signed_in(&api, &["mesh-system:admin"]).await;
    let (ann, admin, long, fits) = (ann.as_str(), admin.as_str(), long.as_str(), fits.as_str());
    for (path, cookie, form, expected) in [
        ("/gui/session", "", long, 413),
        ("/gui/session", ann, long, 413),
        ("/gui/session", "", fits, 401),
        ("/gui/zones/east/offer", admin, long, 413),
        ("/gui/change", "", fits, 403),
        // There is nothing in it but a comment.
        ("/gui/change", ann, long, 400),
    ] {
        let (parts, body) = send(&api, path, cookie, form, OWN).await;
        assert_eq!(parts.status.as_u16(), expected, "{path} with {} bytes: {body}", form.len());
    }
}
