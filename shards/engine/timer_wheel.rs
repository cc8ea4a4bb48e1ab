//! Whose time has come?
