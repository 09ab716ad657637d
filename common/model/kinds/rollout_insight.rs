//! The newest run of each rollout, and what global keeps for going back. Written by global, sent to nobody.

use std::{collections::BTreeSet, fmt};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::rollout::{HaltConditions, WavePause};
use crate::model::{Kind, ResourceKey, Revision, Spec, SpecError, Violations, decode};

/// The descriptor of runs. A run is called as its rollout.
pub static KIND: Kind =
    Kind::json("RolloutInsight", "rollout-insights").global().flow(16).insight().typed::<RolloutRun>();

/// The descriptor of what resources were before a run changed them. There is no way to it from outside: who may read
/// runs need not be one who may read everything.
pub static KEPT: Kind = Kind::json("RolloutKept", "").global().flow(16).typed::<RolloutKept>();

/// What a resource was, in the form of a line of a backup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RolloutKept(pub serde_json::Value);

impl Spec for RolloutKept {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        Violations::none()
    }
}

/// Steps of a run that are remembered.
const REMEMBERED: usize = 200;

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutRun {
    /// Which run of the rollout.
    pub id: String,
    /// How it stands.
    pub state: RolloutState,
    /// Why it is halted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<HaltReason>,
    /// Who began it.
    pub by: String,
    /// When.
    pub begun: DateTime<Utc>,
    /// Of what it changes. Until the run was written for a second time, it is that of the run itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// The newest wave that has the change, counted from zero.
    pub wave: usize,
    /// All of them; in the last is everybody.
    pub waves: Vec<WaveRun>,
    /// What halts it.
    pub halt_on: HaltConditions,
    /// What does not halt it any more: it was so before, or somebody went on all the same.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub excused: BTreeSet<String>,
    /// What it changes.
    pub changes: Vec<RolloutChange>,
    /// What happened, the oldest first.
    pub log: Vec<RolloutStep>,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RolloutState {
    /// A wave gets the change.
    #[default]
    Running,
    /// A wave has it, and rests.
    Paused,
    /// It goes on when somebody says so.
    Halted,
    /// Everybody has it.
    Finished,
    /// Everybody is back.
    Aborted,
}

impl RolloutState {
    /// Whether anything is kept back, or may be.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Finished | Self::Aborted)
    }

    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Halted => "halted",
            Self::Finished => "finished",
            Self::Aborted => "aborted",
        }
    }
}

/// Why a run is halted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HaltReason {
    /// What is the same while it is the same reason; empty for what is never excused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// For people.
    pub text: String,
}

/// One wave of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaveRun {
    /// Its zones, chosen when the run began; none where everybody is in it.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub zones: BTreeSet<String>,
    /// Whether everybody who is in no other wave is in it.
    pub everybody: bool,
    /// How long the next one waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<WavePause>,
    /// When it was given the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released: Option<DateTime<Utc>>,
    /// The revision with which that was so; as that of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Zones of it that were away then. Nobody waits for them, and they are not lost.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub away: BTreeSet<String>,
    /// When all of it had the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub converged: Option<DateTime<Utc>>,
    /// Somebody ended its pause.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub advanced: bool,
}

/// What a run does to one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutChange {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its mesh; empty for what is in none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mesh: String,
    /// Its name.
    pub name: String,
    /// What is done to it: create, update or delete.
    pub op: String,
    /// Whether it was there before, and is kept.
    #[serde(default)]
    pub kept: bool,
}

impl fmt::Display for RolloutChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mesh.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            mesh => write!(f, "{} {mesh}/{}", self.kind, self.name),
        }
    }
}

/// Something that happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RolloutStep {
    /// When.
    pub at: DateTime<Utc>,
    /// Who did it; nobody where the control plane did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// What.
    pub text: String,
}

impl Spec for RolloutRun {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        Violations::none()
    }
}

impl RolloutRun {
    /// Takes down what happens.
    pub fn note(&mut self, at: DateTime<Utc>, by: &str, text: impl Into<String>) {
        if self.log.len() >= REMEMBERED {
            // How it began stays.
            self.log.remove(1);
        }
        self.log.push(RolloutStep { at, by: by.to_owned(), text: text.into() });
    }

    /// Writes down the revision at which the run was last stored, where that was left open.
    pub fn stored_at(&mut self, revision: Revision) {
        self.revision.get_or_insert(revision);
        for wave in self.waves.iter_mut().filter(|wave| wave.released.is_some()) {
            wave.revision.get_or_insert(revision);
        }
    }

    /// The wave a zone is in, counted from zero.
    pub fn wave_of(&self, zone: &str) -> usize {
        let named = self.waves.iter().position(|wave| wave.zones.contains(zone));
        named.unwrap_or(self.waves.len().saturating_sub(1))
    }

    /// Whether a zone has the change, or is to have it now.
    pub fn has_released(&self, zone: &str) -> bool {
        self.state.is_over() || self.wave_of(zone) <= self.wave
    }

    /// Whether everybody has.
    pub fn is_everywhere(&self) -> bool {
        self.state.is_over() || self.wave + 1 >= self.waves.len()
    }

    /// The name of the newest wave among all, for people.
    pub fn wave_name(&self, wave: usize) -> String {
        format!("wave {} of {}", wave + 1, self.waves.len())
    }
}

/// Why a run does not do what it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RunRefusal {
    /// It is over.
    #[error("it is over")]
    Over,
    /// It is halted.
    #[error("it is halted: resume it first, or abort it")]
    Halted,
    /// It is not halted.
    #[error("it is not halted")]
    NotHalted,
    /// A wave has no pause to end.
    #[error("it does not pause: its wave has not got the change yet, or is the last one")]
    NotPaused,
}

/// What is done to a run. Who may, and what has to be written besides, is for others to see.
impl RolloutRun {
    /// Stops it, because of `reasons`; `by` somebody, or by itself.
    ///
    /// # Errors
    /// [`RunRefusal`] when there is nothing to stop.
    pub fn halt(&mut self, at: DateTime<Utc>, by: &str, reasons: Vec<HaltReason>) -> Result<(), RunRefusal> {
        match self.state {
            RolloutState::Finished | RolloutState::Aborted => return Err(RunRefusal::Over),
            RolloutState::Halted => return Err(RunRefusal::Halted),
            RolloutState::Running | RolloutState::Paused => {}
        }
        for reason in &reasons {
            self.note(at, by, format!("halted: {}", reason.text));
        }
        (self.state, self.reasons) = (RolloutState::Halted, reasons);
        Ok(())
    }

    /// Goes on. What halted it does not halt it again, unless that is what a query says.
    ///
    /// # Errors
    /// [`RunRefusal`] when it is not halted.
    pub fn resume(&mut self, at: DateTime<Utc>, by: &str) -> Result<(), RunRefusal> {
        if self.state != RolloutState::Halted {
            return Err(if self.state.is_over() { RunRefusal::Over } else { RunRefusal::NotHalted });
        }
        let reasons = std::mem::take(&mut self.reasons).into_iter();
        self.excused.extend(reasons.map(|reason| reason.about).filter(|about| !about.is_empty()));
        self.state = if self.rests() { RolloutState::Paused } else { RolloutState::Running };
        self.note(at, by, "resumed");
        Ok(())
    }

    /// Ends the pause of its wave.
    ///
    /// # Errors
    /// [`RunRefusal`] when there is none.
    pub fn advance(&mut self, at: DateTime<Utc>, by: &str) -> Result<(), RunRefusal> {
        match self.state {
            RolloutState::Finished | RolloutState::Aborted => Err(RunRefusal::Over),
            RolloutState::Halted => Err(RunRefusal::Halted),
            RolloutState::Running | RolloutState::Paused if !self.rests() => Err(RunRefusal::NotPaused),
            RolloutState::Running | RolloutState::Paused => {
                self.waves[self.wave].advanced = true;
                self.state = RolloutState::Running;
                self.note(at, by, format!("the pause of {} is over", self.wave_name(self.wave)));
                Ok(())
            }
        }
    }

    /// Its wave has the change.
    pub fn converge(&mut self, at: DateTime<Utc>) {
        let name = self.wave_name(self.wave);
        let Some(wave) = self.waves.get_mut(self.wave) else { return };
        wave.converged = Some(at);
        let pause = wave.pause.map(|pause| format!(", pause {pause}")).unwrap_or_default();
        self.note(at, "", format!("{name} has the change{pause}"));
        if self.rests() {
            self.state = RolloutState::Paused;
        }
    }

    /// Gives a wave the change. What is so already at its zones halts it no more than zones that are `away`.
    pub fn release(
        &mut self,
        wave: usize,
        at: DateTime<Utc>,
        away: BTreeSet<String>,
        standing: impl IntoIterator<Item = String>,
    ) {
        let name = self.wave_name(wave);
        let Some(released) = self.waves.get_mut(wave) else { return };
        (released.released, released.away) = (Some(at), away);
        self.wave = wave;
        self.state = RolloutState::Running;
        self.excused.extend(standing);
        self.note(at, "", format!("{name} gets the change"));
    }

    /// Everybody is back at what was before, but for what `text` says.
    pub fn abort(&mut self, at: DateTime<Utc>, by: &str, text: impl Into<String>) {
        self.state = RolloutState::Aborted;
        self.excused.clear();
        self.note(at, by, text);
    }

    /// Everybody has the change.
    pub fn finish(&mut self, at: DateTime<Utc>) {
        self.state = RolloutState::Finished;
        // Nothing halts it any more, and the newest run of each rollout is kept.
        self.excused.clear();
        self.note(at, "", "finished: everybody has the change");
    }

    /// Whether its wave has the change and waits before the next.
    fn rests(&self) -> bool {
        let has_next = self.wave + 1 < self.waves.len();
        let wave = self.waves.get(self.wave).filter(|_| has_next);
        wave.is_some_and(|wave| wave.converged.is_some() && wave.pause.is_some() && !wave.advanced)
    }
}

/// What is called so in the n-th change of a run.
pub fn kept_key(rollout: &str, change: usize) -> ResourceKey {
    ResourceKey::global(&KEPT, &format!("{rollout}.{change}"))
}
