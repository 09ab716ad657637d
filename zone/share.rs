//! How much of what one origin brings is taken over: it pays with its own share, and no other does.

use std::collections::BTreeMap;

use common::{metering, model::kinds::mesh_service::MeshService};

/// Services of one other zone that get virtual addresses here, of each form; and that one ingress is believed to offer.
pub(crate) const SERVICES_OF_ZONE: usize = 10_000;
/// Services of this zone that proxies with one token bring along.
pub(crate) const SERVICES_OF_ACCOUNT: usize = SERVICES_OF_ZONE / 2;
/// Bytes that the services of one other zone, and of proxies with one token, take where the addresses of those that are known
/// by their tags are kept, in one resource for all of a mesh.
pub(crate) const ADDRESS_BYTES_OF_ZONE: usize = 3 * 1024 * 1024;
pub(crate) const ADDRESS_BYTES_OF_ACCOUNT: usize = ADDRESS_BYTES_OF_ZONE / 2;

/// Services of one other zone that one service of several zones is made of.
pub(crate) const PARTS_OF_ZONE: usize = 100;

/// Addresses at which one other zone is reached. Each of its services has an endpoint here for each of them.
pub(crate) const DOORS_OF_ZONE: usize = 64;

/// Tag sets that all ingresses of one other zone offer in a mesh, each counted once for every ingress, and their bytes: as much
/// as four ingresses that offer all they can. Each makes an endpoint.
pub(crate) const OFFERS_OF_ZONE: usize = 4 * SERVICES_OF_ZONE;
pub(crate) const OFFERED_BYTES_OF_ZONE: usize = 16 * 1024 * 1024;

/// Endpoints of one service in one other zone, and bytes of their tags. Its ingresses share them evenly, and every client of the
/// service gets them.
pub(crate) const ENDPOINTS_OF_SERVICE: usize = 16 * DOORS_OF_ZONE;
pub(crate) const ENDPOINT_BYTES_OF_SERVICE: usize = 1024 * 1024;

/// Ports by which one service of another zone is called. Where traffic is redirected, each proxy listens for each of them.
pub(crate) const PORTS_OF_SERVICE: usize = 64;
/// And by which all services of one other zone are called that get virtual addresses here.
pub(crate) const PORTS_OF_ZONE: usize = 2 * SERVICES_OF_ZONE;

/// Names by which the proxies of one service of another zone are believed, and bytes of each: as long as a SPIFFE id may be.
pub(crate) const IDENTITIES_OF_SERVICE: usize = 100;
pub(crate) const LONGEST_IDENTITY: usize = 2048;

/// Names by which the parts of one other zone in one service of several zones are believed together, two for each part, and
/// bytes of them: they are in the cluster of whoever calls it.
pub(crate) const IDENTITIES_OF_PARTS: usize = 2 * PARTS_OF_ZONE;
pub(crate) const IDENTITY_BYTES_OF_PARTS: usize = 64 * 1024;

/// Bytes of certificates that one other zone is believed by in one mesh. All of its proxies are sent them.
pub(crate) const ROOTS_OF_ZONE: usize = 64 * 1024;

/// What one origin brings, each thing once however often it comes: so much of it is taken, by number and by bytes, and the
/// rest waits, in order, until something of it goes.
#[derive(Debug)]
pub(crate) struct FairShare<K> {
    most: usize,
    most_bytes: usize,
    /// Bytes of one thing, far fewer than all may have: one that never fits would let nothing behind it in.
    weigh: fn(&K) -> usize,
    bytes: usize,
    taken: BTreeMap<K, usize>,
    beyond: BTreeMap<K, usize>,
}

/// What becomes of the share when something goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Vacated<K> {
    /// Whether what went was taken, and is not any more.
    pub(crate) let_go: bool,
    /// What is taken now in its place.
    pub(crate) follows: Vec<K>,
}

impl<K: Ord + Clone> FairShare<K> {
    /// Nothing came so far; so much will be taken at most.
    pub(crate) fn new(most: usize) -> Self {
        Self::within(most, usize::MAX, |_| 0)
    }

    /// The same, and of no more bytes than these together.
    pub(crate) fn within(most: usize, most_bytes: usize, weigh: fn(&K) -> usize) -> Self {
        Self { most, most_bytes, weigh, bytes: 0, taken: BTreeMap::new(), beyond: BTreeMap::new() }
    }

    fn has_room_for(&self, thing: &K) -> bool {
        self.taken.len() < self.most && self.bytes + (self.weigh)(thing) <= self.most_bytes
    }

    /// One more of these comes; says whether it is taken from now on and was not so far.
    pub(crate) fn add(&mut self, thing: &K) -> bool {
        if let Some(count) = self.taken.get_mut(thing).or_else(|| self.beyond.get_mut(thing)) {
            *count += 1;
            return false;
        }
        let is_room = self.has_room_for(thing);
        if is_room {
            self.bytes += (self.weigh)(thing);
        }
        let side = if is_room { &mut self.taken } else { &mut self.beyond };
        *side.entry(thing.clone()).or_default() += 1;
        is_room
    }

    /// One of these goes.
    pub(crate) fn remove(&mut self, thing: &K) -> Vacated<K> {
        let was_taken = self.taken.contains_key(thing);
        let side = if was_taken { &mut self.taken } else { &mut self.beyond };
        let is_last = side.get(thing).is_some_and(|count| *count <= 1);
        if is_last {
            side.remove(thing);
        } else if let Some(count) = side.get_mut(thing) {
            *count -= 1;
        }
        let let_go = was_taken && is_last;
        if let_go {
            self.bytes -= (self.weigh)(thing);
        }
        // What waits may also have waited for one before it that waits no more.
        let follows = if is_last { self.let_in() } else { Vec::new() };
        Vacated { let_go, follows }
    }

    /// Takes what waits, as far as there is room for the first of it.
    fn let_in(&mut self) -> Vec<K> {
        let mut follows = Vec::new();
        while self.beyond.first_key_value().is_some_and(|(first, _)| self.has_room_for(first)) {
            let Some((thing, count)) = self.beyond.pop_first() else { break };
            self.bytes += (self.weigh)(&thing);
            self.taken.insert(thing.clone(), count);
            follows.push(thing);
        }
        follows
    }

    /// How much is not taken.
    pub(crate) fn beyond(&self) -> usize {
        self.beyond.len()
    }

    /// Whether nothing is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.beyond.is_empty()
    }
}

/// How much the identities are by which the proxies of a service of another zone are believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdentitySize {
    number: usize,
    bytes: usize,
}

impl IdentitySize {
    /// Those of one service.
    pub(crate) fn of(service: &MeshService) -> Self {
        let values = service.identities.iter().map(|identity| identity.value.len());
        let believed = values.filter(|bytes| *bytes <= LONGEST_IDENTITY).take(IDENTITIES_OF_SERVICE);
        believed.fold(Self::default(), |all, bytes| Self { number: all.number + 1, bytes: all.bytes + bytes })
    }
}

/// What one other zone may be of one service of several zones: its first services by name, as far as their identities are not
/// too much together.
#[derive(Debug, Default)]
pub(crate) struct PartsShare {
    seen: usize,
    taken: IdentitySize,
}

impl PartsShare {
    /// Whether the next service, with so much of identities, is a part. One that is too large leaves room to others.
    pub(crate) fn takes(&mut self, size: IdentitySize) -> bool {
        self.seen += 1;
        let (number, bytes) = (self.taken.number + size.number, self.taken.bytes + size.bytes);
        let fits = number <= IDENTITIES_OF_PARTS && bytes <= IDENTITY_BYTES_OF_PARTS;
        if self.seen > PARTS_OF_ZONE || !fits {
            return false;
        }
        self.taken = IdentitySize { number, bytes };
        true
    }
}

/// Notes how many services of a zone have no address here.
pub(crate) fn note_left_out(zone: &str, form: &'static str, beyond: usize) {
    let beyond = f64::from(u32::try_from(beyond).unwrap_or(u32::MAX));
    metrics::gauge!("foreign_services_left_out", "zone_name" => metering::zone(zone), "form" => form)
        .set(beyond);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_their_identities() {
        let size = |number: usize, bytes: usize| IdentitySize { number, bytes };
        let mut two_each = PartsShare::default();
        assert!((0..PARTS_OF_ZONE).all(|_| two_each.takes(size(2, 200))));
        assert!(!two_each.takes(size(0, 0)));
        let mut large = PartsShare::default();
        assert!(
            !large.takes(size(1, IDENTITY_BYTES_OF_PARTS + 1))
                && !large.takes(size(IDENTITIES_OF_PARTS + 1, 1))
        );
        assert!(large.takes(size(1, IDENTITY_BYTES_OF_PARTS)) && !large.takes(size(1, 1)));
    }

    #[test]
    fn what_is_beyond_waits_for_room() {
        let mut share = FairShare::new(2);
        assert!(share.add(&"c") && share.add(&"a"));
        assert!(!share.add(&"a") && !share.add(&"z") && !share.add(&"b") && !share.add(&"b"));
        assert_eq!(share.beyond(), 2);
        let nothing = || Vacated { let_go: false, follows: vec![] };
        assert_eq!(share.remove(&"a"), nothing());
        assert_eq!(share.remove(&"z"), nothing());
        assert_eq!(share.remove(&"unknown"), nothing());
        assert_eq!(share.remove(&"a"), Vacated { let_go: true, follows: vec!["b"] });
        assert_eq!(share.remove(&"b"), nothing());
        assert_eq!(share.remove(&"b"), Vacated { let_go: true, follows: vec![] });
        assert_eq!(share.remove(&"c"), Vacated { let_go: true, follows: vec![] });
        assert!(share.is_empty());
    }

    #[test]
    fn what_is_long_takes_the_room_of_several() {
        let mut share = FairShare::within(3, 10, |text: &&str| text.len());
        assert!(share.add(&"aaaaaa") && share.add(&"bbb"), "9 of 10");
        assert!(!share.add(&"cc") && !share.add(&"dddd") && !share.add(&"cc"));
        assert!(share.add(&"e"), "there is room for one");
        assert_eq!(
            share.remove(&"e"),
            Vacated { let_go: true, follows: vec![] },
            "none for the first that waits"
        );
        assert_eq!(share.remove(&"aaaaaa"), Vacated { let_go: true, follows: vec!["cc", "dddd"] });
        assert!(!share.add(&"f"), "they are three");
        assert_eq!(share.remove(&"cc"), Vacated { let_go: false, follows: vec![] }, "it came twice");
        assert_eq!(share.remove(&"cc"), Vacated { let_go: true, follows: vec!["f"] });
        assert!(!share.add(&"gggg") && !share.add(&"h"));
        assert_eq!(share.remove(&"f"), Vacated { let_go: true, follows: vec![] }, "7 and 4 are too much");
        assert_eq!(
            share.remove(&"gggg"),
            Vacated { let_go: false, follows: vec!["h"] },
            "it held the next one up"
        );
        for left in ["bbb", "dddd", "h"] {
            assert!(share.remove(&left).let_go);
        }
        assert!(share.is_empty() && share.bytes == 0);
    }
}
