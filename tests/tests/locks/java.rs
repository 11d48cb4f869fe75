//! Java's Curator and this one at the same paths.
