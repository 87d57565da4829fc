//! The candidate: takes, renews and gives away a lease.

use super::clock::Moment;
use super::fence::Terms;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Maximum number of own takeovers that a candidate remembers, because an answer may have been lost.
const REMEMBERED: usize = 16;

/// The settings of a candidate.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) name: String,
    pub(super) identity: String,
    pub(super) lease_duration: Duration,
    pub(super) renew_deadline: Duration,
    pub(super) retry_period: Duration,
    pub(super) skew: Duration,
    /// Offset of the wall clock, for tests.
    pub(super) wall_is_off_by: SignedDuration,
}

impl Rules {
    /// The durations are those of Kubernetes' own components.
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            identity: String::new(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            skew: Duration::from_secs(1),
            wall_is_off_by: SignedDuration::ZERO,
        }
    }

    /// Checks the settings. The error is in words.
    pub(super) fn check(&self) -> Result<(), String> {
        let Self { lease_duration: lease, renew_deadline: deadline, retry_period: period, skew, .. } = self;
        if self.name.is_empty() {
            return Err("the name of the lease is empty".into());
        }
        if self.identity.is_empty() {
            return Err("the identity is empty".into());
        }
        if period.is_zero() {
            return Err("the retry period is zero".into());
        }
        if *deadline <= period.saturating_mul(6) / 5 {
            return Err(format!(
                "the renew deadline ({deadline:?}) is not longer than 1.2 retry periods ({period:?})"
            ));
        }
        if *lease <= deadline.saturating_add(*skew) {
            return Err(format!(
                "the lease duration ({lease:?}) is not longer than renew deadline ({deadline:?}) and skew ({skew:?})"
            ));
        }
        if i32::try_from(lease.as_secs()).is_err() {
            return Err(format!("the lease duration ({lease:?}) is too long"));
        }
        Ok(())
    }
}

/// Result of an attempt.
#[derive(Debug)]
enum Attempt {
    /// The lease is ours, with this token.
    Ours(u32),
    /// Another candidate holds it.
    Theirs,
}

/// A term of this process, as the lease shows it.
type Mark = (Option<MicroTime>, Option<i32>);

pub(super) struct Candidate {
    api: Api<Lease>,
    rules: Rules,
    terms: Arc<Terms>,
    /// The lease as last seen, and when it was seen to change.
    seen: Option<(Lease, Instant)>,
    /// Terms that this process has begun, or tried to.
    own: VecDeque<Mark>,
    /// The present term.
    term: Option<Mark>,
    last_time: Timestamp,
}

impl Candidate {
    pub(super) fn new(api: Api<Lease>, rules: Rules, terms: Arc<Terms>) -> Self {
        let own = VecDeque::with_capacity(REMEMBERED);
        Self { api, rules, terms, seen: None, own, term: None, last_time: Timestamp::UNIX_EPOCH }
    }

    /// Runs the candidacy until it is told to give up.
    pub(super) async fn stand(mut self, mut given_up: watch::Receiver<bool>) {
        tokio::select! {
            () = self.stand_for_ever() => (),
            // An error: all handles are gone, and the task is about to be aborted.
            _ = given_up.wait_for(|given_up| *given_up) => (),
        }
        self.give_away().await;
    }

    async fn stand_for_ever(&mut self) {
        loop {
            self.once().await;
            sleep(self.pause()).await;
        }
    }

    /// Time until the next attempt: the period, or less if the renewal or another candidate's lease ends
    /// sooner.
    fn pause(&self) -> Duration {
        let period = crate::random::between(0.8, 1.0, self.rules.retry_period);
        if let Some(left) = self.terms.left() {
            return period.min(left);
        }
        match &self.seen {
            Some((lease, since)) => {
                let left = self.duration_of(lease).saturating_sub(since.elapsed());
                if left.is_zero() { period } else { period.min(left) }
            }
            None => period,
        }
    }

    async fn once(&mut self) {
        let began = Moment::now();
        if self.term.is_some() && self.terms.left().is_none() {
            self.lose("it was not renewed in time");
        }
        let limit = self.terms.left().unwrap_or(self.rules.renew_deadline);
        match timeout(limit, self.attempt()).await {
            Ok(Ok(Attempt::Ours(token))) => {
                if !self.terms.renewed(token, began) {
                    self.lose("the renewal took too long");
                }
            }
            Ok(Ok(Attempt::Theirs)) => self.lose("another process holds it"),
            Ok(Err(e)) => {
                tracing::warn!(lease = self.rules.name, "the lease can't be read or written: {e}");
            }
            Err(_) => tracing::warn!(lease = self.rules.name, "the API server does not answer in time"),
        }
        if self.term.is_some() && self.terms.left().is_none() {
            self.lose("it was not renewed in time");
        }
    }

    fn lose(&mut self, why: &str) {
        if self.term.take().is_some() {
            tracing::warn!(lease = self.rules.name, "this process leads no more: {why}");
        }
        self.terms.lost();
    }

    async fn attempt(&mut self) -> kube::Result<Attempt> {
        // The leader knows the lease, and most renewals need no read.
        if let (Some(mark), Some((lease, _))) = (&self.term, &self.seen)
            && self.shows(lease, mark)
        {
            let lease = lease.clone();
            let lease = self.renewal(lease);
            match self.write(lease).await {
                Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => (),
                written => return Ok(self.ours(&written?)),
            }
        }
        let Some(lease) = self.api.get_opt(&self.rules.name).await? else {
            self.lose("the lease was deleted");
            let lease = self.takeover(None);
            let written = self.api.create(&PostParams::default(), &lease).await?;
            return Ok(self.ours(&written));
        };
        let since = self.see(&lease);
        if let Some(mark) = &self.term
            && self.shows(&lease, mark)
        {
            let lease = self.renewal(lease);
            let written = self.write(lease).await?;
            return Ok(self.ours(&written));
        }
        let spec = lease.spec.as_ref();
        let is_free = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default().is_empty();
        let is_own = self.own.iter().any(|mark| self.shows(&lease, mark));
        let is_stale = since.elapsed() >= self.duration_of(&lease);
        if !(is_free || is_own || is_stale) {
            return Ok(Attempt::Theirs);
        }
        self.lose("its term was taken away");
        let lease = self.takeover(Some(lease));
        let written = self.write(lease).await?;
        Ok(self.ours(&written))
    }

    /// Writes a lease. The update names the resource version that it is based on.
    async fn write(&self, lease: Lease) -> kube::Result<Lease> {
        self.api.replace(&self.rules.name, &PostParams::default(), &lease).await
    }

    fn ours(&mut self, lease: &Lease) -> Attempt {
        let spec = lease.spec.as_ref();
        let mark = spec.map(|spec| (spec.acquire_time.clone(), spec.lease_transitions)).unwrap_or_default();
        let token = u32::try_from(mark.1.unwrap_or_default()).unwrap_or_default();
        if self.term.is_none() {
            tracing::info!(lease = self.rules.name, token, "this process leads");
        }
        self.term = Some(mark);
        self.see(lease);
        Attempt::Ours(token)
    }

    /// Records the lease. Returns since when this process has not seen it change.
    fn see(&mut self, lease: &Lease) -> Instant {
        let since = match &self.seen {
            // Its other fields are no sign of life.
            Some((seen, since)) if seen.spec == lease.spec => *since,
            _ => Instant::now(),
        };
        self.seen = Some((lease.clone(), since));
        since
    }

    /// Whether the lease shows this term of this process.
    fn shows(&self, lease: &Lease, mark: &Mark) -> bool {
        lease.spec.as_ref().is_some_and(|spec| {
            spec.holder_identity.as_ref() == Some(&self.rules.identity)
                && (&spec.acquire_time, &spec.lease_transitions) == (&mark.0, &mark.1)
        })
    }

    /// Time after which this lease is stale if it does not change.
    fn duration_of(&self, lease: &Lease) -> Duration {
        let said = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        self.rules.lease_duration.max(Duration::from_secs(said.try_into().unwrap_or_default()))
    }

    /// A time later than any that this process has written, so that each renewal changes the lease.
    fn now(&mut self) -> MicroTime {
        let wall = Timestamp::now().saturating_add(self.rules.wall_is_off_by).unwrap_or_default();
        let next = self.last_time.saturating_add(SignedDuration::from_micros(1)).unwrap_or(wall);
        self.last_time = wall.max(next);
        // As the lease keeps it.
        let micros = Timestamp::from_microsecond(self.last_time.as_microsecond());
        MicroTime(micros.unwrap_or(self.last_time))
    }

    fn takeover(&mut self, old: Option<Lease>) -> Lease {
        let known = old.as_ref().or(self.seen.as_ref().map(|(lease, _)| lease));
        let transitions = known
            .and_then(|lease| lease.spec.as_ref()?.lease_transitions)
            .map_or(0, |transitions| transitions.saturating_add(1));
        let now = self.now();
        if self.own.len() == REMEMBERED {
            self.own.pop_front();
        }
        self.own.push_back((Some(now.clone()), Some(transitions)));
        let mut lease = old.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.rules.name.clone()), ..ObjectMeta::default() },
            ..Lease::default()
        });
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.rules.identity.clone());
        spec.acquire_time = Some(now.clone());
        spec.renew_time = Some(now);
        spec.lease_transitions = Some(transitions);
        self.say_duration(spec);
        lease
    }

    fn renewal(&mut self, mut lease: Lease) -> Lease {
        let now = self.now();
        let spec = lease.spec.get_or_insert_default();
        spec.renew_time = Some(now);
        self.say_duration(spec);
        lease
    }

    fn say_duration(&self, spec: &mut LeaseSpec) {
        let duration = self.rules.lease_duration;
        let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
        spec.lease_duration_seconds = Some(seconds.try_into().unwrap_or(i32::MAX));
    }

    /// Waits until no run goes on, and then removes the holder from the lease.
    async fn give_away(&mut self) {
        self.terms.given_up();
        let limit = self.rules.renew_deadline;
        let done = timeout(limit, async {
            self.terms.no_run().await;
            self.empty().await
        });
        match done.await {
            Ok(Ok(())) => tracing::info!(lease = self.rules.name, "this process is no longer a candidate"),
            Ok(Err(e)) => tracing::warn!(lease = self.rules.name, "the lease can't be given away: {e}"),
            Err(_) => tracing::warn!(lease = self.rules.name, "the lease is left to run out"),
        }
    }

    async fn empty(&mut self) -> kube::Result<()> {
        // Read, for a request that was dropped may have written.
        let Some(mut lease) = self.api.get_opt(&self.rules.name).await? else { return Ok(()) };
        if self.own.iter().any(|mark| self.shows(&lease, mark)) {
            let now = self.now();
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = None;
            spec.renew_time = Some(now);
            self.write(lease).await?;
        }
        Ok(())
    }
}
