"""What a service tells of itself.

answer_history   tokens, passes and routes of the answers of the last hour, for the console
answer_metrics   tokens, times and moves of answers, as Ray metrics of the ingress
decay_metrics    drafts in service beside their replay, as Ray metrics of the check
http_metrics     responses by key and status, as Ray metrics of the ingress
metrics          counts of engines and ingress as Ray metrics
node_metrics     the metrics of all nodes as one text for Prometheus
reports          what ingress, rollout and check of drafts tell operators
rollout_metrics  which bundle has which share of the prompts, as Ray metrics of the rollout
replica_log      the log that Serve keeps of each replica: its format, our lines in it, and the last warnings
service_status   what operators see of a service, and its JSON
vllm_names       engines and answers under the names of vLLM's metrics
"""
