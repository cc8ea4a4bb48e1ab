//! Do others read what we write, and we what others write?
