//! The parts of a connection string, with options that tokio-postgres does not read.

use requeue::BoxError;

/// The options of a connection string, as written.
#[derive(Clone)]
pub(crate) struct ConnString {
    /// The part of a URL before its options; `None` if the string is not a URL.
    url: Option<String>,
    /// Options of the form `name=value`.
    options: Vec<String>,
}

fn name(option: &str) -> &str {
    option.split_once('=').map_or(option, |(name, _)| name).trim()
}

impl ConnString {
    pub(crate) fn of(config: &str) -> Self {
        if !config.starts_with("postgres://") && !config.starts_with("postgresql://") {
            return Self { url: None, options: split(config) };
        }
        let (url, options) = config.split_once('?').unwrap_or((config, ""));
        let options = options.split('&').filter(|option| !option.is_empty()).map(str::to_owned).collect();
        Self { url: Some(url.to_owned()), options }
    }

    /// Removes an option. Returns its value as written; of several, the last one counts.
    fn take_raw(&mut self, wanted: &str) -> Option<String> {
        let all = std::mem::take(&mut self.options);
        let (taken, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|option| name(option) == wanted);
        self.options = rest;
        taken.last().map(|option| option.split_once('=').map_or("", |(_, value)| value.trim()).to_owned())
    }

    /// Removes an option. Returns its value.
    pub(crate) fn take(&mut self, wanted: &str) -> Option<String> {
        let value = self.take_raw(wanted)?;
        Some(match self.url {
            Some(_) => percent_encoding::percent_decode_str(&value).decode_utf8_lossy().into_owned(),
            None => unquoted(&value),
        })
    }

    /// Whether an option is present.
    pub(crate) fn says(&self, wanted: &str) -> bool {
        self.options.iter().any(|option| name(option) == wanted)
    }

    /// Adds an option, whose value is a plain word.
    #[cfg(feature = "rustls")]
    pub(crate) fn put(&mut self, option: &str) {
        self.options.push(option.to_owned());
    }

    /// Removes `direct_host` and `direct_port`. Returns the string for that host, if one is named.
    pub(crate) fn take_direct(&mut self) -> Result<Option<Self>, BoxError> {
        let (host, port) = (self.take_raw("direct_host"), self.take_raw("direct_port"));
        let Some(host) = host else {
            return if port.is_some() { Err("direct_port without direct_host".into()) } else { Ok(None) };
        };
        if self.url.is_some() {
            let port = port.map_or(String::new(), |port| format!(":{port}"));
            return Ok(Some(self.clone().with_hosts(&format!("{host}{port}"))));
        }
        let mut direct = self.clone().without_hosts();
        direct.options.push(format!("host={host}"));
        direct.options.extend(port.map(|port| format!("port={port}")));
        Ok(Some(direct))
    }

    /// The string without its hosts.
    pub(crate) fn without_hosts(self) -> Self {
        self.with_hosts("")
    }

    /// The string with these hosts in place of its own, if it is a URL.
    fn with_hosts(mut self, hosts: &str) -> Self {
        for option in ["host", "hostaddr", "port"] {
            self.take_raw(option);
        }
        if let Some(url) = &mut self.url {
            let begin = url.find("://").map_or(0, |at| at + 3);
            let end = url[begin..].find('/').map_or(url.len(), |at| begin + at);
            let begin = url[begin..end].rfind('@').map_or(begin, |at| begin + at + 1);
            url.replace_range(begin..end, hosts);
        }
        self
    }

    /// The string in one piece.
    pub(crate) fn join(self) -> String {
        match self.url {
            Some(url) if self.options.is_empty() => url,
            Some(url) => format!("{url}?{}", self.options.join("&")),
            None => self.options.join(" "),
        }
    }
}

/// The words `name=value` of a connection string that is not a URL, as written. A value may be in quotes,
/// with `\` before literal characters, and there may be spaces around `=`.
fn split(config: &str) -> Vec<String> {
    let mut options = Vec::new();
    let mut rest = config.chars().peekable();
    loop {
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
        if rest.peek().is_none() {
            return options;
        }
        let mut word = String::new();
        while let Some(c) = rest.next_if(|c| *c != '=') {
            word.push(c);
        }
        word.extend(rest.next());
        while let Some(c) = rest.next_if(|c| c.is_whitespace()) {
            word.push(c);
        }
        let mut is_quoted = false;
        while let Some(c) = rest.next_if(|c| is_quoted || !c.is_whitespace()) {
            word.push(c);
            match c {
                '\'' => is_quoted = !is_quoted,
                '\\' => word.extend(rest.next()),
                _ => {}
            }
        }
        options.push(word);
    }
}

fn unquoted(value: &str) -> String {
    let inner = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).unwrap_or(value);
    let mut plain = String::new();
    let mut characters = inner.chars();
    while let Some(c) = characters.next() {
        plain.extend(if c == '\\' { characters.next() } else { Some(c) });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direct_host_takes_the_place_of_the_others() {
        let cases = [
            (
                "host=a port=1 user=u direct_host=db direct_port=2",
                "host=a port=1 user=u",
                "user=u host=db port=2",
            ),
            ("host=a direct_host='/a b' dbname=d", "host=a dbname=d", "dbname=d host='/a b'"),
            (
                "postgres://u:p@a:1/d?direct_host=db&connect_timeout=3",
                "postgres://u:p@a:1/d?connect_timeout=3",
                "postgres://u:p@db/d?connect_timeout=3",
            ),
            ("postgres://a?direct_host=db&direct_port=2", "postgres://a", "postgres://db:2"),
            (
                "postgres://u@/d?host=%2Fa&port=1&direct_host=%2Fb",
                "postgres://u@/d?host=%2Fa&port=1",
                "postgres://u@%2Fb/d",
            ),
        ];
        for (config, rest, expected) in cases {
            let mut conn_string = ConnString::of(config);
            let direct = conn_string.take_direct().expect("it can be read").expect("one is named").join();
            assert_eq!((&*conn_string.join(), &*direct), (rest, expected), "{config}");
            direct.parse::<tokio_postgres::Config>().expect("tokio-postgres reads it");
        }
        let mut conn_string = ConnString::of("host=a direct_port=2");
        assert!(conn_string.take_direct().is_err());
        assert!(ConnString::of("host=a").take_direct().expect("it can be read").is_none());
    }

    #[test]
    fn of_an_option_that_comes_twice_the_last_one_counts() {
        let mut conn_string = ConnString::of("pool_mode=session host=a pool_mode = 'trans\\action'");
        assert_eq!(conn_string.take("pool_mode").as_deref(), Some("transaction"));
        assert_eq!((conn_string.take("pool_mode"), conn_string.join()), (None, "host=a".to_owned()));
        let mut conn_string = ConnString::of("postgres://a?pool_mode=t%72ansaction");
        assert_eq!(conn_string.take("pool_mode").as_deref(), Some("transaction"));
    }
}
