//! The part of a proxy to which a policy is attached.

use serde_json::{Value, json};

/// The part. Members are in the order in which parts are listed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attachment {
    form: AttachmentForm,
    name: String,
    service: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AttachmentForm {
    Dataplane,
    Inbound,
    Outbound,
    Service,
}

impl Attachment {
    /// The proxy as a whole.
    pub(super) fn dataplane() -> Self {
        Self { form: AttachmentForm::Dataplane, name: String::new(), service: String::new() }
    }

    /// Where it listens, and for which service.
    pub(super) fn inbound(name: String, service: &str) -> Self {
        Self { form: AttachmentForm::Inbound, name, service: service.to_owned() }
    }

    /// Where its workload calls, and which service.
    pub(super) fn outbound(name: String, service: &str) -> Self {
        Self { form: AttachmentForm::Outbound, name, service: service.to_owned() }
    }

    /// A service it calls.
    pub(super) fn service(service: &str) -> Self {
        Self { form: AttachmentForm::Service, name: service.to_owned(), service: service.to_owned() }
    }

    pub(super) fn shown(&self) -> Value {
        let form = match self.form {
            AttachmentForm::Dataplane => "dataplane",
            AttachmentForm::Inbound => "inbound",
            AttachmentForm::Outbound => "outbound",
            AttachmentForm::Service => "service",
        };
        json!({"type": form, "name": self.name, "service": self.service})
    }
}
