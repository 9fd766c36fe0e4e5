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

**A level is kept where it takes 15 % less** of some pass than the one below. Milliseconds of a pass of the 100M target
in bf16, 200 tokens cached, on one thread; kernels.c on a Zen 5 with its level forced, medians of paired turns:

| rows of a pass | plain | avx2 | avx512 | avx512_bf16 |
|----------------|-------|------|--------|-------------|
| 1              |  19.7 |  8.2 |    7.3 |         6.5 |
| 5              |  33.3 | 10.7 |    7.8 |         7.1 |
| 16             | 110.3 | 37.6 |   18.3 |        11.1 |
| 62, a prompt   |   397 |  117 |     61 |          34 |

Since weights lie in huge pages, avx512_bf16 takes 6.2, 6.7, 10.1 and 31 (numba: 6.6, 7.3, 11.6 and 36).

Elsewhere the same loops, then compiled by numba, took for 1, 5 and 16 rows 14.7, 16.2 and 45.8 with AVX2 (Zen 3;
reading the weights 11.0), 30.5, 36.9 and 63.1 with AVX-512 (Xeon, 2.8 GHz; 15.9) and 18.3, 19.8 and 24.6 on AMX's tiles
(Xeon; 15.7): tests/bench/results/*/step/step.md. Tiles are for the rows of prompts and of many sessions: 62 took 34 to
48 there, with torch's products on tiles 53, where the level below, at 32 products a cycle and 2.7 GHz, would need 72
for the arithmetic alone. That level itself was never measured on such a Xeon.
"""
