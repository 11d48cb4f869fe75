//! Reading and writing jute: numbers, strings, buffers and lists.

use std::io;

/// Bytes that are not the expected record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input ends inside the record.
    #[error("input ends early: {needed} more bytes wanted, {available} left")]
    Truncated {
        /// The number of bytes that the next field takes.
        needed: usize,
        /// The number of bytes that are left.
        available: usize,
    },
    /// A length is below −1.
    #[error("negative length {0}")]
    NegativeLength(i32),
    /// A string, buffer or list that must be there is null.
    #[error("null where a value is required")]
    Null,
    /// A string is not UTF-8.
    #[error("string is not UTF-8")]
    NotUtf8,
}

impl From<DecodeError> for io::Error {
    fn from(error: DecodeError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// Reads jute records from bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader that starts at the first of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes not read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns `true` if all bytes were read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, needed: usize) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.rest.split_at_checked(needed) else {
            let available = self.rest.len();
            return Err(DecodeError::Truncated { needed, available });
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            let available = self.rest.len();
            return Err(DecodeError::Truncated { needed: N, available });
        };
        self.rest = rest;
        Ok(*taken)
    }

    /// Reads a `boolean`: one byte, true unless zero.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] at the end of the input.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.array::<1>()? != [0])
    }

    /// Reads an `int`.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] at the end of the input.
    pub fn int(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Reads a `long`.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] at the end of the input.
    pub fn long(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// Reads a length; `None` is null.
    fn length(&mut self) -> Result<Option<usize>, DecodeError> {
        let length = self.int()?;
        if length == -1 {
            return Ok(None);
        }
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) => Err(DecodeError::NegativeLength(length)),
        }
    }

    /// Reads a `buffer` that may be null.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] or [`DecodeError::NegativeLength`].
    pub fn optional_buffer(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        match self.length()? {
            Some(length) => self.take(length).map(Some),
            None => Ok(None),
        }
    }

    /// Reads a `buffer`, null as the empty one.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] or [`DecodeError::NegativeLength`].
    pub fn buffer(&mut self) -> Result<&'a [u8], DecodeError> {
        Ok(self.optional_buffer()?.unwrap_or_default())
    }

    /// Reads a `ustring` that may be null.
    ///
    /// # Errors
    /// Any [`DecodeError`] but [`DecodeError::Null`].
    pub fn optional_string(&mut self) -> Result<Option<&'a str>, DecodeError> {
        match self.optional_buffer()? {
            Some(bytes) => match std::str::from_utf8(bytes) {
                Ok(string) => Ok(Some(string)),
                Err(_) => Err(DecodeError::NotUtf8),
            },
            None => Ok(None),
        }
    }

    /// Reads a `ustring`.
    ///
    /// # Errors
    /// Any [`DecodeError`].
    pub fn string(&mut self) -> Result<&'a str, DecodeError> {
        self.optional_string()?.ok_or(DecodeError::Null)
    }

    /// Reads a `vector`, null as the empty one, with `element` for each element.
    ///
    /// Every element must take at least one byte: a count above the number of
    /// bytes left is refused before anything is read.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`], [`DecodeError::NegativeLength`], or an error of
    /// `element`.
    pub fn vector<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.length()?.unwrap_or_default();
        let available = self.rest.len();
        if count > available {
            return Err(DecodeError::Truncated { needed: count, available });
        }
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }
}

/// Writes jute records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Creates an empty writer.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Creates a writer that appends to `bytes`: an encoder that keeps one buffer allocates nothing.
    #[must_use]
    pub const fn append_to(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Returns the written bytes: the inside of a frame, without its length.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Writes bytes as they are, without a length.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Writes a `boolean`.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.raw(&[u8::from(value)])
    }

    /// Writes an `int`.
    pub fn int(&mut self, value: i32) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    /// Writes a `long`.
    pub fn long(&mut self, value: i64) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    /// Writes a length. Nothing that fits a frame is longer than `i32::MAX`.
    fn length(&mut self, length: usize) -> &mut Self {
        self.int(i32::try_from(length).unwrap_or(i32::MAX))
    }

    /// Writes a `buffer`.
    pub fn buffer(&mut self, bytes: &[u8]) -> &mut Self {
        self.length(bytes.len()).raw(bytes)
    }

    /// Writes a null `buffer`, `ustring` or `vector`.
    pub fn null(&mut self) -> &mut Self {
        self.int(-1)
    }

    /// Writes a `buffer` that may be null.
    pub fn optional_buffer(&mut self, bytes: Option<&[u8]>) -> &mut Self {
        match bytes {
            Some(bytes) => self.buffer(bytes),
            None => self.null(),
        }
    }

    /// Writes a `ustring`.
    pub fn string(&mut self, string: &str) -> &mut Self {
        self.buffer(string.as_bytes())
    }

    /// Writes a `vector`, with `element` for each element.
    pub fn vector<T>(
        &mut self,
        elements: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        mut element: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        let elements = elements.into_iter();
        self.length(elements.len());
        for each in elements {
            element(self, each);
        }
        self
    }
}
