//! The macro that declares a structure together with its size and offsets.

/// What the header test needs to know of a structure.
#[cfg(test)]
pub struct Layout {
    /// The structure's tag in C.
    pub name: &'static str,
    /// `sizeof`.
    pub size: usize,
    /// For each field its designator in C (perhaps with an offset behind `+`) and its offset.
    pub fields: &'static [(&'static str, usize)],
}

/// Octets by which a mutex of this machine's C library is longer than that of x86-64: what stands behind one in a
/// structure stands so much later.
pub const MUTEX_MORE: usize = std::mem::size_of::<libc::pthread_mutex_t>() - 40;

/// `struct NAME = SIZE { OFFSET [as "C DESIGNATOR"]: FIELD: TYPE, ... }`, in octets on x86-64; with `+ MUTEX_MORE`
/// behind them where a mutex stands before.
macro_rules! c_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident = $size:literal $(+ $more:ident)? {
            $(
                $(#[$field_meta:meta])*
                $offset:literal $(+ $later:ident)? $(as $c:literal)? : $field:ident : $type:ty,
            )*
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        const _: () = {
            assert!(std::mem::size_of::<$name>() == $size $(+ crate::layout::c_struct::$more)?);
            $(
                assert!(
                    std::mem::offset_of!($name, $field)
                        == $offset $(+ crate::layout::c_struct::$later)?
                );
            )*
        };

        #[cfg(test)]
        impl $name {
            /// The layout as declared here.
            pub const LAYOUT: crate::layout::c_struct::Layout = crate::layout::c_struct::Layout {
                name: stringify!($name),
                size: $size $(+ crate::layout::c_struct::$more)?,
                fields: &[ $(
                    (c_designator!($field $($c)?), $offset $(+ crate::layout::c_struct::$later)?),
                )* ],
            };
        }
    };
}

/// The field's designator in C: its name, unless another is given.
#[cfg(test)]
macro_rules! c_designator {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $c:literal) => {
        $c
    };
}
