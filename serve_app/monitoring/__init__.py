"""What an operator's Prometheus and Grafana are told of a service: a dashboard and alert rules.

panels          the dashboard's rows, panels and queries
dashboard       the same for Grafana: `python -m serve_app.monitoring.dashboard` writes dashboard.json
rules.yaml      alerts

Queries name metrics as Ray exports them, so they hold for every way to scrape a service. Nothing here runs in one:
what makes the JSON, `grafana-foundation-sdk`, is installed for development only.
"""
