"""The source of the native code and its compiled library; needs no torch."""
