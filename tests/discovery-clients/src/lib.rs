//! The code of `recipes/discovery/docs/clients.md`: tonic and reqwest over the instances of a service.

pub mod over_reqwest;
pub mod over_tonic;
