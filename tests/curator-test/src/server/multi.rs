//! Several requests in one: `multi` and `multiRead`.

use super::core::{Caller, Core, Failure};
use super::writes::{Create, Done, Making, Mode, Write};
use crate::wire::{ErrorCode, OpCode, Reader, Writer};

/// The type of a result that is an error, and of the header at the end.
const NO_TYPE: i32 = -1;

/// One part of a `multi`.
#[derive(Debug)]
enum Part {
    Write(OpCode, Write),
    /// Apache fails on it only when it reaches the part.
    Broken,
}

impl Core {
    /// Carries out all writes or none.
    ///
    /// The reply's header has no error. If a write fails, all results are errors: 0 before the failed one, and
    /// `RuntimeInconsistency` behind it.
    pub(super) fn multi(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let at = self.next_stamp();
        let parts = parts(body)?;
        let (count, mut done) = (parts.len(), Vec::with_capacity(parts.len()));
        self.tree.begin();
        for part in parts {
            let result = match part {
                Part::Write(op, write) => self.apply(caller, write, at).map(|result| (op, result)),
                Part::Broken => Err(Failure::Unreadable),
            };
            match result {
                Ok(result) => done.push(result),
                Err(failure) => {
                    self.tree.roll_back();
                    self.forget_changes();
                    let Failure::Reply(error) = failure else {
                        return Err(failure);
                    };
                    return Ok(failed(done.len(), error, count));
                }
            }
        }
        self.tree.commit();
        let mut reply = Writer::new();
        for (op, result) in done {
            result_header(&mut reply, result_type(op, &result), 0);
            match result {
                Done::Created(path, stat) => {
                    reply.string(&path);
                    if op != OpCode::Create {
                        stat.encode(&mut reply);
                    }
                }
                Done::Set(stat) => stat.encode(&mut reply),
                Done::Deleted | Done::Checked => {}
            }
        }
        end(&mut reply);
        Ok(reply)
    }

    /// Carries out reads. Each has its own result, an error or not.
    pub(super) fn multi_read(&mut self, caller: Caller, body: &mut Reader<'_>) -> Result<Writer, Failure> {
        let mut reads = Vec::new();
        while let Some(op) = next_type(body)? {
            if !matches!(op, OpCode::GetChildren | OpCode::GetData) {
                return Err(Failure::Unreadable);
            }
            let path = body.string()?.to_owned();
            // Apache sets no watch, regardless of the request.
            let _watch = body.bool()?;
            reads.push((op, path));
        }
        let mut reply = Writer::new();
        for (op, path) in reads {
            let result = match op {
                OpCode::GetData => self.data_of(caller, &path, false),
                _ => self.children_of(caller, OpCode::GetChildren, &path, false),
            };
            match result {
                Ok(body) => {
                    result_header(&mut reply, op.code(), 0);
                    reply.raw(&body.into_bytes());
                }
                Err(Failure::Reply(error)) => error_result(&mut reply, error),
                Err(failure) => return Err(failure),
            }
        }
        end(&mut reply);
        Ok(reply)
    }
}

/// Reads the parts of a `multi`. The mode decides what a create makes.
fn parts(body: &mut Reader<'_>) -> Result<Vec<Part>, Failure> {
    let mut parts = Vec::new();
    while let Some(op) = next_type(body)? {
        // Apache fails on a null path before it checks the parts.
        body.clone().string()?;
        parts.push(match op {
            OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
                created(op, Create::decode(op, body)?)
            }
            OpCode::Delete | OpCode::SetData | OpCode::Check => Part::Write(op, Write::decode(op, body)?),
            _ => return Err(Failure::Unreadable),
        });
    }
    Ok(parts)
}

fn created(op: OpCode, create: Create) -> Part {
    let is = |wanted: fn(Mode) -> bool| Mode::from_flags(create.flags).is_ok_and(wanted);
    if is(|mode| mode.has_ttl) {
        return match op {
            OpCode::CreateTtl => Part::Write(OpCode::CreateTtl, Write::Create(create)),
            _ => Part::Broken,
        };
    }
    if is(|mode| mode.is_container) {
        Part::Write(OpCode::CreateContainer, Write::Create(Create { making: Making::Container, ..create }))
    } else {
        Part::Write(OpCode::Create, Write::Create(Create { making: Making::Plain, ..create }))
    }
}

/// Reads the operation of the next part; `None` at the end.
fn next_type(body: &mut Reader<'_>) -> Result<Option<OpCode>, Failure> {
    let op = OpCode::from_code(body.int()?);
    let is_end = body.bool()?;
    let _error = body.int()?;
    Ok((!is_end).then_some(op))
}

/// Returns the result's type: a create with a `Stat` is a `create2`, regardless of the request.
const fn result_type(op: OpCode, result: &Done) -> i32 {
    match (op, result) {
        (OpCode::CreateContainer | OpCode::CreateTtl, Done::Created(..)) => OpCode::Create2.code(),
        _ => op.code(),
    }
}

/// Returns the reply when part number `failed` of `count` has failed.
fn failed(failed: usize, error: ErrorCode, count: usize) -> Writer {
    let mut reply = Writer::new();
    for part in 0..count {
        let error = match part {
            _ if part < failed => ErrorCode::Ok,
            _ if part == failed => error,
            _ => ErrorCode::RuntimeInconsistency,
        };
        error_result(&mut reply, error);
    }
    end(&mut reply);
    reply
}

fn error_result(reply: &mut Writer, error: ErrorCode) {
    result_header(reply, NO_TYPE, error.code());
    reply.int(error.code());
}

fn result_header(reply: &mut Writer, kind: i32, error: i32) {
    reply.int(kind).bool(false).int(error);
}

fn end(reply: &mut Writer) {
    reply.int(NO_TYPE).bool(true).int(-1);
}
