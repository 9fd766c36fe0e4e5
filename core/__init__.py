"""The algorithm: plain objects that know neither Ray nor HTTP and also run as two processes without them.

A task is a group of prompts. A slot is a place for a draft: one for a task, or the general one. A pool is the replicas
that serve a slot.

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
    distill     training a draft to imitate the target                              replay, traces, sampling, model,
                                                                                policy, verify

Beside the rooms lie the nouns that every room may import: arrays, atomic_files, draft_key, errors, settings,
generation and confidence_intervals.
`model_names` says which directory a configuration means by a model's name; it imports family, smollm2 and gguf.
`serve_app` and `train_jobs` import this package, never the other way round.
"""
