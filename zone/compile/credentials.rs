//! What proxies show to others: asked for here, signed elsewhere.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    generator::{AdminIdentity, ProxyMetadata, Shown},
    mesh::{
        AgentIdentity, Authority, Dataplane, GivenIdentity, Identity, IdentityError, MeshContext,
        WorkloadCertificate, identity,
    },
};

/// How long what a proxy shows stays when another authority is to sign for it: all who meet it, in whatever zone,
/// have to hear of that one first.
pub(crate) const HEARD: TimeDelta = TimeDelta::seconds(10);

/// Asks for what a proxy shows to others.
#[derive(Clone, Debug)]
pub(crate) struct SigningRequest {
    /// Which proxy.
    pub(crate) name: Arc<str>,
    /// Who signs for the mesh, and whom.
    pub(crate) workload: Option<(Arc<Authority>, Identity)>,
    /// The address of the listener before its admin endpoint.
    pub(crate) admin: Option<IpAddr>,
}

/// What came of a [`SigningRequest`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Signed {
    /// The certificate, when one was asked for, or why there is none.
    pub(crate) workload: Option<Result<Arc<WorkloadCertificate>, String>>,
    /// The admin identity, when one was asked for and somebody signs such, or why there is none.
    pub(crate) admin: Option<Result<Arc<AdminIdentity>, String>>,
}

impl Signed {
    /// Whether something could not be signed that may be another time.
    pub(crate) fn is_incomplete(&self) -> bool {
        matches!(self.workload, Some(Err(_))) || matches!(self.admin, Some(Err(_)))
    }
}

/// What one proxy shows to others.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    /// What the workload shows.
    pub(super) shown: Option<Shown>,
    admin: Option<Arc<AdminIdentity>>,
    /// The address an admin identity was asked for, whether or not there is one.
    asked: Option<IpAddr>,
    /// Something was asked for and has not come.
    signing: bool,
    /// Who is to sign whom, as far as is known now; what is being signed may be something older.
    wanted: Option<(Arc<Authority>, Identity)>,
    /// Nothing new can be made before what was asked for is here.
    pub(super) needed: bool,
    /// Since when somebody else is to sign than who signed what it shows.
    succeeded: Option<DateTime<Utc>>,
    /// What nobody could sign, and why; it is not asked for again before somebody says so.
    refused: Option<(Arc<Authority>, Identity, String)>,
}

/// When certificates are to be replaced.
#[derive(Debug, Default)]
pub(super) struct Renewals(BTreeSet<(DateTime<Utc>, Arc<str>)>);

impl Renewals {
    /// When the next one is due.
    pub(super) fn next(&self) -> Option<DateTime<Utc>> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes out one that is due.
    pub(super) fn due(&mut self, now: DateTime<Utc>) -> Option<Arc<str>> {
        self.0.first().filter(|(at, _)| *at <= now)?;
        self.0.pop_first().map(|(_, name)| name)
    }

    /// `certificate` of `name`, if there is one, is not the one to be replaced any more.
    pub(super) fn forget(&mut self, name: &Arc<str>, certificate: Option<&Arc<WorkloadCertificate>>) {
        if let Some(certificate) = certificate {
            self.0.remove(&(identity::renewal_time(certificate), Arc::clone(name)));
        }
    }

    /// Looks at `name` again at this time.
    fn wake(&mut self, name: &Arc<str>, at: DateTime<Utc>) {
        self.0.insert((at, Arc::clone(name)));
    }

    fn note(&mut self, name: &Arc<str>, certificate: &WorkloadCertificate) {
        self.0.insert((identity::renewal_time(certificate), Arc::clone(name)));
    }
}

impl Credentials {
    /// What has to be asked for now, if anything. Says in [`needed`](Self::needed) whether to wait for it: a
    /// certificate that is only to be renewed serves until it ends.
    ///
    /// # Errors
    /// The reason why there can be no configuration.
    pub(super) fn request(
        &mut self,
        name: &Arc<str>,
        dataplane: &Dataplane,
        metadata: &ProxyMetadata,
        mesh: &MeshContext,
        renewals: &mut Renewals,
        now: DateTime<Utc>,
    ) -> Result<Option<SigningRequest>, CredentialsError> {
        self.needed = false;
        let agent = mesh.agent_identity(dataplane);
        let current = self.shown.as_ref().and_then(Shown::certificate).map(|current| &**current);
        let lacking = mesh.lacks_certificate(dataplane, current, now)?;
        let serves = match (&lacking, &self.shown) {
            (Some((authority, identity)), Some(Shown::Certificate(current))) => {
                authority.stands_by(current, identity, now) || mesh.believes(current, now)
            }
            // What is taken from an agent is renewed by that.
            (Some(_), Some(Shown::FromAgent(_))) | (None, _) => true,
            (Some(_), None) => false,
        };
        if lacking.is_none() && agent.is_none() {
            self.succeeded = None;
            // Nothing is to be shown any more.
            self.shown = self.shown.take().filter(|shown| shown.certificate().is_some());
        }
        if let Some(agent) = agent {
            self.take_from_agent(name, agent, mesh, renewals, now);
        }
        let workload = lacking.filter(|(authority, identity)| {
            let current = self.shown.as_ref();
            let akin = current.and_then(Shown::certificate).is_some_and(|c| authority.is_akin(c, identity));
            let waits =
                serves && current.is_some_and(|shown| is_unheard(shown, identity.given.as_ref(), akin));
            if !waits {
                self.succeeded = None;
            }
            !waits || self.is_heard(name, renewals, now)
        });
        self.wanted.clone_from(&workload);
        if workload.is_none() {
            // Nothing is to be renewed any more, so nobody is to be told that it was not.
            self.refused = None;
        }
        let refused = self.refused.as_ref().filter(|(authority, whom, _)| {
            let same = |(wanted, identity): &(Arc<Authority>, Identity)| {
                Arc::ptr_eq(wanted, authority) && identity == whom
            };
            workload.as_ref().is_some_and(same)
        });
        if let Some((.., reason)) = refused {
            // It comes back by itself, later.
            return if serves { Ok(None) } else { Err(CredentialsError::Refused(reason.clone())) };
        }
        let admin = needs_admin(metadata, dataplane).filter(|address| self.asked != Some(*address));
        if workload.is_none() && admin.is_none() {
            return Ok(None);
        }
        self.needed = !serves || admin.is_some();
        if std::mem::replace(&mut self.signing, true) {
            return Ok(None);
        }
        Ok(Some(SigningRequest { name: Arc::clone(name), workload, admin }))
    }

    /// Shows what the agent beside the proxy gives it, once everybody had the time to hear of that.
    fn take_from_agent(
        &mut self,
        name: &Arc<str>,
        agent: AgentIdentity,
        mesh: &MeshContext,
        renewals: &mut Renewals,
        now: DateTime<Utc>,
    ) {
        let waits = match &self.shown {
            Some(Shown::FromAgent(current)) if **current == agent => {
                self.succeeded = None;
                return;
            }
            Some(shown) => {
                let akin = shown.certificate().is_none();
                let serves = shown.certificate().is_none_or(|current| mesh.believes(current, now));
                serves && is_unheard(shown, Some(&agent.given), akin)
            }
            None => false,
        };
        if !waits || self.is_heard(name, renewals, now) {
            renewals.forget(name, self.shown.as_ref().and_then(Shown::certificate));
            (self.shown, self.succeeded) = (Some(Shown::FromAgent(Arc::new(agent))), None);
        }
    }

    /// Whether everybody had the time to hear of what `name` is to show from now on.
    fn is_heard(&mut self, name: &Arc<str>, renewals: &mut Renewals, now: DateTime<Utc>) -> bool {
        let due = *self.succeeded.get_or_insert(now) + HEARD;
        if now < due {
            renewals.wake(name, due);
        }
        now >= due
    }

    /// Takes in what was asked for. What could not be signed is noted; whoever calls asks
    /// [again](Self::retry) later. What is not wanted any more, because the proxy is to show something else by now, is
    /// dropped.
    pub(super) fn signed(&mut self, request: &SigningRequest, signed: Signed, renewals: &mut Renewals) {
        self.signing = false;
        if let Some(address) = request.admin {
            (self.admin, self.asked) = (signed.admin.and_then(Result::ok), Some(address));
        }
        match (signed.workload, &request.workload) {
            (Some(Ok(certificate)), _) if self.wants(&certificate) => {
                renewals.forget(&request.name, self.shown.as_ref().and_then(Shown::certificate));
                renewals.note(&request.name, &certificate);
                (self.refused, self.succeeded) = (None, None);
                self.shown = Some(Shown::Certificate(certificate));
            }
            (Some(Err(reason)), Some((authority, identity))) => {
                self.refused = Some((Arc::clone(authority), identity.clone(), reason));
            }
            (Some(Ok(_) | Err(_)) | None, _) => {}
        }
    }

    fn wants(&self, certificate: &WorkloadCertificate) -> bool {
        self.wanted.as_ref().is_some_and(|(authority, identity)| {
            certificate.identity == *identity && authority.is_akin(certificate, identity)
        })
    }

    /// Tries again what failed for a reason that may go away by itself.
    pub(super) fn retry(&mut self) {
        self.refused = None;
        if self.admin.is_none() {
            self.asked = None;
        }
    }

    /// What the listener before the admin endpoint shows; `None` for no such listener.
    pub(super) fn admin(
        &self,
        metadata: &ProxyMetadata,
        dataplane: &Dataplane,
    ) -> Option<Arc<AdminIdentity>> {
        let needed = needs_admin(metadata, dataplane);
        self.admin.clone().filter(|admin| needed == Some(admin.address))
    }

    /// Why what it shows is not renewed.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.refused.as_ref().map(|(.., reason)| reason.as_str())
    }
}

/// Whether others, who know the one who shows this, have to hear first of who is to be called by `next` from now on.
/// Who is `akin` vouches for both.
fn is_unheard(shown: &Shown, next: Option<&GivenIdentity>, akin: bool) -> bool {
    let current = shown.name();
    let same = |of: fn(&GivenIdentity) -> &str| current.map(of) == next.map(of);
    match (same(|given| &given.by), same(|given| &given.id)) {
        (_, true) => !akin,
        // A name that somebody else gave is listed until nobody shows it any more.
        (false, false) => true,
        // One that is taken away by who gave it is not accepted any more, so what bears it is of no use.
        (true, false) => false,
    }
}

/// Why a proxy has nothing to show.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialsError {
    /// Nobody signs for the mesh.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It could not be signed.
    #[error("{0}")]
    Refused(String),
}

/// The address of the listener before its admin endpoint; `None` for no such listener.
fn needs_admin(metadata: &ProxyMetadata, dataplane: &Dataplane) -> Option<IpAddr> {
    let endpoint = metadata.admin.as_ref()?;
    dataplane.address.filter(|address| endpoint.needs_listener(*address))
}
