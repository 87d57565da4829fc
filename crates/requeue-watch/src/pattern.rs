//! The pattern of one line of a `.gitignore`, as in `gitignore(5)`.
//!
//! No library is used, because each that we tried differs from git. The crate `ignore` takes `{a,b}` for a
//! choice and drops a tab at the end of a line. `gix-glob` 0.27, the last one that compiles with our oldest
//! Rust, accepts only a blank for `[[:space:]]`, and differs if a class is not closed.

/// One element of a pattern, which matches one or more bytes of a path.
#[derive(Debug)]
enum Token {
    Byte(u8),
    /// One byte of a set, which never holds the slash.
    OneOf(Box<[bool; 256]>),
    /// `*`: any number of bytes, but no slash.
    Star,
    /// `**` at the end of a path's pattern: any number of bytes.
    Anything,
    /// `**/`: no directory, or any number of them.
    Directories,
}

/// A parsed pattern. One without a slash is compared with a name, one with a slash with a path; there is no
/// other difference.
#[derive(Debug)]
pub(crate) struct Pattern {
    tokens: Vec<Token>,
}

impl Pattern {
    /// `None` if nothing can match it: a trailing backslash, an unclosed bracket, or an unknown class.
    pub(crate) fn new(text: &[u8]) -> Option<Self> {
        let (mut tokens, mut at) = (Vec::new(), 0);
        // As git has it, what follows a literal beginning is a pattern by itself: "a**/b"
        // is "a" and then "**/b".
        let literal = text.iter().position(|b| br"*?[\".contains(b)).unwrap_or(text.len());
        while let Some(byte) = text.get(at) {
            at += 1;
            tokens.push(match byte {
                b'?' => Token::OneOf(set(|byte| byte != b'/')),
                b'[' => Token::OneOf(bracket(text, &mut at)?),
                b'\\' => {
                    at += 1;
                    Token::Byte(*text.get(at - 1)?)
                }
                b'*' => {
                    let begins = at - 1 == literal || text[at - 2] == b'/';
                    let stars = text[at - 1..].iter().take_while(|b| **b == b'*').count();
                    at += stars - 1;
                    match &text[at..] {
                        _ if stars == 1 || !begins => Token::Star,
                        [] | [b'\\', b'/', ..] => Token::Anything,
                        [b'/', ..] => {
                            at += 1;
                            Token::Directories
                        }
                        _ => Token::Star,
                    }
                }
                byte => Token::Byte(*byte),
            });
        }
        Some(Self { tokens })
    }

    /// Whether all of the text matches. Takes at most time proportional to the product of both lengths.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        // How much of the text the tokens so far can have matched.
        let mut matched = vec![false; text.len() + 1];
        matched[0] = true;
        for token in &self.tokens {
            // Whether they have matched what lies before, in any way.
            let mut before = false;
            let mut last = false;
            for at in 0..matched.len() {
                let byte = at.checked_sub(1).map(|at| text[at]);
                let here = matched[at];
                matched[at] = match token {
                    Token::Byte(wanted) => last && byte == Some(*wanted),
                    Token::OneOf(set) => last && byte.is_some_and(|byte| set[usize::from(byte)]),
                    Token::Star => here || (at > 0 && matched[at - 1] && byte != Some(b'/')),
                    Token::Anything => here || before,
                    Token::Directories => here || (before && byte == Some(b'/')),
                };
                last = here;
                before |= here;
            }
            if !matched.contains(&true) {
                return false;
            }
        }
        matched[text.len()]
    }
}

fn set(holds: impl Fn(u8) -> bool) -> Box<[bool; 256]> {
    let mut set = Box::new([false; 256]);
    for byte in 0..=u8::MAX {
        set[usize::from(byte)] = holds(byte);
    }
    set
}

/// Parses a bracket expression, after its first character. Moves `at` behind it.
fn bracket(text: &[u8], at: &mut usize) -> Option<Box<[bool; 256]>> {
    let next = |at: &mut usize| {
        *at += 1;
        text.get(*at - 1).copied()
    };
    let negated = matches!(text.get(*at), Some(b'!' | b'^'));
    *at += usize::from(negated);
    let mut holds = Box::new([false; 256]);
    // Where a range would begin.
    let mut previous = None;
    let mut byte = next(at)?;
    loop {
        previous = match byte {
            b'-' if previous.is_some() && !matches!(text.get(*at), None | Some(b']')) => {
                let mut last = next(at)?;
                if last == b'\\' {
                    last = next(at)?;
                }
                (previous.unwrap_or(last)..=last).for_each(|byte| holds[usize::from(byte)] = true);
                None
            }
            b'[' if text.get(*at) == Some(&b':') => {
                let end = *at + 1 + text[*at + 1..].iter().position(|b| *b == b']')?;
                match text[*at + 1..end].strip_suffix(b":") {
                    Some(name) => {
                        let class = class(name)?;
                        (0..=u8::MAX).for_each(|byte| holds[usize::from(byte)] |= class(byte));
                        *at = end + 1;
                        None
                    }
                    // No class, but a bracket like any other byte.
                    None => {
                        holds[usize::from(b'[')] = true;
                        Some(b'[')
                    }
                }
            }
            byte => {
                let byte = if byte == b'\\' { next(at)? } else { byte };
                holds[usize::from(byte)] = true;
                Some(byte)
            }
        };
        byte = next(at)?;
        if byte == b']' {
            return Some(set(|byte| holds[usize::from(byte)] != negated && byte != b'/'));
        }
    }
}

/// A character class of git: ASCII only, and with git's own definition of space.
fn class(name: &[u8]) -> Option<fn(u8) -> bool> {
    let space = |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    Some(match name {
        b"alnum" => |byte| byte.is_ascii_alphanumeric(),
        b"alpha" => |byte| byte.is_ascii_alphabetic(),
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => |byte| byte.is_ascii_control(),
        b"digit" => |byte| byte.is_ascii_digit(),
        b"graph" => |byte| byte.is_ascii_graphic(),
        b"lower" => |byte| byte.is_ascii_lowercase(),
        b"print" => |byte| byte.is_ascii_graphic() || byte == b' ',
        b"punct" => |byte| byte.is_ascii_punctuation(),
        b"space" => space,
        b"upper" => |byte| byte.is_ascii_uppercase(),
        b"xdigit" => |byte| byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_gitignore_5_says() {
        for (pattern, yes, no) in [
            ("a*c", &["ac", "abc", "a*c"][..], &["a", "a/c", "abcd"][..]),
            ("a?c", &["abc"], &["ac", "a/c"]),
            ("**/c", &["c", "a/c", "a/b/c"], &["ac", "c/a"]),
            ("a/**/c", &["a/c", "a/b/c", "a/b/b/c"], &["ac", "a/bc", "b/a/c"]),
            ("a/**", &["a/b", "a/b/c"], &["a", "b/a/c"]),
            ("a/**b", &["a/b", "a/cb"], &["a/c/b"]),
            ("[a-c]", &["a", "b", "c"], &["d", "-"]),
            ("[!a-c]", &["d", "-"], &["a", "/"]),
            ("[]-]", &["]", "-"], &["a"]),
            ("[a\\-c]", &["a", "-", "c"], &["b", "\\"]),
            ("[[:digit:]x]", &["1", "x"], &["a", ":"]),
            ("[[:digit]x]", &["[x]", ":x]", "dx]"], &["1x]", "x"]),
            ("\\*\\a", &["*a"], &["\\*\\a", "ba"]),
        ] {
            let pattern_read = Pattern::new(pattern.as_bytes()).unwrap();
            for (texts, is) in [(yes, true), (no, false)] {
                for text in texts {
                    assert_eq!(pattern_read.matches(text.as_bytes()), is, "{pattern} {text}");
                }
            }
        }
        for pattern in ["a\\", "[a", "[[:nope:]]", "[", "[a\\", "[[:alpha:"] {
            assert!(Pattern::new(pattern.as_bytes()).is_none(), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_time() {
        let pattern = Pattern::new("*a".repeat(1000).as_bytes()).unwrap();
        assert!(!pattern.matches("a".repeat(999).as_bytes()));
        assert!(pattern.matches("ba".repeat(1000).as_bytes()));
    }
}
