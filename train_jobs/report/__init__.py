"""The report of a retraining: one page with plots, for people. Findings enter, report.html and PNG files leave."""
