//! The log: messages on standard error while keys are run.
//!
//! The text is for people and reports failures; a key that succeeds is not worth a line. The JSON form is for
//! programs: one object per line, for every run.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Pid;

use crate::config::Form;
use crate::output::console::{Console, InHurry, Meanwhile};
use crate::report::outcome::Failure;
use crate::text::json::Object;
use crate::text::{duration, show};

/// The run that a message is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) attempt: u32,
}

#[derive(Debug)]
pub(crate) struct Log {
    form: Form,
    console: Arc<Console>,
    max_attempts: u32,
}

impl Log {
    pub(crate) fn new(form: Form, console: Arc<Console>, max_attempts: u32) -> Self {
        Self { form, console, max_attempts }
    }

    pub(crate) fn done(&self, subject: Subject<'_>, took: Duration) {
        if self.form == Form::Json {
            self.event(&event("done", Some(subject)).with("run_seconds", took));
        }
    }

    pub(crate) fn retry(&self, subject: Subject<'_>, why: &Failure, delay: Duration) {
        match self.form {
            Form::Text => self.text(subject, why, &format!("again in {}", duration::show(delay))),
            Form::Json => {
                let event = reason(event("retry", Some(subject)), why).with("delay_seconds", delay);
                self.ended(&event.to_string(), Some(why));
            }
            Form::Off => {}
        }
    }

    pub(crate) fn again(&self, subject: Subject<'_>, delay: Duration) {
        match self.form {
            Form::Text => self.console.line(&format!(
                "requeue: {}: not yet, again in {}",
                show::key(subject.key),
                duration::show(delay)
            )),
            Form::Json => self.event(&event("again", Some(subject)).with("delay_seconds", delay)),
            Form::Off => {}
        }
    }

    pub(crate) fn gave_up(&self, subject: Subject<'_>, why: &Failure) {
        match self.form {
            // Attempts mean nothing where there was no run.
            Form::Text if matches!(why, Failure::Unpassable(_)) => {
                self.console.line(&format!("requeue: {}: {why}; gave up", show::key(subject.key)));
            }
            Form::Text => self.text(subject, why, "gave up"),
            Form::Json => self.ended(&reason(event("gave_up", Some(subject)), why).to_string(), Some(why)),
            Form::Off => {}
        }
    }

    /// Reports that a key failed whose file is gone, after the program's second try.
    pub(crate) fn gone(&self, subject: Subject<'_>, why: &Failure) {
        match self.form {
            Form::Text => self.text(subject, why, "but the file is gone: ended"),
            Form::Json => self.ended(&reason(event("gone", Some(subject)), why).to_string(), Some(why)),
            Form::Off => {}
        }
    }

    /// Reports that a key will not run again before the command ends. `why` is `None` if the run itself was
    /// stopped.
    pub(crate) fn left(&self, subject: Subject<'_>, why: Option<&Failure>) {
        match (self.form, why) {
            (Form::Text, Some(why)) => self.text(subject, why, "left without a retry"),
            (Form::Text, None) => {
                self.ended(&format!("requeue: {}: stopped, left", show::key(subject.key)), None);
            }
            (Form::Json, why) => {
                let event = why.into_iter().fold(event("left", Some(subject)), reason);
                self.ended(&event.to_string(), why);
            }
            (Form::Off, _) => {}
        }
    }

    /// Reports that the output of a failed run was not read completely.
    pub(crate) fn output_lost(&self, subject: Subject<'_>) {
        match self.form {
            Form::Text => self.ended(
                &format!(
                    "requeue: {}: the rest of its output could not be passed on",
                    show::key(subject.key)
                ),
                None,
            ),
            Form::Json => self.ended(&event("output_lost", Some(subject)).to_string(), None),
            Form::Off => {}
        }
    }

    /// Reports that a user stopped the program; `group` is its process group, and `meanwhile` looks after it.
    pub(crate) fn stopped(
        &self,
        subject: Subject<'_>,
        signal: i32,
        group: Pid,
        meanwhile: &mut dyn Meanwhile,
    ) {
        let line = match self.form {
            Form::Text => format!(
                "requeue: {}: the program was stopped by {}; let it go on with kill -CONT -- -{group}, or use --timeout",
                show::key(subject.key),
                signal_hook::low_level::signal_name(signal).unwrap_or("a signal"),
            ),
            Form::Json => {
                let event = event("stopped", Some(subject)).with("signal", signal);
                event.with("group", group.as_raw_nonzero().get()).to_string()
            }
            Form::Off => return,
        };
        self.console.line_while(&line, meanwhile);
    }

    /// A message about the whole command.
    pub(crate) fn note(&self, text: &str) {
        match self.form {
            Form::Text => self.console.line(&format!("requeue: {text}")),
            Form::Json => self.event(&event("note", None).with("message", text)),
            Form::Off => {}
        }
    }

    fn text(&self, subject: Subject<'_>, why: &Failure, then: &str) {
        let key = show::key(subject.key);
        let attempt = subject.attempt;
        let of = match self.max_attempts {
            0 => String::new(),
            max => format!(" of {max}"),
        };
        let line = format!("requeue: {key}: {why} (attempt {attempt}{of}), {then}");
        self.ended(&line, Some(why));
    }

    /// A line about a run that failed, or was stopped if `why` is missing. A run that we ended does not wait
    /// for it: if our messages are not read the next key would never have its turn.
    fn ended(&self, line: &str, why: Option<&Failure>) {
        if why.is_none_or(Failure::ended_it) {
            self.console.line_while(line, &mut InHurry);
        } else {
            self.console.line(line);
        }
    }

    fn event(&self, event: &Object) {
        self.console.line(&event.to_string());
    }
}

/// An event, of a run or of the whole command.
fn event(name: &str, subject: Option<Subject<'_>>) -> Object {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let event = Object::new().with("time", now).with("event", name);
    match subject {
        Some(Subject { key, attempt }) => event.with_bytes("key", key).with("attempt", attempt),
        None => event,
    }
}

/// Adds a failure to a JSON object: the text, and its number.
pub(crate) fn reason(object: Object, why: &Failure) -> Object {
    let object = object.with("reason", why.to_string());
    match why {
        Failure::Exit(code) => object.with("exit_status", *code),
        Failure::Signal(n) | Failure::WantedTerminal(n) => object.with("signal", *n),
        _ => object,
    }
}
