//! Which resources are kept encoded. Nothing else keeps them: what no client is to have any more is gone.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use axum::response::Response;
use common::rest::ApiError;
use serde_json::json;

use super::{
    answer::{AnswerRoom, RedactedDocument},
    request::DebugRequest,
};
use crate::{
    ads::proxies::ProxyView,
    generator::{Encoded, OfType, type_url},
};

pub(super) async fn cachez(request: DebugRequest) -> Result<Response, ApiError> {
    if request.query.clear {
        return Err(ApiError::bad_request(
            "nothing is cleared: a resource is kept as long as a proxy is to have it, and made again when it differs",
        ));
    }
    let clients = request.clients();
    let sizes = request.query.sizes;
    let make = move |space: &mut AnswerRoom| if sizes { bytes(&clients) } else { names(&clients, space) };
    request.answer(make).await
}

/// Each encoded resource once, however many clients have it.
fn each(clients: &[ProxyView], visit: &mut dyn FnMut(&Encoded)) {
    // Clients share what they have alike; what is kept is not moved meanwhile.
    let (mut seen, mut counted): (HashSet<*const OfType>, HashSet<*const Encoded>) = Default::default();
    for config in clients.iter().filter_map(|client| client.config.as_ref()) {
        for type_url in type_url::ALL {
            let of_type = config.resources().collection(type_url);
            if !seen.insert(Arc::as_ptr(&of_type)) {
                continue;
            }
            for (_, resource) in of_type.stored() {
                if counted.insert(Arc::as_ptr(resource)) {
                    visit(resource);
                }
            }
        }
    }
}

fn names(clients: &[ProxyView], space: &mut AnswerRoom) -> Result<RedactedDocument, ApiError> {
    let mut names: BTreeMap<String, BTreeSet<Arc<str>>> = BTreeMap::new();
    each(clients, &mut |resource| {
        names.entry(resource.type_url.to_owned()).or_default().insert(Arc::clone(&resource.name));
    });
    let bytes = names.values().flatten().map(|name| name.len() + 4).sum();
    space.take(bytes)?;
    let lists = names.into_iter().map(|(type_url, names)| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        (type_url, names)
    });
    Ok(RedactedDocument::assembled(RedactedDocument::by_type(lists.collect())))
}

fn bytes(clients: &[ProxyView]) -> Result<RedactedDocument, ApiError> {
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    each(clients, &mut |resource| {
        *sizes.entry(resource.type_url.to_owned()).or_default() += resource.value.len();
    });
    let total: usize = sizes.values().sum();
    let sizes = RedactedDocument::by_type(sizes);
    Ok(RedactedDocument::assembled(json!({ "sizes": sizes, "total": total })))
}
