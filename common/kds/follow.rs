//! A sync stream in client role: a zone following global, and global following a zone.

use std::{collections::BTreeSet, pin::Pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    apply::{Applied, Applier, ApplyError, DecodedResponse, Follower},
    attribution::OriginClaim,
    codec,
    headers::Upstream,
    insight::Outcome,
    mapper,
    metadata::Peer,
    meter,
    needless::NeedlessWords,
    order,
    outbox::Outbox,
    serve::{Ended, until},
    verdict::{Verdict, nack_text},
    watch::{Position, Watch},
};
use crate::{
    metering,
    model::Kind,
    proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
    redact, registry,
    store::{StoreError, index::Index},
    xds::{Name, Refusal, Refusals, ResponseBatch, Sink, SinkEvent, SinkType, Versions},
};

/// Stands for a whole response where names are expected; no resource is called so.
const WHOLE: &str = "";
/// Refusals are for people; a peer that sends nothing but garbage does not get it back in full. In bytes.
const LONGEST_REFUSAL: usize = 16 * 1024;
/// What of it is logged, in bytes; the status of the zone shows the rest.
const LONGEST_LOGGED: usize = 1024;

/// A stream in client role.
pub struct Following {
    /// Name of the zone of this stream; the node id in both directions.
    pub zone: Arc<str>,
    /// What this side says about itself.
    pub ours: Peer,
    /// Ask for differences to what is held. Only with a peer that understands it.
    pub resume: bool,
    /// Begin with a digest of what is held in place of a list. Only with a peer that understands that.
    pub sums_up: bool,
    /// What is asked for besides what every peer has.
    pub besides: Vec<&'static Kind>,
    /// How often acknowledgements are repeated. A global of Kuma forgets who waits for news of a zone when an older
    /// stream of that zone ends, however late that is, and remembers with the next word on the newer one.
    pub remind_every: Option<Duration>,
    /// Removals pass the fuse until a type was answered in full once: the upstream's history is not the
    /// one followed so far.
    pub guard_first: bool,
    /// Commits what arrives.
    pub applier: Applier,
    /// Requests on their way.
    pub outbox: Outbox<DeltaDiscoveryRequest>,
    /// Who keeps track.
    pub watch: Arc<dyn Watch>,
    /// What is refused here; empty at first.
    pub refusals: Refusals,
    /// Told about every response that was applied or refused.
    pub on_batch: Option<OnBatch>,
    /// Ends the stream.
    pub stop: CancellationToken,
}

/// Told what became of a response.
pub type OnBatch = Box<dyn Fn(&BatchReport<'_>) + Send>;

/// What became of one response.
#[derive(Clone, Debug)]
pub struct BatchReport<'a> {
    /// Type of the response.
    pub kind: &'static Kind,
    /// The response.
    pub batch: &'a ResponseBatch,
    /// Where the upstream stood, when it says so.
    pub upstream: Option<Upstream>,
    /// Resources it carried, removed ones included.
    pub items: usize,
    /// Resources that changed here.
    pub changed: usize,
    /// How long it took to store it.
    pub took: Duration,
    /// Items that claimed another zone, by name.
    pub misattributed: Vec<(String, OriginClaim)>,
    /// Whether the fuse of mass deletion blew.
    pub blown: bool,
    /// Whether the first state of every type was taken by now and none was refused whole: from here on
    /// this side shares the history of the upstream.
    pub settled: bool,
}

impl BatchReport<'_> {
    /// Names of what the response says anything about.
    pub fn mentioned(&self) -> impl Iterator<Item = &str> {
        let added = self.batch.added.iter().map(|item| item.name.as_str());
        added.chain(self.batch.removed.iter().map(String::as_str))
    }
}

impl Following {
    /// Follows until the stream ends.
    pub async fn run(
        mut self,
        mut inbound: impl Stream<Item = Result<DeltaDiscoveryResponse, Status>> + Unpin,
    ) -> Ended {
        // Whatever is lost from here on is not what is begun with.
        let mut loss = std::pin::pin!(self.applier.index.loss());
        let index = match self.beginning().await {
            Ok(index) => index,
            Err(ApplyError::Store(StoreError::Fenced { .. })) => return Ended::Stopped,
            Err(error) => return error.into(),
        };
        let mut sink = self.open(&index);
        match self.follow(&mut sink, &mut inbound, loss.as_mut()).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    /// What there is to begin with. Of what an earlier upstream was asked for and this one has not, nothing stays: nobody
    /// would say when it is gone.
    async fn beginning(&mut self) -> Result<Arc<Index>, ApplyError> {
        let index = self.applier.newest().await?;
        let follower = &self.applier.follower;
        let unasked = match follower {
            Follower::Zone => order::requested_among_ours(),
            Follower::Global { .. } => Vec::new(),
        };
        for kind in unasked.into_iter().filter(|kind| kind.is_insight && !self.besides.contains(kind)) {
            if index.list(kind).any(|resource| follower.in_scope(resource)) {
                let mut nothing = DecodedResponse::decode(kind, [], Vec::new(), true, follower);
                nothing.guarded = false;
                self.applier.apply(&nothing).await?;
            }
        }
        Ok(index)
    }

    fn kinds(&self) -> Vec<&'static Kind> {
        let mut kinds = match self.applier.follower {
            Follower::Zone => order::requested_by_zone(),
            Follower::Global { .. } => order::requested_by_global(),
        };
        kinds.extend(&self.besides);
        kinds
    }

    fn open(&self, index: &Index) -> Sink {
        let types = self.kinds().into_iter().map(|kind| SinkType {
            type_url: kind.name,
            resume: self.resume.then(|| held(index, kind, &self.applier.follower)),
        });
        let sink = Sink::new(self.ours.node(&self.zone), types);
        if self.resume && self.sums_up { sink.summing_up() } else { sink }
    }

    async fn follow(
        &mut self,
        sink: &mut Sink,
        inbound: &mut (impl Stream<Item = Result<DeltaDiscoveryResponse, Status>> + Unpin),
        mut loss: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<std::convert::Infallible, Ended> {
        let mut opening: Vec<DeltaDiscoveryRequest> = sink.open().collect();
        let order: Vec<&str> = self.kinds().iter().map(|kind| kind.name).collect();
        opening.sort_by_key(|request| order.iter().position(|name| *name == request.type_url));
        for request in opening {
            self.outbox.push(request)?;
        }
        let mut remind_at = self.remind_every.map(|every| Instant::now() + every);
        let mut needless = NeedlessWords::default();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return Err(Ended::Stopped),
                // The peer thinks that all it has sent is here.
                () = &mut loss => return Err(ApplyError::LostEnd.into()),
                drained = self.outbox.drain_one(), if !self.outbox.is_empty() => drained?,
                () = until(remind_at) => {
                    // Who does not read gets no more to read.
                    if self.outbox.is_empty() {
                        sink.remind().try_for_each(|reminder| self.outbox.push(reminder))?;
                    }
                    remind_at = self.remind_every.map(|every| Instant::now() + every);
                }
                response = inbound.next() => match response {
                    None => return Err(Ended::ByPeer),
                    Some(Err(status)) => return Err(Ended::Broken(status)),
                    Some(Ok(response)) => self.take(sink, response, &mut needless).await?,
                },
            }
        }
    }

    async fn take(
        &mut self,
        sink: &mut Sink,
        response: DeltaDiscoveryResponse,
        needless: &mut NeedlessWords,
    ) -> Result<(), Ended> {
        self.watch.heard();
        self.watch.counted(&response.type_url, Outcome::Sent);
        let received = sink.receive(response).map_err(|e| Ended::Protocol(e.to_string()))?;
        let brings_nothing = match &received {
            SinkEvent::Unasked { .. } => true,
            SinkEvent::Listed(_) => false,
            SinkEvent::Batch(batch) => batch.added.is_empty() && batch.removed.is_empty(),
        };
        // A zone believes its global, which may tell with nothing else how far it is.
        if brings_nothing && matches!(self.applier.follower, Follower::Global { .. }) {
            needless.said(Instant::now())?;
        }
        let answer = match received {
            SinkEvent::Unasked { answer, .. } | SinkEvent::Listed(answer) => Some(*answer),
            SinkEvent::Batch(batch) => self.apply(sink, &batch).await?,
        };
        Ok(answer.into_iter().try_for_each(|answer| self.outbox.push(answer))?)
    }

    async fn apply(
        &mut self,
        sink: &mut Sink,
        batch: &ResponseBatch,
    ) -> Result<Option<DeltaDiscoveryRequest>, Ended> {
        let kind = registry::by_name(batch.type_url).expect("only registered types are subscribed to");
        let items = batch.added.iter().map(|item| (item.name.as_str(), item.resource.as_ref()));
        let follower = &self.applier.follower;
        let mut response = DecodedResponse::decode(kind, items, batch.removed.clone(), batch.full, follower);
        if let Some(trusted) = &self.applier.trusted {
            response.demand_signatures(trusted);
        }
        response.guarded |= self.guard_first && sink.unanswered().any(|name| name == batch.type_url);
        let mut report = BatchReport {
            kind,
            batch,
            upstream: Upstream::parse(&batch.stamp),
            items: batch.added.len() + batch.removed.len(),
            changed: 0,
            took: Duration::ZERO,
            misattributed: std::mem::take(&mut response.misattributed),
            blown: false,
            settled: false,
        };
        let began = Instant::now();
        let applied = tokio::select! {
            // A store that hangs must not keep a replaced session alive.
            () = self.stop.cancelled() => return Err(Ended::Stopped),
            applied = self.applier.apply(&response) => applied,
        };
        let answer = match applied {
            Ok(applied) => {
                meter::stored(began.elapsed());
                (report.changed, report.took) = (applied.changed, began.elapsed());
                self.reached(report.upstream);
                self.answer(sink, batch, &applied)
            }
            Err(error @ ApplyError::Blown { .. }) => {
                report.blown = true;
                tracing::error!(%error, "held back a mass deletion");
                self.watch.counted(kind.name, Outcome::Rejected);
                self.refusals.add(kind.name, [&Name::from(WHOLE)], &error.to_string());
                self.watch.refused(kind.name, &self.refusals);
                sink.refuse(batch.type_url, &batch.nonce, &error.to_string())
            }
            Err(ApplyError::Store(StoreError::Fenced { .. })) => return Err(Ended::Stopped),
            Err(ApplyError::Store(error)) if is_passing(&error) && !batch.full => {
                self.put_off(sink, batch, &error)
            }
            Err(error) => return Err(error.into()),
        };
        report.settled = sink.is_ready();
        if let Some(on_batch) = &self.on_batch {
            on_batch(&report);
        }
        Ok(answer)
    }

    /// The store does not take it now. The rest of the stream has nothing to do with that, and the peer offers
    /// this again.
    fn put_off(
        &mut self,
        sink: &mut Sink,
        batch: &ResponseBatch,
        error: &StoreError,
    ) -> Option<DeltaDiscoveryRequest> {
        // What is wrong with the store is for who looks after it.
        let reason = match &self.applier.follower {
            Follower::Zone => "the store of the zone cannot be written now, offer it again",
            Follower::Global { .. } => "the store of global cannot be written now, offer it again",
        };
        let items = batch.added.len() + batch.removed.len();
        tracing::warn!(zone = &*self.zone, type_name = batch.type_url, items, %error, "put off what cannot be stored");
        self.watch.counted(batch.type_url, Outcome::Rejected);
        self.refusals.add(batch.type_url, [&Name::from(WHOLE)], reason);
        self.watch.refused(batch.type_url, &self.refusals);
        sink.put_off(batch.type_url, &batch.nonce, reason)
    }

    fn answer(
        &mut self,
        sink: &mut Sink,
        batch: &ResponseBatch,
        applied: &Applied,
    ) -> Option<DeltaDiscoveryRequest> {
        let refusal = |v: &Verdict| Refusal { name: v.name.clone(), reason: v.reason.clone() };
        let refused: Vec<Refusal> = applied.verdicts.iter().map(refusal).collect();
        let text = nack_text(&applied.verdicts, LONGEST_REFUSAL);
        let outcome = if text.is_some() { Outcome::Rejected } else { Outcome::Acknowledged };
        self.watch.counted(batch.type_url, outcome);
        self.note(batch, &applied.verdicts);
        let mut answer = sink.verdict(batch.type_url, &batch.nonce, &refused)?;
        if let (Some(status), Some(text)) = (answer.error_detail.as_mut(), text) {
            metrics::counter!("kds_nack_total", "zone_name" => metering::zone(&self.zone), "resource_type" => batch.type_url)
                .increment(1);
            tracing::warn!(
                zone = &*self.zone,
                type_name = batch.type_url,
                reason = redact::words(&text, LONGEST_LOGGED),
                "refused resources"
            );
            status.message = text;
        }
        Some(answer)
    }

    /// Keeps in mind what is refused. What this response does not mention stays as refused as it was.
    fn note(&mut self, batch: &ResponseBatch, verdicts: &[Verdict]) {
        let added = batch.added.iter().map(|item| item.name.as_str());
        let named: BTreeSet<&str> = added.chain(batch.removed.iter().map(String::as_str)).collect();
        let mentioned = |name: &str| batch.full || name == WHOLE || named.contains(name);
        self.refusals.retain(batch.type_url, |name| !mentioned(name));
        keep(&mut self.refusals, batch.type_url, verdicts);
        self.watch.refused(batch.type_url, &self.refusals);
    }

    fn reached(&self, upstream: Option<Upstream>) {
        if let Some(upstream) = upstream {
            self.watch.reached(Position { head: upstream.revision, acked: upstream.revision, lag: 0 });
        }
    }
}

/// Keeps of each name the first of these verdicts, and looks through no more than are kept. A response may have as many
/// items as it likes that are refused, also of one name, of none, or of some that are too long to be kept.
fn keep(refusals: &mut Refusals, type_url: &str, verdicts: &[Verdict]) {
    let mut told = BTreeSet::new();
    for verdict in verdicts.iter().filter(|verdict| told.insert(verdict.name.as_str())) {
        if refusals.has_room(type_url, &verdict.name) {
            let name = Name::from(verdict.name.as_str());
            // Why something is refused is told in words of whoever sent it.
            refusals.add(type_url, [&name], &redact::words(&verdict.to_string(), LONGEST_LOGGED));
        }
    }
}

/// Whether the store may take the same at another time.
fn is_passing(error: &StoreError) -> bool {
    matches!(error, StoreError::Unwritable(_) | StoreError::Backend { .. })
}

/// Name and version of everything of `kind` the upstream decides about, as the upstream sent it.
fn held(index: &Index, kind: &'static Kind, follower: &Follower) -> Versions {
    let in_scope = index.list(kind).filter(|resource| follower.in_scope(resource));
    let wanted = in_scope.map(|resource| match follower {
        Follower::Zone if kind.has_status() => {
            // The status is this zone's own; global sends a blank one.
            let mut sent = resource.as_ref().clone();
            sent.status = mapper::blank_status(kind);
            codec::encode(&sent)
        }
        _ => codec::encode(resource),
    });
    wanted.map(|wanted| ((*wanted.name).into(), wanted.version.to_string().into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kds::verdict::RefusalCause;

    #[test]
    fn of_a_response_full_of_what_is_refused_as_much_is_told_as_is_kept() {
        let verdict = |name: String| Verdict { name, cause: RefusalCause::Invalid, reason: "why".to_owned() };
        let told = |names: &mut dyn Iterator<Item = String>| {
            let verdicts: Vec<Verdict> = names.map(verdict).collect();
            let mut refusals = Refusals::default();
            keep(&mut refusals, "T", &verdicts);
            refusals.of("T")
        };
        assert_eq!(told(&mut (0..200_000).map(|n| n.to_string())).len(), Refusals::KEPT);
        assert_eq!(told(&mut (0..200_000).map(|_| String::new())).len(), 1, "what has no name is told once");
        assert_eq!(told(&mut (0..200_000).map(|n| (n % 3).to_string())).len(), 3);
        let long = (0..2 * Refusals::KEPT).map(|n| format!("{n}{}", "x".repeat(1024)));
        let told = told(&mut long.chain(["web.default".to_owned()]));
        assert_eq!(
            told.keys().map(AsRef::as_ref).collect::<Vec<&str>>(),
            ["web.default"],
            "what is long hides nothing"
        );
    }
}
