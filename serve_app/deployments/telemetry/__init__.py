"""What a service tells of itself: metrics, reports for operators, logs, and the traces that training learns from."""
