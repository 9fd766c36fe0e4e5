"""When and how much to draft, made of estimates of acceptance, latency and pass costs; and whose draft it should be.

`draft_policy.DraftPolicy` states the rule of the verifier. `acceptance`, `latency` and `cost_model` hold the three
estimates it weighs. `prompt_share` says how much of waiting prompts a pass reads, by what `prompt_costs` has learned
that they cost. `rerouting` chooses the slot of an answer and corrects the choice. The room is pure: no clock,
thread or socket, so that recorded rounds and answers can be replayed through it (`tests.bench.policy`).
It imports no other room but `core.model`.

Every number of the verifier's policy, its reason, and the effect of half and twice of it on the mean goodput of 16
replays: of 1, 2, 4 and 8 streams, with good, un-adapted, useless and slow drafts (`python -m tests.bench.policy
--vary`). Those of `rerouting` stand there with their reasons.

    number                          reason                                                             half     twice
    draft_policy.CLEARLY     1.02   less than 2 % is luck; 1.00 and 1.05 instead                      +0.3 %   -1.2 %
    draft_policy.FORGET_PASSES 640  asks of a useless draft cost 2 x 0.7 / 640 = 0.2 % of the time    -0.9 %   -0.5 %
    draft_policy._RUNNING_GAIN 1/32 about as long as a short answer                                    0.0 %    0.0 %
    acceptance.MEMORY         200   a change of prompts shows within a few answers                    -1.1 %   -0.3 %
    acceptance.PRIOR_ACCEPTANCE 0.7 optimistic: most drafts accept less; 0.5 and 0.85 instead         -2.6 %   +0.1 %
    acceptance.PRIOR_WEIGHT   2     a few wrong proposals are enough to doubt a new draft             +0.1 %   -1.4 %
    latency.MEMORY           16     the load of a draft process changes within an answer              -0.7 %   -0.8 %
    latency.TRIP         0.5 ms     one way over the wire and back, measured by `tests.bench.wire`    -0.3 %   -1.0 %
    latency.PRIOR_WEIGHT      3     one slow start is doubted; 1 shut pools out over HTTP             -0.5 %    0.0 %
    cost_model._PACE_GAIN    1/8    the gain that TCP gives a round trip (RFC 6298)                   -0.1 %   -0.1 %
    cost_model._SHAPE_GAIN  1/32    the shape is profiled, and hardly changes                         -0.1 %   -0.6 %
"""
