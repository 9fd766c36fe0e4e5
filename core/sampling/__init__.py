"""How a token is drawn: the parameters of a request, the logit filters, and the Gumbel noise that both models share.

params    the sampling parameters and their ranges
filters   top-k, top-p, min-p
gumbel    the noise of each (seed, choice, position, token)
sampler   logits in, scores and tokens out
"""
