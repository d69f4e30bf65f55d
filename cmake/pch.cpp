// Compiled only to hold a precompiled header that many files share.
