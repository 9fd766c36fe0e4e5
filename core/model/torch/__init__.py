"""The forward pass in torch, for GPUs, and for CPUs where compiled kernels are switched off.

decoder       passes of one model: plans, padding, recorded drawing
transformer   the layers
linear        matrix products whose rows do not depend on one another
attention     exact attention, in tiles of fixed shape
flash         FlashAttention over pages, where numerics may be fast
plan          the tensors a pass reads beside the weights
graphs        CUDA graphs of small passes
"""
