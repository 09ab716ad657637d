//! What a stream says about itself when somebody asks.

use std::sync::Arc;

use common::xds::{Dialect, Standing, Want};

use super::Driver;
use crate::{
    ads::{
        inquiry::{ResourceReport, StreamReport, TypeReport},
        stream::Wire,
    },
    generator::type_url,
};

impl<D: Wire> Driver<'_, D> {
    /// Answers those who asked.
    pub(super) fn report(&self) {
        for asked in self.session.seat.inquiries.take() {
            // Who asked may have gone.
            let _gone = asked.send(self.reported());
        }
    }

    fn reported(&self) -> StreamReport {
        let asked_for = type_url::ALL.into_iter().filter(|type_url| self.source.is_asked_for(type_url));
        StreamReport { types: asked_for.map(|type_url| self.of_type(type_url)).collect() }
    }

    fn of_type(&self, type_url: &'static str) -> TypeReport {
        let mut resources = Vec::new();
        if let Some(all) = self.served.collection(type_url) {
            all.each(&mut |wanted| {
                let standing = self.source.standing(type_url, &wanted.name, wanted.version);
                let refusal = self.refusals.reason(type_url, &wanted.name).map(Arc::clone);
                let refusal = refusal.filter(|_| standing == Standing::Refused);
                resources.push(ResourceReport { wanted, standing, refusal });
            });
        }
        // In the incremental form each resource has a version of its own.
        let versioned = !<D as Dialect>::RESPONSE.named;
        TypeReport { type_url, version: versioned.then(|| self.session.version(type_url)), resources }
    }
}
