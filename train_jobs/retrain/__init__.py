"""A retraining as a whole.

pipeline     the stages in order, each once
outcome      the result that the command prints
make_draft   `taskspec draft make`: a draft for a target that has none
draft_place  where it belongs, and how it gets there
"""
