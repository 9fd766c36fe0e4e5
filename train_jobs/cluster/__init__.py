"""What a retraining needs of Ray.

workers         work items spread over actors, as many as fit
progress        units of work on any node report to an actor; `progress_view` draws them
own_ray         the Ray of one command, of which nothing is left
ray_private     what Ray does not document; an upgrade of Ray is reviewed here
"""
