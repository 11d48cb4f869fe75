//! The requests that read.

use super::acl::{ADMIN, READ, without_secrets};
use super::core::{Caller, Core, Failure};
use super::watch::WatchKind;
use crate::wire::{ErrorCode, OpCode, Reader, Writer};

impl Core {
    pub(super) fn exists(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let path = body.string()?;
        let watch = body.bool()?;
        if path.contains('\0') {
            return Err(ErrorCode::BadArguments.into());
        }
        // Set on a missing node too, for its creation.
        if watch {
            self.watches.add(WatchKind::Data, path, caller.connection);
        }
        let mut reply = Writer::new();
        self.view(caller.session).get(path)?.stat().encode(&mut reply);
        Ok(reply)
    }

    pub(super) fn get_data(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let path = body.string()?;
        let watch = body.bool()?;
        self.data_of(caller, path, watch)
    }

    pub(super) fn data_of(&mut self, caller: Caller, path: &str, watch: bool) -> Result<Writer, Failure> {
        self.check(caller, path, READ)?;
        if watch {
            self.watches.add(WatchKind::Data, path, caller.connection);
        }
        let node = self.view(caller.session).get(path)?;
        let mut reply = Writer::new();
        reply.optional_buffer(node.data.as_deref());
        node.stat().encode(&mut reply);
        Ok(reply)
    }

    pub(super) fn get_children(
        &mut self,
        caller: Caller,
        op: OpCode,
        body: &mut Reader<'_>,
    ) -> Result<Writer, Failure> {
        let path = body.string()?;
        let watch = body.bool()?;
        self.children_of(caller, op, path, watch)
    }

    pub(super) fn children_of(
        &mut self,
        caller: Caller,
        op: OpCode,
        path: &str,
        watch: bool,
    ) -> Result<Writer, Failure> {
        self.check(caller, path, READ)?;
        if watch {
            self.watches.add(WatchKind::Child, path, caller.connection);
        }
        let node = self.view(caller.session).get(path)?;
        let mut reply = Writer::new();
        reply.vector(node.children(), |reply, name| {
            reply.string(name);
        });
        if op == OpCode::GetChildren2 {
            node.stat().encode(&mut reply);
        }
        Ok(reply)
    }

    pub(super) fn get_acl(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let path = body.string()?;
        self.check(caller, path, READ | ADMIN)?;
        let node = self.view(caller.session).get(path)?;
        let (acl, stat) = (node.acl.clone(), node.stat());
        let shown = match self.connection(caller)?.identities.check(&acl, ADMIN) {
            Ok(()) => acl,
            Err(_) => without_secrets(&acl),
        };
        let mut reply = Writer::new();
        reply.vector(&shown, |reply, entry| entry.encode(reply));
        stat.encode(&mut reply);
        Ok(reply)
    }

    /// Shows the session all changes up to now.
    pub(super) fn sync(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let path = body.optional_string()?;
        self.catch_up(caller.session);
        let mut reply = Writer::new();
        reply.optional_buffer(path.map(str::as_bytes));
        Ok(reply)
    }

    pub(super) fn get_ephemerals(&self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let prefix = body.optional_string()?.unwrap_or_default();
        let mut paths = self.view(caller.session).ephemerals_of(caller.session);
        if !matches!(prefix.trim(), "" | "/") {
            // A prefix of the text: the name may continue.
            paths.retain(|path| path.starts_with(prefix));
        }
        let mut reply = Writer::new();
        reply.vector(&paths, |reply, path| {
            reply.string(path);
        });
        Ok(reply)
    }

    pub(super) fn get_all_children_number(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let path = body.string()?;
        self.check(caller, path, READ)?;
        let count = self.view(caller.session).count_below(path);
        let mut reply = Writer::new();
        reply.int(i32::try_from(count).unwrap_or(i32::MAX));
        Ok(reply)
    }

    pub(super) fn who_am_i(&mut self, caller: Caller) -> Result<Writer, Failure> {
        let mut reply = Writer::new();
        let users = self.connection(caller)?.identities.users();
        reply.vector(users, |reply, (scheme, user)| {
            reply.string(scheme).string(user);
        });
        Ok(reply)
    }

    /// Checks that the node exists and its list gives one of the bits in `wanted`.
    fn check(&mut self, caller: Caller, path: &str, wanted: i32) -> Result<(), Failure> {
        let acl = self.view(caller.session).get(path)?.acl.clone();
        Ok(self.connection(caller)?.identities.check(&acl, wanted)?)
    }
}
