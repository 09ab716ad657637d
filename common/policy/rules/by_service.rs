//! Which of many groups can have something of a service: those confined to it and those confined to none.

use std::collections::HashMap;

use super::Subset;

/// Positions in a list of groups, by the service each is confined to.
#[derive(Clone, Debug, Default)]
pub(super) struct ByService {
    confined: HashMap<String, Vec<usize>>,
    rest: Vec<usize>,
}

impl ByService {
    /// Of these groups, in this order.
    pub(super) fn of<'a>(subsets: impl IntoIterator<Item = &'a Subset>) -> Self {
        let mut index = Self::default();
        for (position, subset) in subsets.into_iter().enumerate() {
            match subset.service() {
                Some(service) => match index.confined.get_mut(service) {
                    Some(positions) => positions.push(position),
                    None => drop(index.confined.insert(service.to_owned(), vec![position])),
                },
                None => index.rest.push(position),
            }
        }
        index
    }

    /// Positions of the groups confined to `service` and of those confined to none, in order.
    pub(super) fn near(&self, service: Option<&str>) -> impl Iterator<Item = usize> + '_ {
        let confined = service.and_then(|service| self.confined.get(service));
        let mut confined = confined.into_iter().flatten().copied().peekable();
        let mut rest = self.rest.iter().copied().peekable();
        std::iter::from_fn(move || match (confined.peek(), rest.peek()) {
            (Some(a), Some(b)) if a > b => rest.next(),
            (Some(_), _) => confined.next(),
            (None, _) => rest.next(),
        })
    }
}
