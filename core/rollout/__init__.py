"""Rolling out a bundle: whether its drafts do worse in service than those before, and what to do about it.

trial       whether the drafts of a bundle do worse, beyond chance
state       what a service that takes up bundles knows: steady, starting, a canary, a trial, or going back
events      what it hears, and what it is to do
step        from a state and an event to the next state and its effects

Nothing here reads a clock, a file or a network: whoever performs the effects turns their outcomes into events.
"""
