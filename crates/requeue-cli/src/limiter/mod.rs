//! The available limiters, with their parameters: the one table behind options, help, completions and the
//! texts of limiters.

pub(crate) mod spec;

use std::fmt::{self, Write as _};
use std::time::Duration;

use requeue::RateLimiter;
use requeue::limiter::{
    Bucket, Exponential, FastSlow, Jitter, LimiterError, MaxOf, PerKeyBucket, Window, WithMaxWait,
    default_controller, default_per_item,
};

use self::spec::Spec;
use crate::text::duration;

/// A limiter of the library.
pub(crate) type Built = Box<dyn RateLimiter<Vec<u8>>>;

/// A parameter of limiters. A parameter that several share has one entry here.
#[derive(Debug)]
pub(crate) struct Parameter {
    /// Its name in the text of a limiter, and with `--` as an option.
    pub(crate) name: &'static str,
    pub(crate) value_name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) read: fn(&str) -> Result<Value, String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Duration(Duration),
    Number(f64),
    Count(u32),
    Seed(u64),
}

/// The type of each parameter is in the tables below; a test builds every limiter.
impl Value {
    fn time(self) -> Duration {
        let Self::Duration(d) = self else { unreachable!("{self:?} is no duration") };
        d
    }

    fn number(self) -> f64 {
        let Self::Number(n) = self else { unreachable!("{self:?} is no number") };
        n
    }

    fn count(self) -> u32 {
        let Self::Count(n) = self else { unreachable!("{self:?} is no count") };
        n
    }

    fn seed(self) -> u64 {
        let Self::Seed(n) = self else { unreachable!("{self:?} is no seed") };
        n
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration(d) => f.write_str(&duration::exact(*d)),
            Self::Number(n) => n.fmt(f),
            Self::Count(n) => n.fmt(f),
            Self::Seed(n) => n.fmt(f),
        }
    }
}

pub(crate) const PARAMETERS: [Parameter; 11] = [
    Parameter { name: "rate", value_name: "R", help: "Calls a second", read: rate },
    Parameter { name: "burst", value_name: "N", help: "Calls that may come at once", read: at_least_one },
    Parameter { name: "base", value_name: "D", help: "The first delay of a key", read: length },
    Parameter { name: "max", value_name: "D", help: "The longest delay", read: length },
    Parameter { name: "fast", value_name: "D", help: "The delay at first", read: length },
    Parameter { name: "slow", value_name: "D", help: "The delay afterwards", read: length },
    Parameter { name: "after", value_name: "N", help: "So many fast delays come first", read: count },
    Parameter { name: "period", value_name: "D", help: "The length of a window", read: length },
    Parameter { name: "quota", value_name: "N", help: "Calls in a window", read: at_least_one },
    Parameter {
        name: "fraction",
        value_name: "F",
        help: "A delay is lengthened by a random part of it, up to this fraction",
        read: fraction,
    },
    Parameter { name: "seed", value_name: "N", help: "Another seed gives other random parts", read: seed },
];

pub(crate) fn parameter(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|p| p.name == name)
}

/// The number of inner limiters of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Nothing,
    One,
    Some,
}

/// A kind of limiter.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// The names of its parameters, each with its default. A parameter without one is required.
    parameters: &'static [(&'static str, Option<&'static str>)],
    within: Within,
    /// Builds it from the values of its parameters, in order, and the inner limiters. The maximum of one
    /// delay is that delay, so a kind with a single inner limiter takes the list too.
    build: fn(&[Value], Vec<Built>) -> Result<Built, LimiterError>,
}

/// The kinds of limiters. Defaults are those of client-go's default controller limiter, if it has any.
pub(crate) const KINDS: [Kind; 10] = [
    Kind {
        name: "bucket",
        help: "All keys at a rate, after a burst",
        parameters: &[("rate", Some("10")), ("burst", Some("100"))],
        within: Within::Nothing,
        build: |values, _| Ok(Box::new(Bucket::new(values[0].number(), values[1].count())?)),
    },
    Kind {
        name: "per-key-bucket",
        help: "Each key at a rate, after a burst",
        parameters: &[("rate", Some("10")), ("burst", Some("100"))],
        within: Within::Nothing,
        build: |values, _| Ok(Box::new(PerKeyBucket::new(values[0].number(), values[1].count())?)),
    },
    Kind {
        name: "exponential",
        help: "A delay that doubles with each failure of a key",
        parameters: &[("base", Some("5ms")), ("max", Some("1000s"))],
        within: Within::Nothing,
        build: |values, _| Ok(Box::new(Exponential::new(values[0].time(), values[1].time())?)),
    },
    Kind {
        name: "fast-slow",
        help: "A few short delays of a key, then long ones",
        parameters: &[("fast", None), ("slow", None), ("after", None)],
        within: Within::Nothing,
        build: |values, _| Ok(Box::new(FastSlow::new(values[0].time(), values[1].time(), values[2].count()))),
    },
    Kind {
        name: "window",
        help: "So many keys in each window of time",
        parameters: &[("period", None), ("quota", None)],
        within: Within::Nothing,
        build: |values, _| Ok(Box::new(Window::new(values[0].time(), values[1].count())?)),
    },
    Kind {
        name: "default",
        help: "Controllers' default: exponential, 5ms to 1000s, and a bucket of 10 a second, burst 100",
        parameters: &[],
        within: Within::Nothing,
        build: |_, _| Ok(Box::new(default_controller())),
    },
    Kind {
        name: "default-per-item",
        help: "The default for single keys: exponential, 1ms to 1000s",
        parameters: &[],
        within: Within::Nothing,
        build: |_, _| Ok(Box::new(default_per_item())),
    },
    Kind {
        name: "max-of",
        help: "The longest delay of several limiters",
        parameters: &[],
        within: Within::Some,
        build: |_, within| Ok(Box::new(MaxOf::new(within)?)),
    },
    Kind {
        name: "max-wait",
        help: "Another limiter, whose delays are cut",
        parameters: &[("max", None)],
        within: Within::One,
        build: |values, within| Ok(Box::new(WithMaxWait::new(MaxOf::new(within)?, values[0].time()))),
    },
    Kind {
        name: "jitter",
        help: "Another limiter, whose delays are lengthened at random",
        parameters: &[("fraction", None), ("seed", Some("0"))],
        within: Within::One,
        build: |values, within| {
            Ok(Box::new(Jitter::new(MaxOf::new(within)?, values[0].number(), values[1].seed())?))
        },
    },
];

/// A limiter with the values of all its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Limiter {
    kind: &'static Kind,
    values: Vec<Value>,
    /// Indexes of the parameters that have their default.
    defaults: Vec<usize>,
    within: Vec<Limiter>,
}

impl Limiter {
    /// Reads the text of a limiter.
    ///
    /// # Errors
    ///
    /// The problem, and a valid form.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        Self::new(&spec::parse(text)?, &[], Vec::new())
    }

    /// The limiter of `spec`, with these parameters, and these inner limiters in addition to its own.
    ///
    /// # Errors
    ///
    /// Like [`read`](Self::read).
    pub(crate) fn new(
        spec: &Spec,
        options: &[(&'static Parameter, Value)],
        mut within: Vec<Self>,
    ) -> Result<Self, String> {
        let kind = kind(&spec.name)?;
        let mut values = vec![None; kind.parameters.len()];
        for (name, text) in &spec.parameters {
            let at = kind.position(name).ok_or_else(|| kind.has_no(name, ""))?;
            let parameter = parameter(name).ok_or_else(|| kind.has_no(name, ""))?;
            let value = (parameter.read)(text).map_err(|why| format!("{name}={text}: {why}"))?;
            if values[at].replace(value).is_some() {
                return Err(format!("{name} is given twice"));
            }
        }
        for (parameter, value) in options {
            let at = kind.position(parameter.name).ok_or_else(|| kind.has_no(parameter.name, "--"))?;
            if values[at].replace(*value).is_some() {
                return Err(format!("{0} is given twice: as --{0} and in the text", parameter.name));
            }
        }
        let mut defaults = Vec::new();
        for (at, ((name, default), value)) in kind.parameters.iter().zip(&mut values).enumerate() {
            if let (None, Some(text), Some(parameter)) = (&*value, default, parameter(name)) {
                *value = Some((parameter.read)(text)?);
                defaults.push(at);
            }
        }
        let given: Vec<Value> = values.iter().copied().flatten().collect();
        if given.len() < values.len() {
            let missing = kind.parameters.iter().zip(&values).filter(|(_, value)| value.is_none());
            let missing: Vec<&str> = missing.map(|((name, _), _)| *name).collect();
            return Err(kind.needs(&missing));
        }
        let mut inner =
            spec.inner.iter().map(|s| Self::new(s, &[], Vec::new())).collect::<Result<Vec<_>, _>>()?;
        inner.append(&mut within);
        kind.may_hold(inner.len())?;
        let limiter = Self { kind, values: given, defaults, within: inner };
        limiter.build()?;
        Ok(limiter)
    }

    /// Sets this seed wherever none was given, so that two commands with one text do not draw the same random
    /// numbers.
    pub(crate) fn seeded(mut self, seed: u64) -> Self {
        for at in &self.defaults {
            if let value @ Value::Seed(_) = &mut self.values[*at] {
                *value = Value::Seed(seed);
            }
        }
        self.within = self.within.into_iter().map(|limiter| limiter.seeded(seed)).collect();
        self
    }

    /// The library's limiter, without any calls yet.
    ///
    /// # Errors
    ///
    /// The library's error.
    pub(crate) fn build(&self) -> Result<Built, String> {
        let within = self.within.iter().map(Self::build).collect::<Result<Vec<_>, _>>()?;
        (self.kind.build)(&self.values, within).map_err(|e| match e {
            LimiterError::MaxBelowBase { base, max } => format!(
                "max={} is shorter than base={}: it must be at least as long",
                duration::exact(max),
                duration::exact(base)
            ),
            e => format!("{}: {e}", self.kind.name),
        })
    }
}

/// The text that gives this limiter, with brackets and all defaults.
impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name)?;
        let mut before = '(';
        for ((name, _), value) in self.kind.parameters.iter().zip(&self.values) {
            write!(f, "{before}{name}={value}")?;
            before = ',';
        }
        for inner in &self.within {
            write!(f, "{before}{inner}")?;
            before = ',';
        }
        if before == ',' { f.write_char(')') } else { Ok(()) }
    }
}

/// Reads the text of a limiter whose parameters may follow as options.
///
/// # Errors
///
/// If it is not one.
pub(crate) fn named(text: &str) -> Result<Spec, String> {
    let spec = spec::parse(text)?;
    kind(&spec.name).map(|_| spec)
}

fn kind(name: &str) -> Result<&'static Kind, String> {
    KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        format!("there is no limiter {name:?}; there are {}", names.join(", "))
    })
}

impl Kind {
    fn position(&self, name: &str) -> Option<usize> {
        self.parameters.iter().position(|(own, _)| *own == name)
    }

    /// Its usage, for the help.
    pub(crate) fn usage(&self) -> String {
        let mut out = self.name.to_owned();
        for (name, default) in self.parameters {
            let value_name = parameter(name).map_or("V", |p| p.value_name);
            // A String takes everything.
            let _ = match default {
                Some(default) => write!(out, " [--{name} {value_name}={default}]"),
                None => write!(out, " --{name} {value_name}"),
            };
        }
        out.push_str(match self.within {
            Within::Nothing => "",
            Within::One => " LIMITER",
            Within::Some => " LIMITER...",
        });
        out
    }

    fn has_no(&self, name: &str, dashes: &str) -> String {
        let own: Vec<String> = self.parameters.iter().map(|(own, _)| format!("{dashes}{own}")).collect();
        let has =
            if own.is_empty() { "it has no parameters".to_owned() } else { format!("it has {}", list(&own)) };
        let mut out = format!("{} has no {dashes}{name}; {has}", self.name);
        if self.within != Within::Nothing && !dashes.is_empty() {
            if let Some(other) = KINDS.iter().find(|kind| kind.position(name).is_some()) {
                let _ =
                    write!(out, "; a limiter within takes it in its text, as in {}:{name}=...", other.name);
            }
        }
        out
    }

    fn needs(&self, missing: &[&str]) -> String {
        let options: Vec<String> = missing.iter().map(|name| format!("--{name}")).collect();
        let texts: Vec<String> = missing.iter().map(|name| format!("{name}=...")).collect();
        format!("{0} needs {1}, or as text {0}:{2}", self.name, list(&options), texts.join(","))
    }

    fn may_hold(&self, count: usize) -> Result<(), String> {
        let name = self.name;
        match (self.within, count) {
            (Within::Nothing, 0) | (Within::One, 1) | (Within::Some, 1..) => Ok(()),
            (Within::Nothing, _) => Err(format!(
                "{name} takes no limiter; several go into max-of, as in max-of {name} exponential:base=1s \
                 (in one text, with brackets: max-of({name},exponential(base=1s)))"
            )),
            (Within::One, 0) => {
                Err(format!("{name} needs another limiter, as in {name} exponential:base=1s"))
            }
            (Within::One, _) => {
                Err(format!("{name} takes one limiter; several go into max-of, as in {name} 'max-of(A,B)'"))
            }
            (Within::Some, _) => {
                Err(format!("{name} needs limiters, as in {name} bucket exponential:base=1s"))
            }
        }
    }
}

fn list(words: &[String]) -> String {
    match words {
        [some @ .., last] if !some.is_empty() => format!("{} and {last}", some.join(", ")),
        words => words.concat(),
    }
}

fn length(text: &str) -> Result<Value, String> {
    duration::parse(text).map(Value::Duration)
}

/// Reads digits with or without a point; `1e3`, `nan` and signs are slips.
fn plain(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|n: &f64| plain && n.is_finite())
}

fn rate(text: &str) -> Result<Value, String> {
    let rate = if text == "inf" { Some(f64::INFINITY) } else { plain(text) };
    match rate {
        Some(rate) if rate > 0.0 => Ok(Value::Number(rate)),
        Some(_) => Err("give more than 0 calls a second, such as 0.5, or inf for no limit".to_owned()),
        None => {
            Err("give calls a second in digits, such as 10 or 0.001 (not 1e-3), or inf for no limit"
                .to_owned())
        }
    }
}

fn fraction(text: &str) -> Result<Value, String> {
    plain(text).map(Value::Number).ok_or_else(|| "give a number from 0 on, such as 0.2".to_owned())
}

fn count(text: &str) -> Result<Value, String> {
    text.parse().map(Value::Count).map_err(|_| format!("give a whole number from 0 to {}", u32::MAX))
}

fn at_least_one(text: &str) -> Result<Value, String> {
    match text.parse() {
        Ok(n @ 1..) => Ok(Value::Count(n)),
        _ => Err(format!("give a whole number from 1 to {}", u32::MAX)),
    }
}

fn seed(text: &str) -> Result<Value, String> {
    text.parse().map(Value::Seed).map_err(|_| format!("give a whole number from 0 to {}", u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limiter_is_built_and_written_as_it_can_be_read() {
        for kind in &KINDS {
            let parameters = kind.parameters.iter().map(|(name, default)| {
                let parameter = parameter(name).unwrap();
                let text = default.unwrap_or(match parameter.value_name {
                    "D" => "1.5s",
                    "F" => "0.5",
                    _ => "7",
                });
                format!("{name}={text}")
            });
            let mut items: Vec<String> = parameters.collect();
            if kind.within != Within::Nothing {
                items.push("default".to_owned());
            }
            let text = if items.is_empty() {
                kind.name.to_owned()
            } else {
                format!("{}({})", kind.name, items.join(","))
            };
            let limiter = Limiter::read(&text).unwrap();
            assert!(limiter.build().is_ok(), "{text}");
            assert_eq!(limiter.to_string(), text);
        }
    }

    #[test]
    fn every_parameter_belongs_to_a_limiter() {
        for parameter in &PARAMETERS {
            assert!(KINDS.iter().any(|kind| kind.position(parameter.name).is_some()), "{parameter:?}");
        }
    }

    #[test]
    fn a_seed_that_was_given_stays_and_any_other_is_drawn() {
        let text = "max-of(jitter(fraction=0.2,default),jitter(fraction=0.2,seed=0,default))";
        let seeded = Limiter::read(text).unwrap().seeded(7).to_string();
        assert_eq!(seeded.replace("seed=7,", ""), text);
    }

    #[test]
    fn limiters_in_limiters_are_written_with_brackets() {
        let text = "jitter:fraction=0.2,max-of(exponential(base=5ms),max-wait:max=3s,bucket:rate=0.5)";
        let whole = "jitter(fraction=0.2,seed=0,max-of(exponential(base=5ms,max=1000s),\
                     max-wait(max=3s,bucket(rate=0.5,burst=100))))";
        assert_eq!(Limiter::read(text).unwrap().to_string(), whole);
        assert_eq!(Limiter::read(whole).unwrap().to_string(), whole);
    }
}
