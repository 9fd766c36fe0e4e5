"""What a service tells of itself.

answer_metrics   tokens, times and moves of answers, as Ray metrics of the ingress
metrics          counts of engines and ingress as Ray metrics
node_metrics     the metrics of all nodes as one text for Prometheus
reports          what ingress and rollout tell operators
replica_log      our log lines in the log that Serve keeps of each replica
"""
