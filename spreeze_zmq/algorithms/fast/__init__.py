"""SAC's tuned halves: derivatives by hand and preallocated buffers, until native layers replace them."""
