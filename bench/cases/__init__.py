"""The benchmarks, one file each, named by their number in docs/benchmarks.md."""
