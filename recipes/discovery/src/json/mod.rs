//! The JSON of Java's Curator.
//!
//! | file | part |
//! | --- | --- |
//! | `text` | texts with Java's escapes |
//! | `writer` | the fields of an instance in Java's order |
//! | `reader` | the fields of an instance, as leniently as Java reads them |
//! | `typing` | Java's class in a payload |
//! | `serializer` | the codec of an instance, and the trait of other codecs |

mod reader;
pub(crate) mod serializer;
#[cfg(test)]
mod tests;
pub(crate) mod text;
pub(crate) mod typing;
mod writer;
