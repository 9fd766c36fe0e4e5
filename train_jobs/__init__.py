"""The Ray Train half: the jobs that find tasks, align adapters and publish bundles."""
