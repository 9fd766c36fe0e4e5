"""The forward pass in torch, for GPUs, and for CPUs where compiled kernels are switched off.

decoder       passes of one model: plans, padding, drawing
transformer   the layers
linear        matrix products whose rows do not depend on one another
attention     exact attention on CPUs, in tiles of fixed shape
paged         exact attention on GPUs, in blocks of rows
paged_kernel  the Triton kernel that computes it
plan          the tensors a pass reads beside the weights
graphs        CUDA graphs of small passes
"""
