//! One relay follows: everything it lacks at once, then what changes, one state under way at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use common::{
    kds::{
        headers::Upstream,
        outgoing::{ChangedNames, OutgoingResource, OutgoingResources, SharedOutgoing},
        serve::Ended,
    },
    model::Origin,
    proto::{
        google::protobuf::Any,
        strait::relay::v1alpha1::{RelayFollowRequest, RelayFollowResponse, RelayHeld, RelayResource},
    },
    registry,
    store::{StoreIdentity, index::IndexReader},
    xds::Name,
};
use futures::{Stream, StreamExt};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::form::ForRelays;
use crate::kds::history::ZoneHistory;

/// Bytes of resources in one message, about.
const CHUNK: usize = 512 * 1024;
/// Resources a relay may say it holds: ten times what one global is made for.
const MOST_HELD: usize = 1_000_000;
/// And bytes of their names and versions.
const MOST_HELD_BYTES: usize = 256 << 20;
/// How long nothing but a new revision may wait for company.
const PACE: Duration = Duration::from_millis(200);
/// How long a relay may take to store a state.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a relay holds: digests by type and name.
type HeldByRelay = BTreeMap<(String, String), Vec<u8>>;

/// The stream on which one relay follows.
pub(super) struct RelayFeed {
    pub(super) outgoing: Arc<SharedOutgoing<ForRelays>>,
    pub(super) index: IndexReader,
    /// In which what is sent has its position.
    pub(super) history: ZoneHistory,
    pub(super) wire: mpsc::Sender<RelayFollowResponse>,
    pub(super) stop: CancellationToken,
}

impl RelayFeed {
    /// Feeds until the stream ends.
    pub(super) async fn run(
        mut self,
        mut inbound: impl Stream<Item = Result<RelayFollowRequest, Status>> + Unpin,
    ) -> Ended {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => Ended::Stopped,
            ended = self.feed(&mut inbound) => ended.err().unwrap_or(Ended::Stopped),
        }
    }

    async fn feed(
        &mut self,
        inbound: &mut (impl Stream<Item = Result<RelayFollowRequest, Status>> + Unpin),
    ) -> Result<(), Ended> {
        let held = read_held(inbound).await?;
        let mut sent = self.outgoing.for_last(&self.index.latest());
        let mut changed = lacking(&held, &sent);
        drop(held);
        let mut shown = self.history.watch();
        loop {
            let history = *shown.borrow_and_update();
            let position = Upstream::new(history, sent.index.revision).to_text();
            for message in messages(&sent, &changed, &position) {
                self.wire.send(message).await.map_err(|_| Ended::ByPeer)?;
            }
            let answered = Instant::now();
            match timeout(PATIENCE, answer(inbound, &position)).await {
                Ok(answer) => answer?,
                Err(_) => return Err(Ended::Stalled(PATIENCE)),
            }
            (sent, changed) = self.next(&sent, answered, &mut shown, inbound).await?;
        }
    }

    /// The next state that is worth a message: at once when it holds something new.
    async fn next(
        &mut self,
        sent: &Arc<OutgoingResources>,
        since: Instant,
        shown: &mut watch::Receiver<StoreIdentity>,
        inbound: &mut (impl Stream<Item = Result<RelayFollowRequest, Status>> + Unpin),
    ) -> Result<(Arc<OutgoingResources>, ChangedNames), Ended> {
        let mut due = None;
        loop {
            let is_due = tokio::select! {
                shown = self.index.changed() => match shown {
                    true => false,
                    false => return Err(Ended::Stopped),
                },
                // From now on it has another position, also when nothing else is new.
                Ok(()) = shown.changed() => true,
                () = sleep_until(due.unwrap_or(since)), if due.is_some() => true,
                said = inbound.next() => return Err(unexpected(said)),
            };
            let next = self.outgoing.for_last(&self.index.latest());
            let changed = next.changed_since(sent);
            if is_due || !changed.is_empty() {
                return Ok((next, changed));
            }
            due = Some(since + PACE);
        }
    }
}

fn unexpected(said: Option<Result<RelayFollowRequest, Status>>) -> Ended {
    match said {
        None => Ended::ByPeer,
        Some(Err(status)) => Ended::Broken(status),
        Some(Ok(_)) => Ended::Protocol("the relay answers what it was not sent".to_owned()),
    }
}

async fn read_held(
    inbound: &mut (impl Stream<Item = Result<RelayFollowRequest, Status>> + Unpin),
) -> Result<HeldByRelay, Ended> {
    let (mut held, mut bytes) = (HeldByRelay::new(), 0);
    loop {
        let said = match inbound.next().await {
            Some(Ok(said)) => said,
            other => return Err(unexpected(other)),
        };
        bytes += said
            .held
            .iter()
            .map(|held| held.r#type.len() + held.name.len() + held.version.len())
            .sum::<usize>();
        if bytes > MOST_HELD_BYTES {
            return Err(Ended::Protocol(format!(
                "what the relay holds is called by more than {MOST_HELD_BYTES} bytes"
            )));
        }
        held.extend(said.held.into_iter().map(|held| ((held.r#type, held.name), held.version)));
        if held.len() > MOST_HELD {
            return Err(Ended::Protocol(format!("the relay holds more than {MOST_HELD} resources")));
        }
        if said.held_complete {
            return Ok(held);
        }
    }
}

async fn answer(
    inbound: &mut (impl Stream<Item = Result<RelayFollowRequest, Status>> + Unpin),
    position: &str,
) -> Result<(), Ended> {
    match inbound.next().await {
        Some(Ok(said)) if said.reached == position => Ok(()),
        other => Err(unexpected(other)),
    }
}

/// Names of what a relay that holds `held` lacks or has no more.
fn lacking(held: &HeldByRelay, outgoing: &OutgoingResources) -> ChangedNames {
    let mut changed = ChangedNames::new();
    let mut there = BTreeSet::new();
    for kind in registry::ALL.iter() {
        for item in outgoing.list(kind.name) {
            let key = (kind.name.to_owned(), item.wanted.name.to_string());
            if held.get(&key).is_none_or(|version| version != item.wanted.version.as_bytes()) {
                changed.entry(kind.name).or_default().push(Arc::clone(&item.wanted.name));
            }
            there.insert(key);
        }
    }
    for (type_name, name) in held.keys().filter(|key| !there.contains(*key)) {
        if let Some(kind) = registry::by_name(type_name) {
            changed.entry(kind.name).or_default().push(Name::from(name.as_str()));
        }
    }
    changed
}

/// The messages that bring a relay from what it has to `outgoing`; the last one completes the state.
fn messages(
    outgoing: &OutgoingResources,
    changed: &ChangedNames,
    position: &str,
) -> Vec<RelayFollowResponse> {
    let fresh = || RelayFollowResponse { position: position.to_owned(), ..RelayFollowResponse::default() };
    let (mut messages, mut message, mut bytes) = (Vec::new(), fresh(), 0);
    for (kind, name) in changed.iter().flat_map(|(kind, names)| names.iter().map(move |name| (*kind, name))) {
        match outgoing.get(kind, name) {
            Some(item) => {
                bytes += item.wanted.size();
                message.resources.push(on_the_wire(kind, item));
            }
            None => {
                bytes += name.len();
                let (name, version) = (name.to_string(), Vec::new());
                message.removed.push(RelayHeld { r#type: kind.to_owned(), name, version });
            }
        }
        if bytes >= CHUNK {
            messages.push(std::mem::replace(&mut message, fresh()));
            bytes = 0;
        }
    }
    message.complete = true;
    messages.push(message);
    messages
}

fn on_the_wire(kind: &'static str, item: &OutgoingResource) -> RelayResource {
    let zone = match &item.resource.origin {
        Origin::Global => String::new(),
        Origin::Zone(zone) => zone.to_string(),
    };
    let resource = Any { type_url: item.wanted.type_url.to_owned(), value: item.wanted.value.to_vec() };
    RelayResource { r#type: kind.to_owned(), zone, resource: Some(resource) }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use common::{
        model::{Resource, ResourceKey, kinds},
        policy::mesh_timeout,
        store::{Snapshot, StoreIdentity, index::Index},
    };
    use uuid::Uuid;

    use super::*;

    fn outgoing(policies: &[(&str, usize)]) -> OutgoingResources {
        let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
        let policy = |(name, filler): &(&str, usize)| {
            let key = ResourceKey::new(&mesh_timeout::KIND, "default", name);
            Resource::new(key, DateTime::UNIX_EPOCH).with_label("filler", &"x".repeat(*filler))
        };
        let mesh = Resource::new(ResourceKey::global(&kinds::mesh::KIND, "default"), DateTime::UNIX_EPOCH);
        let resources = policies.iter().map(policy).chain([mesh]).map(Arc::new).collect();
        let index = Arc::new(Index::of(store, Snapshot { revision: 7, resources }));
        OutgoingResources::of(&index, &ForRelays::new(&[], usize::MAX))
    }

    fn held(outgoing: &OutgoingResources) -> HeldByRelay {
        let kinds = registry::ALL.iter().map(|kind| kind.name);
        let all = kinds.flat_map(|kind| outgoing.list(kind).map(move |item| (kind, item)));
        all.map(|(kind, item)| {
            let key = (kind.to_owned(), item.wanted.name.to_string());
            (key, item.wanted.version.as_bytes().to_vec())
        })
        .collect()
    }

    #[test]
    fn a_relay_is_told_what_it_lacks_and_nothing_else() {
        let there = outgoing(&[("a", 1), ("b", 1)]);
        assert_eq!(lacking(&held(&there), &there), ChangedNames::new());
        let before = outgoing(&[("a", 2), ("c", 1)]);
        let mut changed = lacking(&held(&before), &there).remove("MeshTimeout").unwrap_or_default();
        changed.sort();
        let changed: Vec<&str> = changed.iter().map(|name| &**name).collect();
        assert_eq!(changed, ["a.default", "b.default", "c.default"]);
        let nothing = lacking(&HeldByRelay::new(), &there);
        assert_eq!(nothing.values().map(Vec::len).sum::<usize>(), 3);
    }

    #[test]
    fn a_large_state_comes_in_parts_and_the_last_one_completes_it() {
        let there = outgoing(&[("a", CHUNK), ("b", CHUNK), ("c", 1)]);
        let mut changed = lacking(&HeldByRelay::new(), &there);
        changed.entry("MeshTimeout").or_default().push("gone.default".into());
        let messages = messages(&there, &changed, "p");
        let complete: Vec<bool> = messages.iter().map(|message| message.complete).collect();
        assert_eq!(complete, [false, false, true]);
        assert_eq!(messages.iter().map(|message| message.resources.len()).sum::<usize>(), 4);
        assert_eq!(messages[2].removed[0].name, "gone.default");
        assert!(messages.iter().all(|message| message.position == "p"));
    }

    #[test]
    fn without_changes_only_the_position_is_told() {
        let there = outgoing(&[]);
        let messages = messages(&there, &ChangedNames::new(), "p");
        assert_eq!(messages.len(), 1);
        assert!(messages[0].complete && messages[0].resources.is_empty());
    }
}
