"""The algorithm: plain objects that know neither Ray nor HTTP and also run as two processes without them.

Rooms, and the rooms each may import (tests/test_layout.py holds this):

    sampling    how a token is drawn: request parameters, filters, shared noise     -
    tools       formats of tool calls (hermes, llama3, ...), and answers parsed:
                reasoning, content, calls                                           -
    grammar     what an answer may say: schemas, expressions and calls of tools
                as token masks                                                      tools
    text        tokenizer, detokenizer, vocabulary check, prompts from files        tools
    bundle      what training publishes: content-addressed, live by one rename      -
    rollout     taking a bundle up in service: canary, trial, going back            -
    tasks       finding tasks in prompts, classifying new prompts into them         -
    family      the shipped target, draft, bundle and held-out prompts              text
    smollm2     the shipped draft for SmolLM2-135M-Instruct, and prompts            text
    gguf        GGUF files, converted once into Hugging Face directories            model
    model       running models: architectures, weights, KV cache, decoders          model.*
    wire        messages between drafts and verifier, sockets, engine threads       sampling
    policy      when and how much to draft, and which draft                         model
    draft       the draft engine: proposals, and branches drafted ahead             sampling, model, wire, policy
    verify      the verify engine: batches, the commit rule, links to drafts,
                proposals looked up without a draft                                 those of draft, text, grammar
    traces      answers that a service gave, kept for training                      sampling, policy
    replay      judging drafts on recorded answers                                  traces, sampling, model, bundle,
                                                                                tasks, policy
    audit       recorded answers held to plain decoding                         sampling, model, verify, text
    distill     training a draft to imitate the target                              replay, traces, sampling, model,
                                                                                policy, verify

Beside the rooms lie the nouns that every room may import: arrays, atomic_files, draft_key, errors, settings,
generation and confidence_intervals.
`model_names` says which directory a configuration means by a model's name; it imports family, smollm2 and gguf.
`target` is what every configuration says of its target, and loads it by that; it imports model, model.vllm and
model_names.
`serve_app` and `train_jobs` import this package, never the other way round.

Words, and those of vLLM, Ray or the papers for the same:

    task                a group of prompts that one draft is best for; a Ray task is always called a Ray task
    draft, DraftKey     a draft model with a LoRA adapter; the key names its task and the adapter's digest
    pool                the replicas of a Ray Serve deployment that serve one draft
    slot                in files of bundles and of training: a task, or `general`, for which a draft is chosen
    bundle              a model release: drafts, router and the evidence for them
    target, verifier    the large model; the deployment, or engine, that runs it (an engine core)
    pass                a step of the engine
    session             a sequence, or request; `choice`: its index in `n`
    page, page table    a KV block, a block table
    prefix cache        the same; `lookup_prefix` finds cached blocks, `store_prefix` caches them
    chunk, prompt share chunked prefill, and its token budget
    preempt             preemption by recomputation
    source              a proposer without a model: n-gram or prompt lookup (`own_text`), suffix decoding (`answers`)
    proposal            draft tokens, speculative tokens
    commit              what rejection sampling is elsewhere: accepted tokens, and the recovered or bonus token
    judged              verified: the accepted tokens of a pass and the first rejected one
    lookahead, branch   drafting during verification; an entry of SSD's speculation cache
    noise, dice         the Gumbel noise that target and drafts share
    exact numerics      batch invariance
    decoder             a model runner, with its attention backend
    plan (of layers)    a model's config, layer by layer
    tool format         a tool parser with its chat template
    trace               a logged completion, kept for training; OpenTelemetry's is always called a span, or its spans
    canary, trial       progressive rollout: some prompts to a bundle, then all under watch
"""
