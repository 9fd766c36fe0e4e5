"""When and how much to draft, made of estimates of acceptance, latency and pass costs; and whose draft it should be.

`draft_policy.DraftPolicy` states the rule of the verifier. `acceptance`, `latency` and `cost_model` hold the three
estimates it weighs; `decayed` is the arithmetic of every share that is learned. `prompt_share` says how much of waiting
prompts a pass reads, by what `prompt_costs` has learned that they cost. `rerouting` chooses the draft of an answer and
corrects the choice. `pool_worth` says how many replicas drafting is worth. The room is pure: no clock, thread or
socket, so that recorded rounds and answers can be replayed through it (`tests.bench.policy`). It imports no other room
but `core.model`.

Every number of the room and its reason. Where two percentages follow, they were the effect, on an earlier policy, of
half and twice of it on the mean goodput of 16 replays: of 1, 2, 4 and 8 streams, with good, un-adapted, useless and
slow drafts (`python -m tests.bench.policy --vary`).

    number                           reason                                                             half     twice
    draft_policy.CLEARLY       1.02  less than 2 % is luck; 1.00 and 1.05 instead                      +0.3 %   -1.2 %
    draft_policy.FORGET_PASSES  640  asks of a useless draft cost 2 x 0.7 / 640 = 0.2 % of the time    -0.9 %   -0.5 %
    draft_policy._FORGET_EVERY   16  all estimates are touched, which is too dear for every pass
    draft_policy._RUNNING_GAIN 1/32  about as long as a short answer                                    0.0 %    0.0 %
    draft_policy._MAX_KEYS       64  in each band: drafts name themselves, and are not trusted
    draft_policy._MAX_PROCESSES 256  the same of the processes that draft
    acceptance.MEMORY           200  a change of prompts shows within a few answers                    -1.1 %   -0.3 %
    acceptance.PRIOR_ACCEPTANCE 0.7  optimistic: most drafts accept less; 0.5 and 0.85 instead         -2.6 %   +0.1 %
    acceptance.PRIOR_WEIGHT       2  a few wrong proposals are enough to doubt a new draft             +0.1 %   -1.4 %
    acceptance.BANDS      1e-5, 0.8  greedy answers, those of facts and code, and hotter ones differ most
    acceptance.GUESSES          300  of a kind: a change of texts shows within a few answers
    acceptance.GUESSES_OF_PRIOR 1.5  one wrong guess is enough to doubt a kind
    acceptance.MOST_SUPPORT       4  quarters of the places that agree; kinds must fill up soon
    latency.MEMORY               16  the load of a draft process changes within an answer              -0.7 %   -0.8 %
    latency.TRIP             0.5 ms  one way over the wire and back, measured by `tests.bench.wire`    -0.3 %   -1.0 %
    latency._GAIN               1/8  the gain that TCP gives a round trip (RFC 6298)
    latency.PRIOR_WEIGHT          3  one slow start is doubted; 1 shut pools out over HTTP             -0.5 %    0.0 %
    latency._MISSED             0.5  of what is drafted ahead, before any was: worth a try
    latency._MISSED_WEIGHT        2  a few tries tell
    cost_model._PACE_GAIN       1/8  the gain that TCP gives a round trip (RFC 6298)                   -0.1 %   -0.1 %
    cost_model._SHAPE_GAIN     1/32  the shape is profiled, and hardly changes                         -0.1 %   -0.6 %
    cost_model._LARGEST_RATIO     2  of observed to expected seconds: a pass beyond was interrupted
    cost_model._LEAST_READING   1/8  of a pass's seconds go to what it reads, even if a clock says less
    prompt_costs._GAIN          1/4  a prompt has few chunks, and the next should know of the last
    prompt_costs._PER_PAIR   1/4096  of a token's seconds, unmeasured: after 4096 others it costs twice as much
    prompt_costs._LEAST_PER_PAIR     a quarter of that: the difference of two measured times may be anything
    prompt_share.BOUND_PASSES     4  prompts get three quarters of the time beside running answers
    prompt_share.BOUND_SECONDS 0.05  where passes are short, nobody gets fewer than 20 tokens a second
    prompt_share.LEAST_CHUNK      8  fewer tokens hardly take less
    pool_worth.ENOUGH           1/4  a pool that pays is asked nearly all the time, one that does not now and then
    pool_worth.TOO_LITTLE       1/8  half of that: no pool flaps
    rerouting.MEMORY             30  passes: an answer may change its task
    rerouting.SPREAD             20  judged tokens that the rate of a task is worth against the answer's own
    rerouting.LASTS               8  passes that a move pays for: half of a short answer, or of what evidence lasts
    rerouting.MOVE_PASSES         3  what a move costs: a Serve call, and computing the tokens so far
    rerouting.SURE              0.8  luck feigns that in (1 - TRUST) / TRUST / 4 = 1.3 % of answers (Wald)
    rerouting.MOST_MOVES          4  an answer cannot flap for long
    rerouting.TRUST            0.95  the chance that the router is right, before any answer was
    rerouting.NONE              0.5  the chance that a prompt is of no task, if it is not of that one
    rerouting.OWN               0.5  acceptance of a task's own draft, where the bundle tells none
    rerouting.GENERALS          0.4  that of the general draft
    rerouting.OTHERS            0.1  that of another task's
    rerouting.RATED_LENGTH        6  tokens proposed for a pass where a bundle's rates were measured
    rerouting._RATE_WEIGHT      500  judged tokens, of about 5 answers, that the bundle's rates are worth
    rerouting._TRUST_WEIGHT     500  the same, of the start of the trust
    rerouting._LEARNED         4000  judged tokens, of about 40 answers, remembered of a draft on a task and of a route
    rerouting._RARELY          0.01  and _MOSTLY 0.99, bounds of a rate: nothing is certain
    rerouting._NEVER          0.001  a task below is out of the question: all is computed again after every pass
"""
