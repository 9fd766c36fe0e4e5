"""The report of a retraining, made from `train_jobs.work.findings`.

page.py writes report.html from page.html (a Jinja template), with findings.json and the plots beside it; plots.py and
learning_curves.py draw; drawing.py holds the style of all plots, wording.py the formats of figures in text.
"""
