//! The text of a limiter: `exponential:base=5ms,max=1000s`.
//!
//! ```text
//! limiter = NAME | NAME ":" items | NAME "(" items ")"
//! items   = item { "," item }
//! item    = PARAMETER "=" VALUE | limiter
//! ```
//!
//! A colon opens a list that only the end closes: of the text, or of the bracket around it. So one limiter
//! needs no quotes in a shell, and brackets are needed only if something follows. Blanks are ignored.

/// Maximum nesting of limiters: deeper nesting is a slip, and would fill the stack.
const DEEPEST: usize = 8;

/// A limiter as it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) inner: Vec<Spec>,
}

/// Reads the text of a limiter. Whether such a limiter exists is not checked.
///
/// # Errors
///
/// The problem, and a valid form.
pub(crate) fn parse(text: &str) -> Result<Spec, String> {
    let mut reader = Reader { rest: text.trim() };
    let spec = reader.limiter(0)?;
    match reader.rest {
        "" => Ok(spec),
        rest if rest.starts_with(')') => Err("there is a ) too many".to_owned()),
        rest => Err(format!("nothing can follow the ): {rest:?}; a comma is wanted between two items")),
    }
}

struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    /// The text up to one of `ends` or the end.
    fn word(&mut self, ends: &[char]) -> &'t str {
        let at = self.rest.find(ends).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(at);
        self.rest = rest;
        word.trim()
    }

    fn take(&mut self, c: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn limiter(&mut self, depth: usize) -> Result<Spec, String> {
        if depth == DEEPEST {
            return Err(format!("limiters stand in each other more than {DEEPEST} deep"));
        }
        let mut spec = Spec { name: self.word(&[':', '(', ',', ')']).to_owned(), ..Spec::default() };
        if spec.name.is_empty() {
            return Err("the name of a limiter is missing".to_owned());
        }
        let bracket = self.take('(');
        if bracket || self.take(':') {
            self.items(&mut spec, depth)?;
        }
        if bracket && !self.take(')') {
            return Err(format!("the ( after {} is not closed: a ) is missing", spec.name));
        }
        Ok(spec)
    }

    fn items(&mut self, spec: &mut Spec, depth: usize) -> Result<(), String> {
        loop {
            let all = self.rest;
            let word = self.word(&['=', ':', '(', ',', ')']);
            if word.is_empty() {
                return Err(format!("something is missing in {}: write {0}(NAME=VALUE,...)", spec.name));
            }
            if self.take('=') {
                let value = self.word(&[',', ')']);
                if value.is_empty() {
                    return Err(format!("the value of {word} is missing: write {word}=VALUE"));
                }
                spec.parameters.push((word.to_owned(), value.to_owned()));
            } else {
                self.rest = all;
                spec.inner.push(self.limiter(depth + 1)?);
            }
            if !self.take(',') {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(name: &str, parameters: &[(&str, &str)]) -> Spec {
        let parameters = parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Spec { name: name.to_owned(), parameters, inner: Vec::new() }
    }

    #[test]
    fn a_colon_and_brackets_say_the_same() {
        let expected = flat("exponential", &[("base", "5ms"), ("max", "1000s")]);
        for text in [
            "exponential:base=5ms,max=1000s",
            "exponential(base=5ms,max=1000s)",
            " exponential ( base = 5ms , max = 1000s ) ",
        ] {
            assert_eq!(parse(text).as_ref(), Ok(&expected), "{text}");
        }
        assert_eq!(parse("default"), Ok(flat("default", &[])));
    }

    #[test]
    fn limiters_stand_in_limiters() {
        let inside = flat("exponential", &[("base", "1s"), ("max", "5m")]);
        let mut jitter = flat("jitter", &[("fraction", "0.2")]);
        jitter.inner.push(inside);
        assert_eq!(parse("jitter:fraction=0.2,exponential:base=1s,max=5m").as_ref(), Ok(&jitter));
        assert_eq!(parse("jitter(exponential(base=1s,max=5m),fraction=0.2)").as_ref(), Ok(&jitter));
        let longest = Spec {
            name: "max-of".to_owned(),
            parameters: Vec::new(),
            inner: vec![jitter, flat("bucket", &[("rate", "10")])],
        };
        let text = "max-of(jitter(fraction=0.2,exponential:base=1s,max=5m),bucket:rate=10)";
        assert_eq!(parse(text).as_ref(), Ok(&longest));
    }

    #[test]
    fn slips_are_named() {
        for (text, named) in [
            ("", "name of a limiter"),
            (":base=1s", "name of a limiter"),
            ("exponential:", "something is missing in exponential"),
            ("exponential()", "something is missing in exponential"),
            ("exponential:base=1s,", "something is missing"),
            ("exponential:,base=1s", "something is missing"),
            ("exponential:base=", "value of base"),
            ("exponential(base=1s", "( after exponential is not closed"),
            ("exponential:base=1s)", ") too many"),
            ("max-of(bucket)bucket", "\"bucket\""),
            ("max-of(bucket)=3", "\"=3\""),
            ("max-of(bucket bucket", "not closed"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(named), "{text:?}: {error}");
        }
    }

    #[test]
    fn no_depth_fills_the_stack() {
        for opens in ["max-of(", "max-of:"] {
            let error = parse(&opens.repeat(1_000_000)).unwrap_err();
            assert!(error.contains("8 deep"), "{error}");
        }
    }
}
