//! Lock recipes.
