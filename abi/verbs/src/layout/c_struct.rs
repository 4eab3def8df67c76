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

/// `struct NAME = SIZE { OFFSET [as "C DESIGNATOR"]: FIELD: TYPE, ... }`
macro_rules! c_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident = $size:literal {
            $( $(#[$field_meta:meta])* $offset:literal $(as $c:literal)? : $field:ident : $type:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        const _: () = {
            assert!(std::mem::size_of::<$name>() == $size);
            $( assert!(std::mem::offset_of!($name, $field) == $offset); )*
        };

        #[cfg(test)]
        impl $name {
            /// The layout as declared here.
            pub const LAYOUT: crate::layout::c_struct::Layout = crate::layout::c_struct::Layout {
                name: stringify!($name),
                size: $size,
                fields: &[ $( (c_designator!($field $($c)?), $offset), )* ],
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
