//! Arguments: `WORKLOAD [name=value …]`.

use std::fmt;

/// The command line's parameters. A workload takes its parameters out one by one, in the order in which they
/// are printed, and then calls [`finish`](Self::finish), which refuses the rest.
#[derive(Debug)]
pub struct Args {
    workload: String,
    given: Vec<(String, String)>,
    /// The parameters taken so far, as they will be printed.
    taken: Vec<(&'static str, String)>,
    /// The names taken so far with what they accept, for the error message.
    accepted: Vec<String>,
}

/// Why nothing was measured.
#[derive(Debug, PartialEq, Eq)]
pub enum Usage {
    /// The arguments are wrong. The program ends with 2.
    Wrong(String),
    /// The implementation does not support the request. The program ends with 3.
    Cannot(String),
}

impl Usage {
    /// The program's exit status.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Wrong(_) => 2,
            Self::Cannot(_) => 3,
        }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(what) => f.write_str(what),
            Self::Cannot(what) => write!(f, "cannot be measured: {what}"),
        }
    }
}

impl std::error::Error for Usage {}

impl Args {
    /// Splits the arguments, without the program's name.
    ///
    /// # Errors
    ///
    /// If there is no workload, a parameter is not `name=value`, or a name appears twice.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, Usage> {
        let mut args = args.into_iter();
        let workload = args.next().ok_or_else(|| {
            Usage::Wrong("which workload? For example: cycle key=u64 shape=cycle".to_string())
        })?;
        let mut given: Vec<(String, String)> = Vec::new();
        for arg in args {
            let Some((name, value)) = arg.split_once('=') else {
                return Err(Usage::Wrong(format!("{arg:?} is not of the form name=value")));
            };
            if given.iter().any(|(n, _)| n == name) {
                return Err(Usage::Wrong(format!("{name} is given twice")));
            }
            given.push((name.to_string(), value.to_string()));
        }
        Ok(Self { workload, given, taken: Vec::new(), accepted: Vec::new() })
    }

    /// The workload's name.
    #[must_use]
    pub fn workload(&self) -> &str {
        &self.workload
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.given.iter().position(|(n, _)| n == name)?;
        Some(self.given.remove(at).1)
    }

    /// The implementation to measure (`impl=…`), if a program has several. It is not among the printed
    /// parameters.
    pub fn implementation(&mut self) -> Option<String> {
        self.take("impl")
    }

    /// A parameter that is one of a few words; the first one if it is not given.
    ///
    /// # Errors
    ///
    /// If it is another word.
    ///
    /// # Panics
    ///
    /// If `words` is empty.
    pub fn choice(&mut self, name: &'static str, words: &[&'static str]) -> Result<&'static str, Usage> {
        self.accepted.push(format!("{name}={}", words.join("|")));
        let word = match self.take(name) {
            None => words[0],
            Some(value) => *words.iter().find(|word| **word == value).ok_or_else(|| {
                Usage::Wrong(format!(
                    "{}: {name} must be one of {}, not {value:?}",
                    self.workload,
                    words.join(", ")
                ))
            })?,
        };
        self.taken.push((name, word.to_string()));
        Ok(word)
    }

    /// Like `choice`, but the parameter is printed only if it is not the first word: for options of a single
    /// program.
    ///
    /// # Errors
    ///
    /// If it is another word.
    pub fn own_choice(&mut self, name: &'static str, words: &[&'static str]) -> Result<&'static str, Usage> {
        let word = self.choice(name, words)?;
        if word == words[0] {
            self.taken.pop();
        }
        Ok(word)
    }

    /// A parameter that is a whole number of at least 1.
    ///
    /// # Errors
    ///
    /// If it is not a number.
    pub fn number(&mut self, name: &'static str, default: usize) -> Result<usize, Usage> {
        self.accepted.push(format!("{name}=NUMBER"));
        let number = match self.take(name) {
            None => default,
            Some(value) => value.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
                Usage::Wrong(format!(
                    "{}: {name} must be a whole number of at least 1, not {value:?}",
                    self.workload
                ))
            })?,
        };
        self.taken.push((name, number.to_string()));
        Ok(number)
    }

    /// Refuses what was not taken, and returns the parameters as they are
    /// printed.
    ///
    /// # Errors
    ///
    /// If a parameter is left over.
    pub fn finish(&mut self) -> Result<String, Usage> {
        if let Some((name, _)) = self.given.first() {
            let (workload, known) = (&self.workload, self.accepted.join(" "));
            return Err(Usage::Wrong(format!("{workload} has no parameter {name}; it has: {known}")));
        }
        let taken: Vec<String> =
            self.taken.drain(..).map(|(name, value)| format!("{name}={value}")).collect();
        Ok(taken.join(" "))
    }

    /// The error for a workload that the program does not have.
    #[must_use]
    pub fn unknown(&self, known: &[&str]) -> Usage {
        Usage::Wrong(format!(
            "there is no workload {:?} here; there are: {}",
            self.workload,
            known.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, Usage> {
        Args::parse(line.split_whitespace().map(str::to_string))
    }

    fn wrong<T: fmt::Debug>(refused: Result<T, Usage>) -> String {
        refused.unwrap_err().to_string()
    }

    #[test]
    fn parameters_are_printed_in_the_order_in_which_they_are_taken() {
        let mut args = parse("cycle n=5 shape=bulk").unwrap();
        assert_eq!(args.choice("key", &["u64", "string"]), Ok("u64"));
        assert_eq!(args.choice("shape", &["cycle", "bulk"]), Ok("bulk"));
        assert_eq!(args.own_choice("form", &["plain", "next"]), Ok("plain"));
        assert_eq!(args.number("n", 7), Ok(5));
        assert_eq!(args.finish().unwrap(), "key=u64 shape=bulk n=5");
    }

    #[test]
    fn the_implementation_is_no_parameter() {
        let mut args = parse("cycle impl=mutex").unwrap();
        assert_eq!(args.implementation().as_deref(), Some("mutex"));
        assert_eq!(args.finish().unwrap(), "");
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(wrong(parse("")).contains("which workload"));
        assert!(wrong(parse("cycle key")).contains("name=value"));
        assert!(wrong(parse("cycle n=1 n=2")).contains("twice"));
        let mut args = parse("cycle key=i8 n=0 nn=1").unwrap();
        assert!(wrong(args.choice("key", &["u64", "string"])).contains("u64, string"));
        assert!(wrong(args.number("n", 7)).contains("at least 1"));
        assert_eq!(wrong(args.finish()), "cycle has no parameter nn; it has: key=u64|string n=NUMBER");
    }
}
