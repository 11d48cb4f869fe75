//! ZooKeeper client framework.
