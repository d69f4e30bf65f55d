// Compiled only to hold the precompiled header that all torch rooms share.
