//! Who is dead (being built).
