//! The library's own headers, where they are installed, against what is written down here.

