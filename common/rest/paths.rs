//! Paths as they are asked for.

use axum::{extract::Request, http::Uri};

/// The index of looks inside a zone is asked for with a slash at its end, and is no other page.
const WITH_SLASH: &str = "/debug/";

/// The same request without slashes at the end of its path: Kuma's routes are found with them and without.
pub(super) fn trimmed(mut request: Request) -> Request {
    if let Some(uri) = shorter(request.uri()) {
        *request.uri_mut() = uri;
    }
    request
}

fn shorter(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    let short = path.trim_end_matches('/');
    if short.len() == path.len() || short.is_empty() || path == WITH_SLASH {
        return None;
    }
    let text = match uri.query() {
        Some(query) => format!("{short}?{query}"),
        None => short.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(text.parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_at_the_end_of_a_path_say_nothing() {
        let check = |asked: &str, expected: Option<&str>| {
            let uri = shorter(&asked.parse().unwrap());
            assert_eq!(uri.map(|uri| uri.to_string()).as_deref(), expected, "{asked}");
        };
        check("/", None);
        check("//", None);
        check("/meshes", None);
        check("/meshes?offset=/", None);
        check("/meshes/", Some("/meshes"));
        check("/meshes//?size=1", Some("/meshes?size=1"));
        check("http://cp.example:5681/meshes/default/", Some("http://cp.example:5681/meshes/default"));
        check("/debug/", None);
    }
}
