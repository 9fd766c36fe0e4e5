"""A target in vLLM, for models that our decoders do not know, quantised weights and several GPUs.

options   what is asked of vLLM, in the configuration's words
loading   vLLM's engine around its model, on all ranks
ranks     the ranks: the first in this process, the others beside it
decoder   `VllmDecoder`, with which `CausalLM` runs its passes there
passes    what each rank does: passes over rows and pages that we choose

vLLM's model runner computes, and its cache is ours to divide: block p + 1 is page p. Its scheduler and its sampler have
nothing to do. So sessions, prefixes, sampling, grammars and drafts are those of any other target.

This is written for vLLM 0.32. Of what it does not call public, it relies on these; look at them when the version moves:

1. `EngineCore(config, executor class)` loads all, and calls `collective_rpc` on its executor (v1/engine/core.py).
2. `UniProcExecutor` has the first worker in the calling process (v1/executor/uniproc_executor.py).
3. `worker_extension_cls` is mixed into the platform's worker, which has a `model_runner` (v1/worker/worker_base.py).
4. `GPUModelRunner.execute_model` updates its requests, then calls `_prepare_inputs`, which reads a pass's tokens from
   `input_batch.token_ids_cpu`; it calls `model.compute_logits`, and leaves `execute_model_state.hidden_states`, one row
   a token, in the order of `input_batch.req_ids` (v1/worker/gpu_model_runner.py; the second runner, v1/worker/gpu, does
   otherwise and is turned off by `VLLM_USE_V2_MODEL_RUNNER`).
5. `SchedulerOutput` (v1/core/sched/output.py): `resumed_req_ids` brings whole page tables anew, `kv_cache_block_copies`
   are done before the pass.
"""
