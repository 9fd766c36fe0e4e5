"""The decoder on processors: a pass, or a whole proposal, is one call of kernels written in C.

    kernels.c    products, attention and what lies between them; drawing tokens and when that ends
    build.py     the processor's level, and the library that gcc compiles for it
    bindings.py  the kernels' functions and structures by name, and weights packed as they read them
    decoder.py   a model's tensors, its cache and its passes as those structures
    threads.py   how many threads a target is worth; openmp.py what OpenMP is told beforehand

**A row's bits are its own prefix's alone.** Every output is summed in one order: its inputs from first to last, one
after another, each added by one operation. Rows, outputs and threads only decide who sums when. So nothing is summed
across a vector's lanes or by several threads, a later token's keys and values enter no sum (not even times 0, for they
may be no numbers), and gcc may neither fuse nor reorder what the source does not (-ffp-contract=off, nothing of
-ffast-math). The sums of norms and of attention's weights are taken by halves. Another level may give other bits.

**A pass of few rows waits for memory.** A weight is therefore kept in panels of two vectors of outputs, each one
stretch of memory in the order in which its inputs are summed, and read once for a block of rows, whose sums stay in
registers; more rows take turns over stretches that are still in the cache. Weights lie in huge pages. Keys and values
are laid out alike. What is in bf16 is multiplied by the processor's own instruction, for which inputs are rounded to
bf16, too, or is widened to fp32 in registers.

**A level is kept where it takes 15 % less** of some pass than the one below: tests/bench/README.md has the figures.
"""
