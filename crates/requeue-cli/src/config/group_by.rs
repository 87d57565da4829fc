//! `--group-by`: the group of a key.

use regex::bytes::Regex;

/// The rule for the group of a key.
#[derive(Clone, Debug)]
pub(crate) enum GroupBy {
    /// The text before the first of these; the whole key if there is none.
    Before(Vec<u8>),
    /// The match in the key, or its first group; empty without a match.
    Matched(Regex),
}

/// Reads the value of `--group-by`: an expression between slashes, or a separator.
///
/// # Errors
///
/// The problem and a valid form, to be put after the option's name.
pub(crate) fn parse(text: &str) -> Result<GroupBy, String> {
    if text.is_empty() {
        return Err("give what ends the group in a key, such as :, or an expression between slashes, \
            such as /^[a-z]+/"
            .to_owned());
    }
    let expression = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
    match expression.filter(|expression| !expression.is_empty()) {
        Some(expression) => Regex::new(expression).map(GroupBy::Matched).map_err(|error| error.to_string()),
        None => Ok(GroupBy::Before(text.as_bytes().to_vec())),
    }
}

impl GroupBy {
    /// The group of this key.
    pub(crate) fn group(&self, key: &[u8]) -> Vec<u8> {
        match self {
            Self::Before(separator) => {
                let ends = memchr::memmem::find(key, separator).unwrap_or(key.len());
                key[..ends].to_vec()
            }
            Self::Matched(expression) => {
                let found = expression.captures(key);
                let group = found.and_then(|found| found.get(1).or(found.get(0)));
                group.map_or(Vec::new(), |group| group.as_bytes().to_vec())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(by: &str, key: &str) -> String {
        String::from_utf8(parse(by).expect("it is right").group(key.as_bytes())).expect("text")
    }

    #[test]
    fn the_group_is_what_stands_before_the_separator() {
        for (by, key, expected) in [
            (":", "a:b:c", "a"),
            (":", ":b", ""),
            (":", "ab", "ab"),
            ("::", "a:b::c", "a:b"),
            ("/", "a/b", "a"),
            ("//", "http://a", "http:"),
            ("/a", "b/a", "b"),
        ] {
            assert_eq!(group(by, key), expected, "{by} {key}");
        }
    }

    #[test]
    fn the_group_is_what_the_expression_matches_or_its_first_group() {
        for (by, key, expected) in [
            ("/^[a-z]+/", "abc123", "abc"),
            ("/-([0-9]+)/", "disk-12-3", "12"),
            ("/([a-z])?[0-9]/", "7", "7"),
            ("/^[a-z]+/", "123", ""),
            ("/a\\/b/", "xa/b", "a/b"),
        ] {
            assert_eq!(group(by, key), expected, "{by} {key}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        assert!(parse("").is_err_and(|why| why.contains("between slashes")));
        assert!(parse("/(/").is_err_and(|why| why.contains("unclosed group")));
    }
}
