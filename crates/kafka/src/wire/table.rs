//! The macro in which messages are written down: one table of fields per structure, from which
//! come the structure, its defaults, decoding and encoding for all versions.
//!
//! ```text
//! /// What it is.
//! pub struct Name {
//!     field: Type [versions],                  present in these versions
//!     field: Type [versions] = default,        value where it is absent
//!     field: Option<Type> [versions, nullable since],
//!     field: Type [versions, tag number],      tagged; written when it is not the default
//! }
//! ```
//!
//! A field that the version written does not have is left out; one that the version read does not
//! have gets its default. Tags stand in ascending order.

macro_rules! messages {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident {
            $(
                $(#[$field_about:meta])*
                $field:ident : $type:ty
                    [ $versions:expr $(, nullable $nullable:literal)? $(, tag $tag:literal)? ]
                    $(= $default:expr)? ,
            )*
        }
    )*) => {$(
        $(#[$about])*
        #[allow(missing_docs, reason = "fields without a doc carry the protocol's own name")]
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name {
            $( $(#[$field_about])* pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $( $field: $crate::wire::table::default_of!($type $(, $default)?), )* }
            }
        }

        #[allow(unused_variables, unused_mut, reason = "some tables have no fields, or no tags")]
        impl $crate::wire::Wire for $name {
            fn decode(
                reader: &mut $crate::wire::Reader,
                _nullable: bool,
            ) -> Result<Self, $crate::wire::DecodeError> {
                let version = reader.version();
                let mut message = Self::default();
                $(
                    if $crate::wire::table::tag_of!($($tag)?).is_none() && ($versions).contains(&version) {
                        let nullable = $crate::wire::table::nullable_in!(version $(, $nullable)?);
                        message.$field = $crate::wire::Wire::decode(reader, nullable).map_err(
                            |error: $crate::wire::DecodeError| {
                                error.in_field(concat!(stringify!($name), ".", stringify!($field)))
                            },
                        )?;
                    }
                )*
                reader
                    .tagged_fields(|tag, reader| {
                        $(
                            if $crate::wire::table::tag_of!($($tag)?) == Some(tag)
                                && ($versions).contains(&version)
                            {
                                let nullable =
                                    $crate::wire::table::nullable_in!(version $(, $nullable)?);
                                message.$field = $crate::wire::Wire::decode(reader, nullable)?;
                                return Ok(true);
                            }
                        )*
                        Ok(false)
                    })
                    .map_err(|error| error.in_field(concat!(stringify!($name), " tags")))?;
                Ok(message)
            }

            fn encode(&self, writer: &mut $crate::wire::Writer, _nullable: bool) {
                let version = writer.version();
                $(
                    if $crate::wire::table::tag_of!($($tag)?).is_none() && ($versions).contains(&version) {
                        let nullable = $crate::wire::table::nullable_in!(version $(, $nullable)?);
                        $crate::wire::Wire::encode(&self.$field, writer, nullable);
                    }
                )*
                if writer.flexible() {
                    let mut tagged = Vec::new();
                    $(
                        if let Some(tag) = $crate::wire::table::tag_of!($($tag)?)
                            && ($versions).contains(&version)
                            && self.$field != $crate::wire::table::default_of!($type $(, $default)?)
                        {
                            let mut inner = writer.inner();
                            let nullable =
                                $crate::wire::table::nullable_in!(version $(, $nullable)?);
                            $crate::wire::Wire::encode(&self.$field, &mut inner, nullable);
                            tagged.push((tag, inner));
                        }
                    )*
                    writer.tagged_fields(tagged);
                }
            }

            fn bytes_min(version: i16, flexible: bool) -> usize {
                let mut bytes = usize::from(flexible);
                $(
                    if $crate::wire::table::tag_of!($($tag)?).is_none() && ($versions).contains(&version) {
                        bytes += <$type as $crate::wire::Wire>::bytes_min(version, flexible);
                    }
                )*
                bytes
            }
        }

        #[cfg(test)]
        #[allow(unused_variables, unused_mut, reason = "some tables have no fields")]
        impl $crate::wire::sample::Sample for $name {
            fn sample(source: &mut $crate::wire::sample::Source, _nullable: bool) -> Self {
                let mut message = Self::default();
                $(
                    if ($versions).contains(&source.version()) {
                        let nullable =
                            $crate::wire::table::nullable_in!(source.version() $(, $nullable)?);
                        message.$field = $crate::wire::sample::Sample::sample(source, nullable);
                    }
                )*
                message
            }
        }
    )*};
}

/// The default written in the table, or that of the type.
macro_rules! default_of {
    ($type:ty) => {
        <$type>::default()
    };
    ($type:ty, $default:expr) => {
        $default
    };
}

/// The tag of a field; `None` for one that stands in its place.
macro_rules! tag_of {
    () => {
        None::<u32>
    };
    ($tag:literal) => {
        Some::<u32>($tag)
    };
}

/// Whether null is allowed in this version.
macro_rules! nullable_in {
    ($version:expr) => {
        false
    };
    ($version:expr, $since:literal) => {
        $version >= $since
    };
}

pub(crate) use {default_of, messages, nullable_in, tag_of};
