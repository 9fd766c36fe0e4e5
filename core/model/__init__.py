"""Running a model: a Hugging Face directory in, fp32 logits out, the same code for target and drafts.

config             `ModelConfig`, the plan of a model's layers
architectures/     what a config.json means as such a plan, one file per architecture
checkpoint         weight files, read as NumPy's arrays
bfloat16           the type that NumPy lacks, as words of 16 bits
loader             weights with a LoRA adapter merged in
draft_vocabulary   the ids that a draft has logits for, and their file
tensors            the tensors of a model by their role; model_files opens what they are in
base               `Model`, the interface that the engines see
causal_lm          `CausalLM`, its one implementation, and `load_model`
decoder            `Decoder`, which computes passes and owns the KV cache; cpu/, torch/ and vllm/ have one each
tensor_views       NumPy's arrays as torch's tensors
pages              the pages (KV blocks) of the cache that each session holds
prefix_cache       pages that later sessions with the same beginning reuse
rotary             rotary position embedding
draft_tokens       drafted tokens, and the rule that stops a draft's chain
invariance         the check that logits do not depend on the batch

To add an architecture, see architectures/; to add a decoder, see decoder.

Weights are read, merged and stacked by NumPy. Modules that import torch at their top are torch/, vllm/ but for its
options, tensor_views, invariance and cpu/threads. `causal_lm.load_model` imports it when it is called, and `checkpoint`
for old weight files.
"""
