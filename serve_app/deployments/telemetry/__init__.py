"""What a service tells of itself.

answer_history   tokens, passes and routes of the answers of the last hour, for the console
answer_metrics   tokens, times and moves of answers, as Ray metrics of the ingress
decay_metrics    drafts in service beside their replay, as Ray metrics of the check
metrics          counts of engines and ingress as Ray metrics
node_metrics     the metrics of all nodes as one text for Prometheus
reports          what ingress, rollout and check of drafts tell operators
replica_log      our log lines in the log that Serve keeps of each replica, and the last warnings
service_status   what operators see of a service, and its JSON
"""
