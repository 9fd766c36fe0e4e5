"""The commands `taskspec retrain`, `stage`, `draft make` and `traces import` (`commands`), and the Ray Job (`job`)."""

from train_jobs.cli.commands import add_commands

__all__ = ["add_commands"]
