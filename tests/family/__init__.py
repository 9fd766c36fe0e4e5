"""The shipped family's generators, for tests, and its builder: `python -m tests.family.build`.

corpora/ generates prompts with answers, a file per task; prompts.py writes them as files that a retraining reads.
tokenizer, lessons and training make the models from them; model_files writes the models as Hugging Face directories.
quality.py measures the models. The bundle of the family comes from a retraining with retrain.yaml.
"""
