//! The place of the schemas without the cargo feature `schema`: no client has any.

use crate::error::Result;
use crate::model::{Acl, CreateMode, Reading};

/// A type without values, so that the compiler removes each check.
#[derive(Debug)]
pub(crate) enum SchemaSet {}

impl SchemaSet {
    pub(crate) fn check_create(&self, _path: &str, _mode: CreateMode, _data: &[u8], _acl: &[Acl]) -> Result<()> {
        match *self {}
    }

    pub(crate) fn check_delete(&self, _path: &str) -> Result<()> {
        match *self {}
    }

    pub(crate) fn check_change(&self, _path: &str, _data: &[u8]) -> Result<()> {
        match *self {}
    }

    pub(crate) fn check_acl(&self, _path: &str, _acl: &[Acl]) -> Result<()> {
        match *self {}
    }

    pub(crate) fn check_read(&self, _path: &str, _reading: Reading) -> Result<()> {
        match *self {}
    }
}
