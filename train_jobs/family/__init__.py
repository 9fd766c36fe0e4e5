"""Builds the shipped family from seeds: `python -m train_jobs.family.build`.

corpora/ generates prompts with answers, a file per task; tokenizer, lessons and training make the models from them;
model_files writes the models as Hugging Face directories. The bundle of the family comes from a retraining.
"""
