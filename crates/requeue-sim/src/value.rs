//! [`Value`]: the trait of values.

use std::fmt::Debug;

/// A value that triggers carry: it can be queued, written to a trace and read from it. Implemented for `()`,
/// strings, `bool`, `char` and integers; a type of your own needs two methods.
///
/// ```
/// use requeue_sim::Value;
///
/// #[derive(Clone, Debug, PartialEq, Eq)]
/// enum Reason {
///     Event,
///     Resync,
/// }
///
/// impl Value for Reason {
///     fn to_text(&self) -> String {
///         format!("{self:?}")
///     }
///     fn from_text(text: &str) -> Option<Self> {
///         [Reason::Event, Reason::Resync].into_iter().find(|reason| reason.to_text() == text)
///     }
/// }
///
/// assert_eq!(Reason::from_text(&Reason::Resync.to_text()), Some(Reason::Resync));
/// assert_eq!(u64::from_text("7"), Some(7));
/// ```
pub trait Value: Clone + Debug + Eq + Send + Sync + 'static {
    /// The value as text, of any length and with any characters.
    ///
    /// ```
    /// assert_eq!(requeue_sim::Value::to_text(&7), "7");
    /// ```
    fn to_text(&self) -> String;

    /// Reads a text that [`to_text`](Self::to_text) has made; `None` if it is invalid.
    ///
    /// ```
    /// assert_eq!(<u8 as requeue_sim::Value>::from_text("256"), None);
    /// ```
    fn from_text(text: &str) -> Option<Self>;
}

impl Value for () {
    fn to_text(&self) -> String {
        String::new()
    }
    fn from_text(text: &str) -> Option<Self> {
        text.is_empty().then_some(())
    }
}

macro_rules! values {
    ($($value:ty)*) => {$(
        impl Value for $value {
            fn to_text(&self) -> String {
                self.to_string()
            }
            fn from_text(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}
values!(String bool char u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);
