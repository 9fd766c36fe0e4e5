"""Running the models: Hugging Face directories in, fp32 logits out, one lean forward for target and drafts."""
