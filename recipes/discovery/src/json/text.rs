//! JSON texts with the escapes of Java's writer.

use std::io;

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};

/// Writes compact JSON with the escapes of Java's writer: control characters have upper-case digits.
struct JavaFormatter;

impl Formatter for JavaFormatter {
    fn write_char_escape<W: ?Sized + io::Write>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        let short = match escape {
            CharEscape::AsciiControl(byte) => return write!(writer, "\\u{byte:04X}"),
            CharEscape::Quote => b"\\\"",
            CharEscape::ReverseSolidus => b"\\\\",
            CharEscape::Solidus => b"\\/",
            CharEscape::Backspace => b"\\b",
            CharEscape::FormFeed => b"\\f",
            CharEscape::LineFeed => b"\\n",
            CharEscape::CarriageReturn => b"\\r",
            CharEscape::Tab => b"\\t",
        };
        writer.write_all(short)
    }
}

/// Returns the JSON of a value.
pub(crate) fn to_json(value: &(impl Serialize + ?Sized)) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, JavaFormatter))?;
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}
