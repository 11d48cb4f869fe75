//! JSON texts with the escapes of Java's writer.

use std::io;

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};

/// Writes compact JSON with the escapes of Java's writer: control characters have upper-case digits, and a character beyond
/// U+FFFF is a pair of escapes.
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

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, beyond)) = rest.char_indices().find(|(_, letter)| *letter > '\u{FFFF}') {
            let (before, after) = rest.split_at(at);
            writer.write_all(before.as_bytes())?;
            for unit in beyond.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04X}")?;
            }
            rest = after.strip_prefix(beyond).unwrap_or_default();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// Returns the JSON of a value.
pub(crate) fn to_json(value: &(impl Serialize + ?Sized)) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, JavaFormatter))?;
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}
