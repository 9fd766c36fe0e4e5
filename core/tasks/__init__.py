"""Tasks: finding them in prompts without labels, and predicting the task of a new prompt.

embedding, clustering, names        prompts as points; k-means and the number of tasks; a readable name per task
identity                            the tasks of a new partition that were tasks before
drift                               how far recent answers are from earlier ones, as a reason to retrain
classifier, classifier_training     the task classifier (Mamba), which the service's router runs; its training
rewording, rewording_rules          prompts in other words, for training and testing the classifier

This room imports nothing of `core` but errors and confidence intervals. The service imports `classifier` alone, as does
`core.replay.shadow`, its command line `identity`; `train_jobs` and the bench import the rest.
"""
