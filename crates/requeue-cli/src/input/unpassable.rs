//! Keys that no program can get.

/// The reason why a key cannot reach the program at all: trying again would not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpassable {
    /// An argument ends at its first NUL.
    HoldsNul,
    /// Longer than the system takes for one argument or variable.
    TooLong,
    /// With `--priority`: the line does not begin with one.
    NoPriority,
    /// With `--merge`: there is nothing before the line's tab.
    NoKey,
    /// A variable ends at its first NUL.
    PayloadHoldsNul,
    /// Longer than the system takes for one variable.
    PayloadTooLong,
}

impl std::fmt::Display for Unpassable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::HoldsNul => "the key holds a NUL, which no argument can",
            Self::TooLong => "the key is longer than the system can pass to a program",
            Self::NoPriority => "with --priority a line is a number from -32768 to 32767, a tab, and the key",
            Self::NoKey => {
                "with --merge a line is the key, a tab, and a value: before the tab there is no key"
            }
            Self::PayloadHoldsNul => "the value holds a NUL, which no variable can",
            Self::PayloadTooLong => {
                "the values are longer than the system can pass to a program in one variable"
            }
        })
    }
}
