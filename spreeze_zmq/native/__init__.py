"""The native layers' source and its compiled library; needs no torch."""
