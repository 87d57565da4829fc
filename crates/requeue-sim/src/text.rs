//! A call as text: its name, its key in quotes, and its options.

use crate::trace::{Quoted, Seconds, seconds, since_origin, unquoted};
use crate::{Call, Restored, Timer, Trigger, Value, When};
use requeue::{Debounce, InBackoff, Instant, WaitingKeys};
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

const IN_BACKOFF: [(InBackoff, &str); 3] =
    [(InBackoff::Run, "run"), (InBackoff::Respect, "respect"), (InBackoff::Reset, "reset")];

const WAITING: [(WaitingKeys, &str); 4] = [
    (WaitingKeys::Drop, "drop"),
    (WaitingKeys::RunNow, "run-now"),
    (WaitingKeys::Wait, "wait"),
    (WaitingKeys::WaitForRetries, "retries"),
];

const CALLS: &str = "add, add-when-room, add-many, restore, cancel, forget, pause, resume, \
                     pause-group, resume-group, lift-rate, close, shut-down, drain, workers or cancel-get";

impl<K: Display, V: Value> Display for Call<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(trigger) => {
                f.write_str("add ")?;
                write_trigger(f, trigger)
            }
            Self::AddWhenRoom(trigger, timeout) => {
                f.write_str("add-when-room ")?;
                write_trigger(f, trigger)?;
                write_timeout(f, *timeout)
            }
            Self::AddMany(triggers) => {
                f.write_str("add-many")?;
                for (i, trigger) in triggers.iter().enumerate() {
                    f.write_str(if i == 0 { " " } else { ", " })?;
                    write_trigger(f, trigger)?;
                }
                Ok(())
            }
            Self::Restore(restored) => write_restored(f, restored),
            Self::Cancel(key) => write!(f, "cancel {}", Quoted(key)),
            Self::Forget(key) => write!(f, "forget {}", Quoted(key)),
            Self::PauseKey(key) => write!(f, "pause {}", Quoted(key)),
            Self::ResumeKey(key) => write!(f, "resume {}", Quoted(key)),
            Self::PauseGroup(key) => write!(f, "pause-group {}", Quoted(key)),
            Self::ResumeGroup(key) => write!(f, "resume-group {}", Quoted(key)),
            Self::Pause => f.write_str("pause"),
            Self::Resume => f.write_str("resume"),
            Self::LiftRate => f.write_str("lift-rate"),
            Self::Close => f.write_str("close"),
            Self::ShutDown => f.write_str("shut-down"),
            Self::Drain(waiting, timeout) => {
                f.write_str("drain")?;
                if let Some((_, name)) = WAITING.iter().find(|(say, _)| say == waiting) {
                    write!(f, " waiting={name}")?;
                }
                write_timeout(f, *timeout)
            }
            Self::Workers(number) => write!(f, "workers {number}"),
            Self::CancelGet(worker) => write!(f, "cancel-get {worker}"),
        }
    }
}

fn write_timeout(f: &mut fmt::Formatter<'_>, timeout: Duration) -> fmt::Result {
    if timeout == Duration::MAX { Ok(()) } else { write!(f, " timeout={}", Seconds(timeout)) }
}

/// Writes the key, and the options of its trigger.
fn write_trigger<K: Display, V: Value>(f: &mut fmt::Formatter<'_>, trigger: &Trigger<K, V>) -> fmt::Result {
    write!(f, "{}", Quoted(&trigger.key))?;
    write_value(f, trigger.value.as_ref())?;
    match trigger.when {
        When::Now => (),
        When::After(delay) => write!(f, " after={}", Seconds(delay))?,
        When::At(due) => write!(f, " at={}", since_origin(due))?,
        When::RateLimited => f.write_str(" rate-limited")?,
    }
    match trigger.timer {
        Timer::Earliest => (),
        Timer::Latest(max) => write!(f, " latest={}", Seconds(max))?,
        Timer::Replace => f.write_str(" replace")?,
        Timer::Keep => f.write_str(" keep")?,
    }
    if trigger.priority != 0 {
        write!(f, " priority={}", trigger.priority)?;
    }
    if let Some((_, name)) = IN_BACKOFF.iter().find(|(say, _)| trigger.in_backoff == Some(*say)) {
        write!(f, " in-backoff={name}")?;
    }
    if let Some(debounce) = trigger.debounce {
        let (quiet, max) = (Seconds(debounce.quiet()), Seconds(debounce.longest()));
        let leading = if debounce.is_leading() { ":leading" } else { "" };
        write!(f, " debounce={quiet}:{max}{leading}")?;
    }
    Ok(())
}

fn write_value<V: Value>(f: &mut fmt::Formatter<'_>, value: Option<&V>) -> fmt::Result {
    match value {
        Some(value) => write!(f, " value={}", Quoted(&value.to_text())),
        None => Ok(()),
    }
}

fn write_restored<K: Display, V: Value>(
    f: &mut fmt::Formatter<'_>,
    restored: &Restored<K, V>,
) -> fmt::Result {
    write!(f, "restore {}", Quoted(&restored.key))?;
    write_value(f, restored.value.as_ref())?;
    if restored.failures != 0 {
        write!(f, " failures={}", restored.failures)?;
    }
    if let Some(attempt) = restored.attempt {
        write!(f, " attempt={attempt}")?;
    }
    if let Some(due) = restored.due {
        write!(f, " after={}", Seconds(due))?;
    }
    match restored.priority {
        0 => Ok(()),
        priority => write!(f, " priority={priority}"),
    }
}

pub(crate) fn read_call<K: FromStr, V: Value>(text: &str) -> Result<Call<K, V>, String> {
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    let mut rest = Rest { call: name, text: rest };
    let call = match name {
        "add" => Call::Add(rest.trigger()?),
        "add-when-room" => {
            let mut timeout = Duration::MAX;
            let trigger = rest.trigger_and(|name, value| {
                if name != "timeout" {
                    return Ok(false);
                }
                timeout = time(value)?;
                Ok(true)
            })?;
            Call::AddWhenRoom(trigger, timeout)
        }
        "add-many" => {
            let mut triggers = Vec::new();
            while !rest.is_empty() {
                if !triggers.is_empty() && !rest.skip(',') {
                    return Err("a comma is missing between two keys".into());
                }
                triggers.push(rest.trigger()?);
            }
            Call::AddMany(triggers)
        }
        "restore" => Call::Restore(rest.restored()?),
        "cancel" => Call::Cancel(rest.key()?),
        "forget" => Call::Forget(rest.key()?),
        "pause" if rest.is_empty() => Call::Pause,
        "resume" if rest.is_empty() => Call::Resume,
        "pause" => Call::PauseKey(rest.key()?),
        "resume" => Call::ResumeKey(rest.key()?),
        "pause-group" => Call::PauseGroup(rest.key()?),
        "resume-group" => Call::ResumeGroup(rest.key()?),
        "lift-rate" => Call::LiftRate,
        "close" => Call::Close,
        "shut-down" => Call::ShutDown,
        "drain" => {
            let (mut waiting, mut timeout) = (WaitingKeys::default(), Duration::MAX);
            while let Some((name, value)) = rest.option()? {
                match name {
                    "waiting" => {
                        let say = WAITING.iter().find(|(_, name)| *name == value);
                        waiting = say.ok_or(format!("{value} is not drop, run-now, wait or retries"))?.0;
                    }
                    "timeout" => timeout = time(&value)?,
                    _ => return Err(format!("drain has no option {name}")),
                }
            }
            Call::Drain(waiting, timeout)
        }
        "workers" => Call::Workers(rest.number()?),
        "cancel-get" => Call::CancelGet(rest.number()?),
        _ => return Err(format!("{name} is no call: {CALLS}")),
    };
    match rest.option()? {
        Some((option, _)) => Err(format!("{name} has no option {option}")),
        None if !rest.is_empty() => Err(format!("{name} is about one key")),
        None => Ok(call),
    }
}

/// The unread part of a line.
struct Rest<'a> {
    /// The call's name.
    call: &'a str,
    text: &'a str,
}

impl<'a> Rest<'a> {
    fn is_empty(&self) -> bool {
        self.text.trim_start().is_empty()
    }

    /// Skips `c` if it comes next. Returns whether it did.
    fn skip(&mut self, c: char) -> bool {
        let rest = self.text.trim_start().strip_prefix(c);
        self.text = rest.unwrap_or(self.text);
        rest.is_some()
    }

    fn key<K: FromStr>(&mut self) -> Result<K, String> {
        let (key, rest) = unquoted(self.text.trim_start()).ok_or("a key in quotes is missing")?;
        self.text = rest;
        key.parse().map_err(|_| format!("{key:?} is no key of this queue"))
    }

    fn number(&mut self) -> Result<usize, String> {
        let (number, rest) = self.text.split_once(' ').unwrap_or((self.text, ""));
        self.text = rest;
        number.parse().map_err(|_| format!("{} wants a number", self.call))
    }

    /// The next option and its value, which may be in quotes.
    fn option(&mut self) -> Result<Option<(&'a str, String)>, String> {
        let text = self.text.trim_start();
        if text.is_empty() || text.starts_with(',') {
            return Ok(None);
        }
        let end = text.find(|c: char| c == '=' || c == ',' || c.is_whitespace()).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let Some(rest) = rest.strip_prefix('=') else {
            self.text = rest;
            return Ok(Some((name, String::new())));
        };
        let (value, rest) = match unquoted(rest) {
            Some(quoted) => quoted,
            None => {
                let end = rest.find(|c: char| c == ',' || c.is_whitespace()).unwrap_or(rest.len());
                (rest[..end].to_string(), &rest[end..])
            }
        };
        self.text = rest;
        Ok(Some((name, value)))
    }

    fn trigger<K: FromStr, V: Value>(&mut self) -> Result<Trigger<K, V>, String> {
        self.trigger_and(|_, _| Ok(false))
    }

    /// Reads a trigger with additional options.
    fn trigger_and<K: FromStr, V: Value>(
        &mut self,
        mut more: impl FnMut(&str, &str) -> Result<bool, String>,
    ) -> Result<Trigger<K, V>, String> {
        let mut trigger = Trigger::now(self.key()?);
        while let Some((name, value)) = self.option()? {
            match name {
                "value" => trigger.value = Some(read_value(&value)?),
                "after" => trigger.when = When::After(time(&value)?),
                "at" => trigger.when = When::At(Instant::ORIGIN + time(&value)?),
                "rate-limited" => trigger.when = When::RateLimited,
                "latest" => trigger.timer = Timer::Latest(time(&value)?),
                "replace" => trigger.timer = Timer::Replace,
                "keep" => trigger.timer = Timer::Keep,
                "priority" => trigger.priority = priority(&value)?,
                "in-backoff" => {
                    let say = IN_BACKOFF.iter().find(|(_, name)| *name == value);
                    let (say, _) = say.ok_or(format!("{value} is not run, respect or reset"))?;
                    trigger.in_backoff = Some(*say);
                }
                "debounce" => {
                    let read = debounce(&value);
                    trigger.debounce =
                        Some(read.ok_or(format!("{value} is no debounce such as 0.5s:2s:leading"))?);
                }
                _ if more(name, &value)? => (),
                _ => return Err(format!("{} has no option {name}", self.call)),
            }
        }
        Ok(trigger)
    }

    fn restored<K: FromStr, V: Value>(&mut self) -> Result<Restored<K, V>, String> {
        let mut restored = Restored::new(self.key()?);
        while let Some((name, value)) = self.option()? {
            match name {
                "value" => restored.value = Some(read_value(&value)?),
                "failures" => restored.failures = number(&value)?,
                "attempt" => restored.attempt = Some(number(&value)?),
                "after" => restored.due = Some(time(&value)?),
                "priority" => restored.priority = priority(&value)?,
                _ => return Err(format!("restore has no option {name}")),
            }
        }
        Ok(restored)
    }
}

fn time(value: &str) -> Result<Duration, String> {
    seconds(value).ok_or(format!("{value} is no time such as 1.5s"))
}

fn number<N: FromStr>(value: &str) -> Result<N, String> {
    value.parse().map_err(|_| format!("{value} is no number"))
}

fn priority(value: &str) -> Result<i16, String> {
    value.parse().map_err(|_| format!("{value} is no priority"))
}

fn read_value<V: Value>(value: &str) -> Result<V, String> {
    V::from_text(value).ok_or(format!("{value:?} is no value of this queue"))
}

/// Reads a debounce: the quiet time, the maximum, and `leading` if set.
fn debounce(text: &str) -> Option<Debounce> {
    let (quiet, rest) = text.split_once(':')?;
    let (max, leading) = match rest.split_once(':') {
        Some((max, "leading")) => (max, true),
        Some(_) => return None,
        None => (rest, false),
    };
    let debounce = Debounce::new(seconds(quiet)?).max(seconds(max)?);
    Some(if leading { debounce.leading() } else { debounce })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let second = Duration::from_secs(1);
        let odd = "a \"b\" \\n\n\r priority=3".to_string();
        let mut calls: Vec<Call<String, String>> =
            vec![Call::Close, Call::ShutDown, Call::Pause, Call::Resume];
        calls.extend([Call::Cancel(odd.clone()), Call::Forget(String::new())]);
        calls.extend([Call::PauseKey(odd.clone()), Call::ResumeKey(odd.clone())]);
        calls.push(Call::LiftRate);
        let debounce = Debounce::new(second / 2).max(second * 2);
        for debounce in [debounce, debounce.leading(), Debounce::new(Duration::ZERO)] {
            calls.push(Trigger::now(odd.clone()).debounce(debounce).priority(-3).into());
        }
        calls.push(Restored::new(odd.clone()).into());
        calls.push(Restored::new(odd.clone()).failures(u32::MAX).attempt(0).priority(i16::MIN).into());
        calls.push(Restored::new(odd.clone()).due(Duration::MAX).into());
        for in_backoff in [InBackoff::Run, InBackoff::Respect, InBackoff::Reset] {
            calls.push(Trigger::now(odd.clone()).in_backoff(in_backoff).priority(i16::MIN).into());
        }
        calls.push(Trigger::rate_limited(odd.clone()).keep().into());
        calls.push(Trigger::after(odd.clone(), Duration::MAX).latest(second / 3).into());
        calls.push(Trigger::after(odd.clone(), Duration::ZERO).replace().priority(7).into());
        let due = Instant::from_nanos(u64::MAX);
        calls.push(Trigger::at(odd.clone(), due).value(odd.clone()).keep().into());
        calls.push(Restored::new(odd.clone()).value(String::new()).failures(1).into());
        let odds = || ["", "a, \"b\"", &odd].map(String::from);
        calls.push(Call::AddMany(odds().map(Trigger::now).into()));
        calls.push(Call::AddMany(odds().map(|key| Trigger::after(key.clone(), second).value(key)).into()));
        calls.extend([Call::AddMany(Vec::new()), Call::AddMany(vec![Trigger::now(odd.clone())])]);
        for timeout in [Duration::ZERO, second, Duration::MAX] {
            calls.push(Call::AddWhenRoom(Trigger::now(odd.clone()).priority(2), timeout));
            for waiting in [WaitingKeys::Drop, WaitingKeys::RunNow, WaitingKeys::Wait] {
                calls.push(Call::Drain(waiting, timeout));
            }
        }
        calls.extend([Call::PauseGroup(odd.clone()), Call::ResumeGroup(odd)]);
        calls.extend([Call::Workers(0), Call::CancelGet(usize::MAX)]);
        for call in calls {
            let text = call.to_string();
            assert!(!text.contains('\n'), "{text}");
            assert_eq!(read_call::<String, String>(&text).as_ref(), Ok(&call), "{text}");
        }
    }
}
