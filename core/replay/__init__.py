"""Judging drafts without serving them: their proposals replayed against what the target answered.

replay            acceptance of any draft on recorded answers
speed             tokens a second, from a replay and from costs: what drafts are judged by
promotion         the choice of the draft for a task
decay             drafts in service against their own replay: whether one does worse than it ought to
shadow            one bundle's drafts against another's, as a service would have routed its answers
vocabulary_size   what draft vocabularies of several sizes cost and bring
"""
