//! The data of a node, for people and for programs.

use serde::Serialize;

use crate::text::shown;

/// The longest data, in bytes, that is shown as hexadecimal digits if it is not text.
const SHORT: usize = 16;

/// Formats data: text as it is, other data as hexadecimal digits or as its length.
#[must_use]
pub fn shown_data(data: &[u8]) -> String {
    match std::str::from_utf8(data) {
        Ok(_) => shown(data),
        Err(_) if data.len() <= SHORT => format!("0x{}", hex(data)),
        Err(_) => format!("{} bytes", data.len()),
    }
}

/// The fields of JSON that have the data of a node: as text, or as hexadecimal digits if it is not text.
#[derive(Debug, Default, Serialize)]
pub struct DataFields<'a> {
    data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_hex: Option<String>,
}

impl<'a> DataFields<'a> {
    /// Returns the fields of this data.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        let data = std::str::from_utf8(bytes).ok();
        Self { data, data_hex: data.is_none().then(|| hex(bytes)) }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_shown_as_text_as_digits_or_by_its_length() {
        assert_eq!([shown_data(b""), shown_data(b"10.0.0.1\n")], ["-", "10.0.0.1\\n"]);
        assert_eq!([shown_data(&[0xff, 0x0a]), shown_data(&[0xff; 17])], ["0xff0a", "17 bytes"]);
    }
}
