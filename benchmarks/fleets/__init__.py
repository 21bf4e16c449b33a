"""What the benchmarks of a whole fleet have in common: made-up nodes in service, and faults on them."""
