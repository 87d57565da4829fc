//! Macros for code that many types share.

/// Implements `Debug` for a type whose keys, values and functions need not have it: shows the named fields,
/// and `..` for others.
///
/// ```text
/// debug!([K, V] Item<'_, K, V>, |item| { attempt: item.attempt, .. });
/// ```
macro_rules! debug {
    ([$($bounds:tt)*] $type:ident $(<$($arg:tt),+>)?, |$this:tt| { $($field:ident: $value:expr,)* .. }) => {
        debug!(@ [$($bounds)*] $type [$($($arg),+)?] $this [$($field: $value),*] finish_non_exhaustive);
    };
    ([$($bounds:tt)*] $type:ident $(<$($arg:tt),+>)?, |$this:tt| { $($field:ident: $value:expr),* }) => {
        debug!(@ [$($bounds)*] $type [$($($arg),+)?] $this [$($field: $value),*] finish);
    };
    (@ [$($bounds:tt)*] $type:ident [$($args:tt)*] $this:tt [$($field:ident: $value:expr),*] $finish:ident) => {
        impl<$($bounds)*> std::fmt::Debug for $type<$($args)*> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                f.debug_struct(stringify!($type))$(.field(stringify!($field), &$value))*.$finish()
            }
        }
    };
}

/// Writes methods that only call the method of that name on another value.
///
/// ```text
/// forward! { self => self.limiter; fn forget(&self, key: &K); }
/// ```
macro_rules! forward {
    ($self:ident => $to:expr; { $($methods:tt)* }) => {
        forward! { $self => $to; $($methods)* }
    };
    ($self:ident => $to:expr; $(fn $name:ident(&self $(, $arg:ident: $type:ty)*) $(-> $answer:ty)?;)*) => {$(
        #[inline]
        fn $name(&$self $(, $arg: $type)*) $(-> $answer)? {
            $to.$name($($arg),*)
        }
    )*};
}

/// Implements a trait for pointers to what implements it, also `dyn`: each method calls that of the pointee.
///
/// ```text
/// for_pointers! { Clock for (Arc, Box) { fn now(&self) -> Instant; } }
/// ```
macro_rules! for_pointers {
    ($implemented:ident for ($($pointer:ident),+) $methods:tt) => {$(
        impl<T: $implemented + ?Sized> $implemented for $pointer<T> {
            forward! { self => **self; $methods }
        }
    )+};
}

/// Implements `Error` for an enum, with one message per variant.
///
/// ```text
/// messages!(GetError { Empty => "no key is ready" });
/// ```
macro_rules! messages {
    ($error:ident { $($variant:ident $({ $($field:ident),+ })? => $text:literal),+ $(,)? }) => {
        impl std::fmt::Display for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$variant $({ $($field),+ })? => write!(f, $text),)+
                }
            }
        }

        impl std::error::Error for $error {}
    };
}
