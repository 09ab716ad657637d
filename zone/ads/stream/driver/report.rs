//! What a stream says about itself when somebody asks.

use std::sync::Arc;

use common::xds::{Dialect, Interest, Standing, Want};

use super::Driver;
use crate::{
    ads::{
        inquiry::{InquiryScope, ResourceReport, StreamReport, TypeReport},
        stream::Wire,
    },
    generator::type_url,
};

impl<D: Wire> Driver<'_, D> {
    /// Answers those who asked.
    pub(super) fn report(&self) {
        for (scope, asked) in self.session.seat.inquiries.take() {
            // Who asked may have gone.
            let _gone = asked.send(self.reported(scope));
        }
    }

    fn reported(&self, scope: InquiryScope) -> StreamReport {
        let asked_for = type_url::ALL.into_iter();
        let asked_for = asked_for.filter_map(|type_url| Some((type_url, self.source.interest(type_url)?)));
        let types = asked_for.map(|(type_url, interest)| self.of_type(type_url, interest.clone(), scope));
        StreamReport { types: types.collect() }
    }

    fn of_type(&self, type_url: &'static str, interest: Interest, scope: InquiryScope) -> TypeReport {
        let mut resources = Vec::new();
        if scope == InquiryScope::Resources
            && let Some(all) = self.served.collection(type_url)
        {
            all.each(&mut |wanted| {
                let standing = self.source.standing(type_url, &wanted.name, wanted.version);
                let refusal = self.refusals.reason(type_url, &wanted.name).map(Arc::clone);
                let refusal = refusal.filter(|_| standing == Standing::Refused);
                resources.push(ResourceReport { wanted, standing, refusal });
            });
        }
        // In the incremental form each resource has a version of its own.
        let versioned = !<D as Dialect>::RESPONSE.named;
        let version = versioned.then(|| self.session.version(type_url));
        TypeReport { type_url, version, interest, resources }
    }
}
