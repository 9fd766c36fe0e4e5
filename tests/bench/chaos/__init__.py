"""Chaos with a history checker: faults of every kind while clients ask, and a proof that no answer was altered.

`history` is what clients write down, `checker` judges it afterwards and alone, `clients` ask and go on with cut
answers, `faults` are what is done to the service, `run` puts them together, `page` is the table.
"""
